"""Kinks that are counted and located, against margins computed by hand in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

import mixad
from mixad import special
from mixad.errors import KernelGradientError


def found(report, kind, text=""):
    """Return the elements that come near kinks of a kind on lines with a text."""
    kinks = [k for k in report.kinks if k.kind == kind and text in k.line.text]
    return {tuple(map(int, row)) for k in kinks for row in zip(*k.indices, strict=True)}


def where(mask):
    return {tuple(map(int, row)) for row in np.argwhere(mask)}


@mixad.broadcast
def bent(x, y):
    z = min(x, y)
    if x < 1.0:  # near 1
        z = abs(y)
    return z + math.floor(3.0 * x)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_elements_near_branches_ties_and_jumps(backend, dtype):
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1.5, (40, 50)).astype(dtype)
    y = rng.uniform(-0.5, 1.5, (40, 50)).astype(dtype)
    tolerance = 0.01
    report = bent.with_options(backend=backend).kinks(x, y, tolerance=tolerance)
    low = x < 1
    branch = np.abs(x - 1) <= tolerance * np.maximum(x, 1)
    tie = np.abs(x - y) <= tolerance * np.maximum(np.abs(x), np.abs(y))
    bend = low & (np.abs(y) <= tolerance)
    jump = np.abs(3 * x - np.rint(3 * x)) <= tolerance
    assert all(mask.any() for mask in (branch, tie, bend, jump))
    assert found(report, "branch", "near 1") == where(branch)
    assert found(report, "tie", "min(x, y)") == where(tie)
    assert found(report, "tie", "abs(y)") == where(bend)
    assert found(report, "jump") == where(jump)
    assert report.count == (branch | tie | bend | jump).sum()
    assert (report.places, report.shape, bool(report)) == (4, (40, 50), True)


def test_nearest_come_first_with_their_margins():
    x = np.asarray([1.3, 1.001, 0.9999, 1.0, 2.0])
    (kink,) = bent.kinks(x, 5.0, wrt="x", tolerance=0.01).kinks[:1]
    assert kink.kind == "branch"
    assert kink.indices[0].tolist() == [3, 2, 1]
    np.testing.assert_allclose(kink.margins, [0.0, 1e-4, 0.001 / 1.001], rtol=1e-10)


@mixad.broadcast
def halved(x):
    n = 0
    while x > 1.0:
        x = 0.5 * x
        n += 1
    return x + 0.0 * n


@mixad.broadcast
def halved_until(x):
    for _ in range(100):
        if x <= 1.0:
            break
        x = 0.5 * x
    return x


@pytest.mark.parametrize("kernel", [halved, halved_until])
def test_changes_of_the_number_of_turns(kernel):
    """Near 1, 2, 4, 8, ... another iteration is made, or not."""
    x = np.asarray([0.3, 1.0 + 1e-9, 1.5, 2.0, 3.9, 4.0 - 1e-8, 8.0 * (1 + 1e-9), 100.0])
    report = kernel.kinks(x)
    assert found(report, "trip count") == {(1,), (3,), (5,), (6,)}
    assert {k.kind for k in report.kinks} == {"trip count"}
    assert report.places == 1


def test_margins_are_the_least_of_all_turns():
    @mixad.broadcast
    def clipped(x):
        total = 0.0
        for i in range(4):
            total += max(x - i, 0.5)
        return total

    x = np.linspace(0.0, 5.0, 501)
    report = clipped.kinks(x, tolerance=1e-9)
    near = np.isclose(x[:, None] - np.arange(4), 0.5, rtol=1e-9, atol=0).any(axis=1)
    assert found(report, "tie") == where(near)
    assert near.sum() == 4


def test_each_op_that_bends_or_jumps():
    bends = {
        "abs": (lambda x: abs(x), [0.0], "tie"),
        "max": (lambda x: max(x, 2.0 - x), [1.0], "tie"),
        "relu": (lambda x: np.maximum(x, 0.0), [0.0], "tie"),
        "sign": (lambda x: np.sign(x), [0.0], "jump"),
        "floor": (lambda x: math.floor(x) * x, [-1.0, 0.0, 1.0], "jump"),
        "ceil": (lambda x: math.ceil(x) * x, [-1.0, 0.0, 1.0], "jump"),
        "int": (lambda x: int(x) * x, [-1.0, 1.0], "jump"),
        "round": (lambda x: round(x) * x, [-0.5, 0.5], "jump"),
        "mod": (lambda x: x % 0.75, [-0.75, 0.0, 0.75], "jump"),
        "floordiv": (lambda x: x // 0.75 * x, [-0.75, 0.0, 0.75], "jump"),
        "copysign of x": (lambda x: np.copysign(x, -2.0), [0.0], "tie"),
        "the sign of x": (lambda x: np.copysign(2.0, x), [0.0], "jump"),
        "both": (lambda x: np.copysign(x - 1.0, x), [0.0, 1.0], "jump"),
        "hypot": (lambda x: np.hypot(x - 0.5, 2.0 * x - 1.0), [0.5], "tie"),
        "away": (lambda x: np.hypot(x, 2.0), [], "tie"),
        "bool": (lambda x: x if x else 1.0, [0.0], "branch"),
    }
    x = np.linspace(-1.125, 1.125, 73)  # steps of 1/32, all of them exact
    for name, (function, at, kind) in bends.items():
        report = mixad.broadcast(function).kinks(x, tolerance=1e-9)
        assert found(report, kind) == where(np.isin(x, at)), name
        assert {k.kind for k in report.kinks} == ({kind} if at else set()), name


def test_a_sign_that_does_not_move_is_none():
    kernel = mixad.broadcast(lambda x, y: np.copysign(x, y) * y)
    x, y = np.asarray([1.0, 0.0, 1.0]), np.asarray([0.0, 1.0, 1.0])
    assert found(kernel.kinks(x, y, wrt="x"), "tie") == {(1,)}
    assert found(kernel.kinks(x, y, wrt="y"), "jump") == {(0,)}


def test_complex_numbers_bend_where_their_size_is_0():
    z = np.asarray([0.0, 1e-9j, 1j, -1.0])
    report = mixad.broadcast(lambda z: abs(z) * z.real).kinks(z)
    assert found(report, "tie", "abs(z)") == {(0,), (1,)}
    smooth = mixad.broadcast(lambda z: (z.real, (z**1.5 + np.log(z + 2.0) / z).real))
    assert not smooth.kinks(z).kinks


def test_only_what_depends_on_the_named_inputs_counts():
    @mixad.broadcast
    def gated(z, x):
        if z == 1.0:
            return x * x
        return max(x, 0.0)

    z, x = np.asarray([0.0, 1.0, 0.0]), np.asarray([1.0, 1.0, 0.0])
    assert found(gated.kinks(z, x), "branch") == {(1,)}
    assert found(gated.kinks(z, x, wrt="x"), "tie") == {(2,)}
    assert gated.kinks(z, x, wrt="x").places == 1
    with pytest.raises(KernelGradientError):
        gated.kinks(z, x, wrt="w")


def newton_root(tolerance):
    """Return the kernel of a square root by Newton's method."""

    @mixad.broadcast
    def root(a):
        x, step = 1.0, 1.0
        while abs(step) > tolerance:
            step = (x * x - a) / (2.0 * x)
            x = x - step
        return x

    return root


def test_a_tie_that_only_a_condition_sees_is_none():
    """At a converged step `abs(step)` is near 0, and nothing bends."""
    report = newton_root(1e-6).kinks(np.linspace(1.5, 4.0, 100))
    assert report.places == 1
    assert not report.kinks


def test_tests_for_nan_are_none():
    kernel = mixad.broadcast(lambda x: 0.0 if x != x else x)
    assert kernel.kinks(np.ones(3)).places == 0


def test_tolerances_follow_the_dtype():
    x = 1.0 + np.asarray([1e-9, 1e-5, 1e-3])
    assert bent.kinks(x, 5.0, wrt="x").kinks[0].count == 1
    assert bent.kinks(x.astype("f4"), np.float32(5), wrt="x").kinks[0].count == 2
    assert bent.kinks(x, 5.0, wrt="x", tolerance=0.1).kinks[0].count == 3


def test_numbers_and_empty_arrays():
    assert bent.kinks(1.0, 5.0).count == 1
    assert bent.kinks(1.0, 5.0).kinks[0].indices == ()
    assert not bent.kinks(1.2, 5.0)
    assert bent.kinks(np.ones((0, 3)), np.ones(3)).count == 0
    smooth = mixad.broadcast(lambda x: x * x)
    assert (
        str(smooth.kinks(np.ones((2, 3)))) == "no element of 6 is near one of 0 kinks in <lambda>"
    )


def test_lines_of_functions_that_stand_for_numpys_are_the_users():
    kernel = mixad.broadcast(lambda x: np.heaviside(x, 0.5) * x)
    report = kernel.kinks(np.asarray([0.0, 1.0]))
    assert {k.line.filename for k in report.kinks} == {__file__}


def test_it_reads():
    x = np.asarray([0.5, 1.0, 1.0, 1.0, 1.0, 1.2])
    lines = str(bent.kinks(x[:, None], np.asarray([5.0, 6.0]), wrt="x")).splitlines()
    assert lines[0] == "8 of 12 elements are near one of 3 kinks in bent:"
    assert lines[1].endswith("if x < 1.0:  # near 1")
    assert lines[2] == "    branch: 8 at [1, 0], [1, 1], [2, 0], ..., nearest 0.0e+00"


def test_other_libraries_give_their_own_arrays():
    strict = pytest.importorskip("array_api_strict")
    (kink, *_) = bent.kinks(strict.asarray([1.0, 1.2]), 5.0, wrt="x").kinks
    assert isinstance(kink.margins, type(strict.ones(1)))
    assert int(kink.indices[0][0]) == 0


def test_methods_see_their_instance():
    class Gate:
        threshold = 2.0

        @mixad.broadcast
        def passed(self, x):
            return x if x > self.threshold else 0.0

    assert Gate().passed.kinks(np.asarray([2.0, 3.0])).count == 1
    assert Gate.passed.kinks(Gate(), np.asarray([2.0, 3.0])).count == 1


@pytest.mark.rows(
    ("function", "point"),
    [
        (special.j0, 8.0), (special.i1, 8.0), (special.i0e, -8.0), (special.y0, 8.0),
        (special.sind, 45.0), (special.cospi, 0.25), (special.sinc, 0.5), (np.sinc, 1.5),
        (special.log1mexp, -math.log(2)), (special.gelu_tanh, 30.0), (special.softsign, 1.0),
        (special.softsign, 0.0), (lambda x: special.rel_entr(x, 2.0), 3.0),
    ],
)  # fmt: skip
def test_where_smooth_functions_change_the_method_is_no_kink(function, point):
    assert not mixad.broadcast(lambda x: function(x) * 2).kinks(np.asarray([point, point + 1e-12]))


@pytest.mark.parametrize(
    ("function", "point"),
    [(special.huber, 1.0), (special.hardtanh, 1.0), (special.leaky_relu, 0.0)],
)
def test_kinks_of_special_functions_are_on_the_users_line(function, point):
    kernel = mixad.broadcast(
        (lambda x: function(1.0, x)) if function is special.huber else (lambda x: function(x))
    )
    kinks = kernel.kinks(np.asarray([point, 5.0])).kinks
    assert {k.line.filename for k in kinks} == {__file__}
    assert sum(k.count for k in kinks) >= 1


def test_a_report_of_few_elements_is_shown_over_any_library():
    """array-api-strict refuses a slice that ends outside of its array."""
    strict = pytest.importorskip("array_api_strict")
    report = bent.kinks(strict.asarray([1.0, 1.2]), 5.0, wrt="x")
    assert "branch: 1 at [0], nearest" in str(report)


@pytest.mark.parametrize("near", [1e-12, -1e-12])
def test_a_threshold_of_zero_that_is_an_input_is_near_absolutely(near):
    x = np.asarray([near, 1.0, -1.0])
    above = mixad.broadcast(lambda x, threshold: x if x > threshold else 0.5 * x)
    clipped = mixad.broadcast(lambda x, threshold: max(x, threshold))
    for kernel, kind in ((above, "branch"), (clipped, "tie")):
        assert found(kernel.kinks(x, 0.0, wrt="x"), kind) == {(0,)}
        assert found(kernel.kinks(x, np.zeros(3), wrt="x"), kind) == {(0,)}
        # what moves is beside no 0 that it could be near to: both may be small
        assert not kernel.kinks(x, np.zeros(3), wrt=("x", "threshold"))


def test_a_step_that_has_become_zero_is_not_near_the_tolerance():
    assert not newton_root(1e-12).kinks(np.asarray([4.0, 9.0]))


def test_kinks_of_special_functions_are_on_the_line_of_their_call():
    """No equation of the line itself comes before them."""

    @mixad.broadcast
    def kernel(x, y):
        a = x * y
        b = special.hardtanh(x)
        return a + special.huber(1.0, y) + b

    report = kernel.kinks(np.asarray([1.0, 7.0]), np.asarray([9.0, 1.0]))
    first = kernel.__wrapped__.__code__.co_firstlineno
    lines = {k.line.number - first for k in report.kinks}
    assert lines == {3, 4}


def test_the_size_of_a_complex_number_has_a_kink_at_zero_and_its_angle_jumps_at_the_cut():
    z = np.asarray([1e-12j, -1 + 1e-12j, 1 + 1e-12j, -1 - 1.0j])
    assert found(mixad.broadcast(lambda z: abs(z)).kinks(z), "tie") == {(0,)}
    assert found(mixad.broadcast(lambda z: np.angle(z)).kinks(z), "jump") == {(0,), (1,)}
    by_parts = mixad.broadcast(lambda x, y: (math.hypot(x, y), math.atan2(y, x)))
    report = by_parts.kinks(z.real, z.imag)
    assert found(report, "tie") == {(0,)}
    assert found(report, "jump") == {(0,), (1,)}


def test_functions_of_complex_numbers_choose_formulas_without_a_kink():
    kernel = mixad.broadcast(lambda z, p: (z**p).real + np.exp(z).imag + np.tanh(z).real)
    assert not kernel.kinks(np.asarray([0j, 2.0 + 1e-12j]), np.asarray([1.0, 2.0]))
