"""Python integers in a kernel are Python's, or refused: compared with Python itself."""

import random

import numpy as np
import pytest
from parse_compiled import from_source, parsed, run

from mixad.errors import KernelError, KernelOverflowError
from mixad.scalar.parse import check_limits
from mixad.scalar.types import F64, I8, U64

REFUSED = [
    "t * 10**20", "t * 10**19", "t * 2**64", "t + 10**400", "t + 10**10**10", "t + 2**63",
    "t * (10**20) / (10**19)", "t < 10**19", "t * (1 << 64)", "t * (3000000000 * 4000000000)",
    "t * -(10**19)", "t - ~(2**64)", "t * (2**62 + 2**62)", "t * pow(10, 19)",
    "t * int(1e20)", "t * int(-1e300)", "t * sum((2**62, 2**62))",
]  # fmt: skip


@pytest.mark.rows("text", REFUSED)
def test_constants_beyond_int64_are_refused(text):
    with pytest.raises(KernelError, match="does not fit into int64") as caught:
        parsed(from_source(f"f = lambda t: {text}"), F64)
    assert "Instead: " in str(caught.value)


def test_constants_of_names_are_refused_too():
    f = from_source("def f(t):\n    n = 10**10\n    for k in (n, n): n = n * k\n    return t * n\n")
    with pytest.raises(KernelError, match="100000000000000000000 does not fit into int64"):
        parsed(f, F64)


def test_only_the_value_of_an_expression_of_literals_must_fit():
    assert run(from_source("f = lambda t: t * (2**63 - 1)"), 1.0) == float(2**63 - 1)
    assert run(from_source("f = lambda t: t * -(2**63)"), 1.0) == -float(2**63)
    assert run(from_source("f = lambda t: t * (10**30 // 10**25)"), 2.0) == 200000.0


def test_unsigned_expression_of_literals():
    f = from_source("import numpy as np\nf = lambda n: n ^ np.uint64(2**64 - 1)")
    assert run(f, 7, types=(U64,)) == 2**64 - 8


def checked(text, **names):
    """Return what a kernel gives for t = 1, its integers checked as at every call."""
    f = from_source(f"f = lambda t: {text}", **names)
    found, snapshot = parsed(f, F64)
    check_limits(found, (1.0, *snapshot.values(found)))
    return run(f, 1.0)


@pytest.mark.rows(
    "text", ["N * N * N", "N**3", "(N << 40)", "-(N * N) * 10", "N * 10**10", "abs(N) * N * 9 * N"]
)
def test_product_of_captured_integers_must_fit_at_every_call(text):
    assert checked(f"t * ({text})", N=7) == eval(text, {"N": 7})
    with pytest.raises(KernelOverflowError, match=r"the value of .* out of bounds for int64"):
        checked(f"t * ({text})", N=10**9 + 1)


def test_integer_of_a_captured_float_must_fit():
    assert checked("t * int(F)", F=-3.7) == -3
    assert checked("t * int(F)", F=float("nan")) == checked("t * int(np.nan)", np=np)
    with pytest.raises(KernelOverflowError, match=r"the value of 'int\(F\)'"):
        checked("t * int(F)", F=1e20)


def test_very_large_value_is_told_as_it_is_spelled():
    with pytest.raises(KernelOverflowError, match=r"Python integer `N \*\* M`, .* int64"):
        checked("t * N**M", N=10**9, M=10**9)


def test_integer_computed_beside_narrower_ones_must_fit():
    f = from_source("f = lambda n: n + K * 100", K=3)
    found, snapshot = parsed(f, I8)
    with pytest.raises(KernelOverflowError, match=r"300, the value of 'K \* 100', .* int8"):
        check_limits(found, (1, *snapshot.values(found)))


def formula(rng, depth):
    if not depth:
        return rng.choice(["N", "M", "7", "-3", "1000003", "B"])
    left, right = formula(rng, depth - 1), formula(rng, depth - 1)
    if rng.random() < 0.1:
        return f"({left}) ** {rng.randrange(12)}"
    return f"({left}) {rng.choice(['+', '-', '*', '*', '//', '%', '&', '|', '^'])} ({right})"


def test_random_formulas_are_python_or_refused():
    rng = random.Random(20)
    names = {"N": 123456, "M": -987654321, "B": True}
    outcomes = []
    for _ in range(300):
        text = formula(rng, rng.randint(1, 4))
        try:
            expected = eval(text, dict(names))
        except ZeroDivisionError:
            continue
        try:
            value = checked(f"t * float({text})", **names)
        except (KernelOverflowError, KernelError):
            outcomes.append("refused")
        else:
            outcomes.append("exact")
            assert value == float(expected), text
    assert min(map(outcomes.count, ("refused", "exact"))) > 20
