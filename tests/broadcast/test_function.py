"""The decorator: what it keeps of a function, how it is called, what it says."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import math
import pickle
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import mixad
from mixad import special
from mixad.broadcast import duals
from mixad.call import specialise
from mixad.errors import (
    BackendError,
    ConfigurationError,
    KernelError,
    KernelGradientError,
    KernelSyntaxError,
    KernelTypeError,
)
from mixad.scalar.pushforward import pushforward

THREADS = 8
CALLS_PER_THREAD = 60
MAX_ACTIVE = 10
X = np.asarray([1.0, 2.0, 3.0])


@mixad.broadcast
def scaled(x, factor=2.0, *, shift=1.0):
    """Scale, then shift."""
    return x * factor + shift


@mixad.broadcast
def cell(z, c, f):
    if z > 0:
        return special.sigmoid(f) * c
    return c


@mixad.broadcast
def polar(r, t):
    return r * math.cos(t), r * math.sin(t)


def square(x):
    return x * x


# -- what is kept ------------------------------------------------------------------------------


def test_name_docstring_module_and_the_function_itself_are_kept() -> None:
    assert scaled.__name__ == "scaled"
    assert scaled.__qualname__ == "scaled"
    assert scaled.__doc__ == "Scale, then shift."
    assert scaled.__module__ == __name__
    assert scaled.__wrapped__(3.0) == 7.0
    assert repr(scaled) == "<mixad.broadcast scaled(x, factor, shift)>"


def test_signature_is_that_of_the_function() -> None:
    assert str(inspect.signature(scaled)) == "(x, factor=2.0, *, shift=1.0)"


def test_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(scaled)) is scaled


def test_copies_are_the_function_itself() -> None:
    assert copy.copy(scaled) is scaled
    assert copy.deepcopy({"f": scaled})["f"] is scaled


def test_hashable_and_weakly_referable() -> None:
    assert {scaled: 1}[scaled] == 1
    assert weakref.ref(scaled)() is scaled


# -- calling -----------------------------------------------------------------------------------


def test_defaults_keywords_and_keyword_only_arguments() -> None:
    np.testing.assert_array_equal(scaled(X), [3, 5, 7])
    np.testing.assert_array_equal(scaled(X, 3.0), [4, 7, 10])
    np.testing.assert_array_equal(scaled(X, shift=0.0), [2, 4, 6])
    np.testing.assert_array_equal(scaled(factor=X, x=X), [2, 5, 10])
    np.testing.assert_array_equal(mixad.grad(lambda x: scaled(x, shift=x).sum())(X), [3, 3, 3])


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, r"scaled\(\).*'x'"),
        ((X, X, X, X), {}, r"scaled\(\).*positional"),
        ((X, X, X), {}, r"scaled\(\).*positional"),
        ((X,), {"unknown": 1.0}, r"scaled\(\).*'unknown'"),
        ((X,), {"x": X}, r"scaled\(\).*'x'"),
    ],
)
def test_wrong_calls_are_type_errors_that_name_the_function(
    args: Any, kwargs: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        scaled(*args, **kwargs)


def test_plain_numbers_give_numbers() -> None:
    assert type(scaled(2.0)) is float
    assert scaled(2.0) == scaled.__wrapped__(2.0)
    assert type(mixad.broadcast(lambda n: n + 1)(2)) is int
    assert type(mixad.broadcast(lambda n: n > 1)(2)) is bool
    assert [type(v) for v in polar(1.0, 0.5)] == [float, float]
    assert isinstance(scaled(np.float32(2.0)), np.float32)


def test_several_outputs_are_a_tuple() -> None:
    x, y = polar(X, 0.5)
    np.testing.assert_allclose(x, X * math.cos(0.5), rtol=1e-15)
    np.testing.assert_allclose(y, X * math.sin(0.5), rtol=1e-15)
    assert isinstance(mixad.broadcast(lambda x: (x,))(X), tuple)


def test_outputs_share_no_memory() -> None:
    first, second = mixad.broadcast(lambda x: (x, x))(X)
    assert not np.shares_memory(first, second)
    assert not np.shares_memory(first, X)


def test_result_has_the_broadcast_shape_even_where_arguments_are_not_read() -> None:
    first = mixad.broadcast(lambda x, y: x)
    assert first(2.0, X).shape == (3,)
    assert first(X[:, None], X).shape == (3, 3)
    assert mixad.broadcast(lambda x: 1.0)(X).shape == (3,)


def test_function_without_parameters() -> None:
    assert mixad.broadcast(lambda: 3.0)() == 3.0


def test_decorating_twice_is_decorating_once() -> None:
    np.testing.assert_array_equal(mixad.broadcast(mixad.broadcast(square))(X), X * X)


def test_lambdas_on_one_line_are_told_apart() -> None:
    plus, times = mixad.broadcast(lambda x: x + 1), mixad.broadcast(lambda x: x * 10)
    np.testing.assert_array_equal(plus(X), X + 1)
    np.testing.assert_array_equal(times(X), X * 10)


# -- methods -----------------------------------------------------------------------------------


class Affine:
    offset = 1.0

    def __init__(self, slope: Any) -> None:
        self.slope = slope

    @mixad.broadcast
    def at(self, x):
        return self.slope * x + self.offset

    @mixad.broadcast
    def twice(self, x):
        return 2 * self.unshifted(x)

    def unshifted(self, x):
        return self.slope * x

    @staticmethod
    @mixad.broadcast
    def negated(x):
        return -x

    @classmethod
    @mixad.broadcast
    def shifted(cls, x):
        return x + cls.offset


def test_methods_read_the_attributes_of_their_instance_at_every_call() -> None:
    one, other = Affine(2.0), Affine(5.0)
    np.testing.assert_array_equal(one.at(X), 2 * X + 1)
    np.testing.assert_array_equal(other.at(X), 5 * X + 1)
    one.slope, one.offset = 3.0, 0.0
    np.testing.assert_array_equal(one.at(X), 3 * X)
    np.testing.assert_array_equal(other.at(X), 5 * X + 1)


def test_helper_methods_are_inlined_for_each_instance() -> None:
    np.testing.assert_array_equal(Affine(2.0).twice(X), 4 * X)
    np.testing.assert_array_equal(Affine(3.0).twice(X), 6 * X)


def test_static_and_class_methods() -> None:
    np.testing.assert_array_equal(Affine.negated(X), -X)
    np.testing.assert_array_equal(Affine(2.0).negated(X), -X)
    np.testing.assert_array_equal(Affine.shifted(X), X + 1)
    np.testing.assert_array_equal(Affine(2.0).shifted(x=X), X + 1)
    np.testing.assert_array_equal(mixad.broadcast(lambda x: Affine.shifted(x) * x)(X), (X + 1) * X)


def test_class_methods_read_the_attributes_of_the_class_they_are_called_on() -> None:
    class Lower(Affine):
        offset = -1.0

    np.testing.assert_array_equal(Lower.shifted(X), X - 1)
    assert mixad.grad(lambda x: (Lower.shifted(x) * x).sum())(X).tolist() == (2 * X - 1).tolist()


def test_gradient_through_an_attribute() -> None:
    assert mixad.grad(lambda slope: Affine(slope).at(X).sum())(2.0) == X.sum()
    np.testing.assert_array_equal(mixad.grad(lambda slope: Affine(slope).at(X).sum())(X), X)


def test_bound_methods_can_be_explained_and_differentiated() -> None:
    affine = Affine(2.0)
    np.testing.assert_array_equal(affine.at.duals(X).partials["x"], [2, 2, 2])
    np.testing.assert_array_equal(affine.at.with_options(chunk=1)(X), 2 * X + 1)
    assert affine.at.explain(X).chunks == (1,)


def test_bound_method_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    affine = Affine(2.0)
    affine.at(X)
    parses = count_parses(monkeypatch)
    affine.at(X)
    Affine(7.0).at(X)
    assert parses == []


@pytest.mark.slow
def test_instances_are_not_kept_alive() -> None:
    affine = Affine(2.0)
    affine.at(X)
    gone = weakref.ref(affine)
    del affine
    gc.collect()
    assert gone() is None


@pytest.mark.slow
def test_instances_whose_methods_call_each_other_share_programs_and_are_not_kept_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    np.testing.assert_array_equal(Affine(2.0).twice(X), 4 * X)
    np.testing.assert_array_equal(mixad.broadcast(Affine(2.0).twice)(X), 4 * X)
    parses = count_parses(monkeypatch)
    gone = []
    for slope in (3.0, 4.0, 5.0):
        affine = Affine(slope)
        np.testing.assert_array_equal(affine.twice(X), 2 * slope * X)
        np.testing.assert_array_equal(mixad.broadcast(affine.twice)(X), 2 * slope * X)
        gone.append(weakref.ref(affine))
    del affine
    gc.collect()
    assert parses == []
    assert [ref() for ref in gone] == [None] * 3


@pytest.mark.slow
def test_captured_objects_of_any_kind_are_not_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    class Thing:
        pass

    class Callable:
        def __call__(self, x):
            return x + 1

    class Things(list):
        pass

    def kernel(thing: Any) -> Any:
        return mixad.broadcast(lambda x: x if thing is None else x + 1)

    gone = []
    for make in (Thing, Callable, Things, lambda: functools.partial(square)):
        for _ in range(3):
            thing = make()
            np.testing.assert_array_equal(kernel(thing)(X), X + 1)
            gone.append(weakref.ref(thing))
        del thing
    gc.collect()
    assert [ref() for ref in gone] == [None] * 12
    parses = count_parses(monkeypatch)
    for thing in (Thing(), Callable(), Things()):
        np.testing.assert_array_equal(kernel(thing)(X), X + 1)
    assert parses == []
    np.testing.assert_array_equal(kernel(None)(X), X)


def test_instances_within_one_kernel_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def difference(a: Affine, b: Affine) -> Any:
        return mixad.broadcast(lambda x: a.at(x) - b.at(x))(X)

    def same(a: Any, b: Any) -> Any:
        return mixad.broadcast(lambda x: x if a is b else -x)(X)

    one, other = Affine(2.0), Affine(5.0)
    for _ in range(2):
        np.testing.assert_array_equal(difference(one, one), 0 * X)
        np.testing.assert_array_equal(difference(one, other), -3 * X)
        np.testing.assert_array_equal(difference(other, one), 3 * X)
        np.testing.assert_array_equal(same(one, one), X)
        np.testing.assert_array_equal(same(one, other), -X)
        np.testing.assert_array_equal(same(other, other), X)
    parses = count_parses(monkeypatch)
    np.testing.assert_array_equal(difference(Affine(3.0), Affine(1.0)), 2 * X)
    assert parses == []


def test_an_instance_with_another_method_has_a_program_of_its_own() -> None:
    affine = Affine(2.0)
    np.testing.assert_array_equal(affine.twice(X), 4 * X)
    affine.unshifted = lambda x: x - 1
    np.testing.assert_array_equal(affine.twice(X), 2 * (X - 1))


# -- helpers and captures ----------------------------------------------------------------------


def count_parses(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that grows by one for each program that is made of a function."""
    made: list[Any] = []
    original = specialise.parse

    def counted(*args: Any, **kwargs: Any) -> Any:
        made.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(specialise, "parse", counted)
    return made


def test_captured_number_that_changes_is_not_compiled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scale = 1.0
    kernel = mixad.broadcast(lambda x: x * scale)
    kernel(X)
    parses = count_parses(monkeypatch)
    for scale in (2.0, 3.0, 4.5, math.inf):
        np.testing.assert_array_equal(kernel(X), X * scale)
    assert parses == []
    scale = 2
    kernel(X)
    assert len(parses) == 1  # another type


def test_function_that_is_made_again_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def result(scale: Any) -> Any:
        return mixad.broadcast(lambda x: x * scale)(X)

    result(2.0)
    parses = count_parses(monkeypatch)
    np.testing.assert_array_equal(result(3.0), 3 * X)
    assert parses == []
    np.testing.assert_array_equal(result(X), X * X)
    np.testing.assert_array_equal(mixad.grad(lambda s: result(s).sum())(2.0), X.sum())


def test_functions_with_equal_code_and_other_defaults_or_globals_are_told_apart() -> None:
    def scaling(factor: Any) -> Any:
        def f(x, factor=factor):
            return x * factor

        return mixad.broadcast(f)

    np.testing.assert_array_equal(scaling(2.0)(X), 2 * X)
    np.testing.assert_array_equal(scaling(5.0)(X), 5 * X)

    def applying(inner: Any) -> Any:
        return mixad.broadcast(lambda x: inner(x))

    np.testing.assert_array_equal(applying(lambda x: x + 1)(X), X + 1)
    np.testing.assert_array_equal(applying(lambda x: x - 1)(X), X - 1)


def test_rank_and_strides_are_not_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = mixad.broadcast(lambda x: x + 1)
    kernel(X)
    parses = count_parses(monkeypatch)
    for x in (X[:, None], X[::-1], np.ones((2, 3, 4)).T, np.asarray(1.0)):
        np.testing.assert_array_equal(kernel(x), x + 1)
    assert parses == []


def test_captured_tracer_is_differentiated() -> None:
    def loss(w: Any) -> Any:
        return mixad.broadcast(lambda x: x * w * w)(X).sum()

    assert mixad.grad(loss)(3.0) == 6 * X.sum()
    np.testing.assert_array_equal(mixad.grad(loss)(X), 2 * X * X)
    second = mixad.grad(lambda w: mixad.grad(loss)(w).sum())(X)
    np.testing.assert_array_equal(second, 2 * X)


def test_captured_tracer_beside_an_active_argument() -> None:
    def loss(w: Any, x: Any) -> Any:
        return mixad.broadcast(lambda x: x * w)(x).sum()

    dw, dx = mixad.grad(loss, argnums=(0, 1))(np.asarray(2.0), X)
    assert dw == X.sum()
    np.testing.assert_array_equal(dx, [2, 2, 2])


def test_captured_array_is_broadcast() -> None:
    table = np.asarray([[10.0], [20.0]])
    got = mixad.broadcast(lambda x: x + table)(X)
    np.testing.assert_array_equal(got, X + table)


def test_captured_array_is_indexed() -> None:
    table = np.asarray([10.0, 20.0, 30.0])
    kernel = mixad.broadcast(lambda i: table[i])
    np.testing.assert_array_equal(kernel(np.asarray([2, 0, -1])), [30, 10, 30])
    with pytest.raises(IndexError, match="'table'"):
        kernel(np.asarray([3]))


def test_gradient_of_an_array_is_refused_where_a_loop_reads_it() -> None:
    def loss(table: Any) -> Any:
        @mixad.broadcast
        def looked_up(x, i):
            scaled = 2 * x
            while scaled < 10:
                scaled = scaled * table[i]  # here
            return scaled

        return looked_up(X, 1).sum()

    with pytest.raises(KernelGradientError, match=r"looked_up: .*'table'") as refused:
        mixad.grad(loss)(np.ones(3))
    assert f'File "{__file__}", line {loss.__code__.co_firstlineno + 5}' in str(refused.value)
    assert "scaled = scaled * table[i]  # here" in str(refused.value)


def test_decorated_function_inside_another_one_is_inlined() -> None:
    inner = mixad.broadcast(lambda x: x * x)
    outer = mixad.broadcast(lambda x: inner(x) + 1)
    np.testing.assert_array_equal(outer(X), X * X + 1)
    np.testing.assert_array_equal(mixad.grad(lambda x: outer(x).sum())(X), 2 * X)
    assert [line.split()[2] for line in outer.source(X).splitlines() if " = " in line
            and "#" not in line] == ["mul", "add"]  # fmt: skip


def test_decorated_method_inside_a_kernel() -> None:
    affine = Affine(4.0)
    np.testing.assert_array_equal(mixad.broadcast(lambda x: affine.at(x))(X), 4 * X + 1)


def test_cached_helper_is_inlined() -> None:
    @functools.lru_cache
    def tripled(x):
        return 3 * x

    np.testing.assert_array_equal(mixad.broadcast(lambda x: tripled(x))(X), 3 * X)


def test_wrapper_that_changes_the_result_is_not_skipped() -> None:
    @functools.wraps(square)
    def shifted(x):
        return square(x) + 1

    np.testing.assert_array_equal(mixad.broadcast(lambda x: shifted(x))(X), X * X + 1)
    np.testing.assert_array_equal(mixad.broadcast(shifted)(X), X * X + 1)


def test_kernel_mapped_over_tracers_of_a_loop() -> None:
    kernel = mixad.broadcast(square)
    np.testing.assert_array_equal(mixad.grad(lambda x: sum(kernel(v) for v in x))(X), 2 * X)


def test_kernels_chain_without_storing_between_them() -> None:
    kernel = mixad.broadcast(lambda x: special.sin(x))
    np.testing.assert_allclose(
        mixad.grad(lambda x: kernel(kernel(x) * x).sum())(X),
        np.cos(np.sin(X) * X) * (np.cos(X) * X + np.sin(X)),
        rtol=1e-14,
    )


def test_captured_type_that_is_not_computed_in_is_refused() -> None:
    dates = np.zeros(3, "M8[s]")
    with pytest.raises(KernelTypeError, match=r"<lambda>.*outside.*datetime64\[s\]\n.*Instead"):
        mixad.broadcast(lambda x: x * dates)(X)


# -- duals -------------------------------------------------------------------------------------


def test_duals_are_of_all_arrays_of_floats_by_default() -> None:
    duals = cell.duals(np.asarray([1, 0, 1]), X, X)
    assert list(duals.partials) == ["c", "f"]
    assert list(cell.duals(1.0, X, 2.0).partials) == ["c"]
    assert list(cell.duals(1.0, 2.0, 3.0).partials) == ["z", "c", "f"]


def test_duals_of_several_outputs() -> None:
    x, y = polar.duals(X, 0.5, wrt=("r", "t"))
    np.testing.assert_allclose(x.partials["r"], np.full(3, math.cos(0.5)), rtol=1e-15)
    np.testing.assert_allclose(y.partials["t"], X * math.cos(0.5), rtol=1e-15)


def test_static_zeros_are_arrays_of_zeros() -> None:
    np.testing.assert_array_equal(cell.duals(X, X, X).partials["z"], np.zeros(3))


def test_one_name_stands_for_itself() -> None:
    assert list(cell.duals(X, X, X, wrt="c").partials) == ["c"]
    long_names = mixad.broadcast(lambda first, second: first * second)
    assert list(long_names.duals(X, X, wrt="first").partials) == ["first"]
    assert long_names.explain(X, X, wrt="first").chunks == (1,)


def test_outputs_that_are_no_floats_have_no_partials() -> None:
    value, sign = mixad.broadcast(lambda x: (x * x, x > 2)).duals(X)
    assert list(value.partials) == ["x"]
    assert dict(sign.partials) == {}
    np.testing.assert_array_equal(sign.primal, X > 2)


def test_duals_inside_a_gradient_are_differentiated() -> None:
    kernel = mixad.broadcast(lambda x: x**3)
    got = mixad.grad(lambda x: kernel.duals(x).partials["x"].sum())(X)
    np.testing.assert_allclose(got, 6 * X, rtol=1e-15)


@pytest.mark.parametrize("wrt", [("q",), ("x", "q"), ("n",), "factors"])
def test_wrt_that_names_no_float_is_refused(wrt: Any) -> None:
    kernel = mixad.broadcast(lambda x, n: x * n)
    for use in (kernel.duals, kernel.explain, kernel.source):
        with pytest.raises(KernelGradientError, match=r"wrt names .*floats.*\n.*name some of 'x'"):
            use(X, np.asarray([1, 2, 3]), wrt=wrt)


@pytest.mark.parametrize("wrt", [0, (0,), ["x", 1], X, abs])
def test_wrt_that_is_no_names_is_refused(wrt: Any) -> None:
    kernel = mixad.broadcast(square)
    for use in (kernel.duals, kernel.explain, kernel.source):
        with pytest.raises(TypeError, match="wrt must be the name of a parameter or a sequence"):
            use(X, wrt=wrt)


def test_wrt_may_be_any_iterable_of_names() -> None:
    for wrt in (["x"], {"x": None}, iter(["x"]), ("x", "x")):
        assert list(mixad.broadcast(square).duals(X, wrt=wrt).partials) == ["x"]


def test_more_names_than_a_chunk_carries_are_refused() -> None:
    kernel = mixad.broadcast(
        lambda a, b, c, d, e, f, g, h, i, j, k: a * b * c * d * e * f + g * h * i * j * k
    )
    arguments = [X + k for k in range(MAX_ACTIVE + 1)]
    with pytest.raises(KernelGradientError, match=r"11 inputs.*10 partials\n.*Instead"):
        kernel.duals(*arguments)
    ten = kernel.duals(*arguments, wrt=tuple("abcdefghij"))
    assert len(ten.partials) == MAX_ACTIVE
    gradients = mixad.grad(lambda *a: kernel(*a).sum(), argnums=range(MAX_ACTIVE + 1))(*arguments)
    for partial, gradient in zip(ten.partials.values(), gradients, strict=False):
        np.testing.assert_array_equal(partial, gradient)
    np.testing.assert_allclose(gradients[-1], np.prod(arguments[6:10], axis=0), rtol=1e-14)


@pytest.mark.parametrize(("chunk", "widths"), [(1, [1] * 5), (2, [2, 2, 1]), (3, [3, 2]), (5, [5])])
def test_duals_are_computed_in_passes_of_the_chunk_that_was_asked_for(
    chunk: int, widths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def recorded(program: Any, wrt: Any) -> Any:
        seen.append(len(wrt))
        return pushforward(program, wrt)

    monkeypatch.setattr(duals, "pushforward", recorded)
    duals._dual_program.cache_clear()
    kernel = mixad.broadcast(chunk=chunk)(lambda a, b, c, d, e: (a * b * c * d * e, a > b, a - e))
    arguments = [X + k for k in range(5)]
    product, comparison, difference = kernel.duals(*arguments)
    assert seen == widths
    assert list(product.partials) == list("abcde")
    for k, name in enumerate("abcde"):
        others = np.prod(arguments[:k] + arguments[k + 1 :], axis=0)
        np.testing.assert_allclose(product.partials[name], others, rtol=1e-14)
        expected = np.full_like(X, {"a": 1, "e": -1}.get(name, 0))
        np.testing.assert_array_equal(difference.partials[name], expected)
    np.testing.assert_array_equal(difference.primal, arguments[0] - arguments[4])
    assert not comparison.partials


# -- options -----------------------------------------------------------------------------------


@pytest.mark.rows(
    ("option", "message"),
    [
        ({"strategy": "sideways"}, r"strategy must be one of 'auto', 'forward'.*'sideways'"),
        ({"strategy": None}, "strategy must be one of"),
        ({"strategy": np.asarray(["auto"])}, "strategy must be one of"),
        ({"placement": ["forward"]}, r"placement must be one of .*\['forward'\]"),
        ({"placement": "sideways"}, "placement must be one of 'auto', 'forward', 'reverse'"),
        ({"chunk": 0}, "chunk must be None or an int from 1 to 10, not 0"),
        ({"chunk": 11}, "from 1 to 10, not 11"),
        ({"chunk": 2.5}, "an int from 1 to 10, not 2.5"),
        ({"chunk": 2.0}, "not 2.0"),
        ({"chunk": "2"}, "not '2'"),
        ({"chunk": True}, "chunk must be None or an int from 1 to 10, not True"),
        ({"chunk": np.asarray(2)}, "an int .*not array"),
        ({"chunk": np.uint8(2)}, r"an int .*not np.uint8\(2\)"),
        ({"backend": 3}, "backend must be None or the name of a backend, such as 'cpu', not 3"),
        ({"backend": ""}, "backend must be .* not ''"),
        ({"placement": "forward", "strategy": "reverse"}, "leave one of both at 'auto'"),
    ],
)
def test_bad_options_are_value_errors_at_once(option: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mixad.broadcast(**option)
    with pytest.raises(ConfigurationError, match=message) as caught:
        scaled.with_options(**option)
    assert isinstance(caught.value, ValueError)


def test_unknown_options_are_type_errors() -> None:
    with pytest.raises(
        TypeError, match="with_options takes strategy, placement, chunk, backend, loops, signature"
    ):
        scaled.with_options(threads=3)
    with pytest.raises(TypeError, match="threads"):
        mixad.broadcast(threads=3)


def test_unknown_backend_names_those_that_exist() -> None:
    with pytest.raises(BackendError, match=r"'abacus'.*cpu.*reference"):
        scaled.with_options(backend="abacus")(X)


def test_options_on_the_decorator_and_later() -> None:
    @mixad.broadcast(chunk=1, backend="cpu")
    def product(x, y):
        return x * y

    assert product.explain(X, X).chunks == (1, 1)
    changed = product.with_options(chunk=2)
    assert changed.explain(X, X).chunks == (2,)
    assert product.explain(X, X).chunks == (1, 1)
    assert changed.__name__ == "product"
    np.testing.assert_array_equal(changed(X, X), X * X)


@pytest.mark.parametrize(
    ("chunk", "chunks"),
    [(None, (6, 5)), (10, (6, 5)), (5, (4, 4, 3)), (4, (4, 4, 3)), (1, (1,) * 11)],
)
def test_inputs_are_split_evenly(chunk: int | None, chunks: tuple[int, ...]) -> None:
    kernel = mixad.broadcast(chunk=chunk, strategy="forward")(
        lambda a, b, c, d, e, f, g, h, i, j, k: a * b * c * d * e * f * g * h * i * j * k
    )
    assert kernel.explain(*[X] * 11).chunks == chunks


def test_options_reach_the_backward_pass() -> None:
    product = mixad.broadcast(lambda x, y: x * y)
    chunked = product.with_options(chunk=1)
    for f in (product, chunked):
        _, gradients = mixad.value_and_vjp(f, (X, X + 1), np.ones(3))
        np.testing.assert_array_equal(gradients[0], X + 1)
    chunked.explain(X, X)
    assert chunked.explain(X, X).cached


def test_reference_backend_gives_the_same() -> None:
    by_reference = cell.with_options(backend="reference")
    z = np.asarray([1.0, -1.0, 1.0])
    np.testing.assert_allclose(by_reference(z, X, X), cell(z, X, X), rtol=1e-15)
    got, want = (
        mixad.value_and_vjp(lambda c, f: kernel(z, c, f), (X, X), np.ones(3))  # noqa: B023
        for kernel in (by_reference, cell)
    )
    np.testing.assert_allclose(got[0], want[0], rtol=1e-15)
    for a, b in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


@pytest.mark.rows(
    "what", [3, None, "text", abs, np.sin, int, functools.partial(square), special.sin]
)
def test_what_has_no_source_is_refused_with_the_way_out(what: Any) -> None:
    with pytest.raises(KernelSyntaxError, match=r"has no source|not a Python function") as caught:
        mixad.broadcast(what) if what is not None else mixad.BroadcastFunction(what)
    assert caught.value.hint


# -- refusals of the function ------------------------------------------------------------------


def test_refusal_names_file_line_and_way_out() -> None:
    def sets(x):
        return {x, 1.0}

    with pytest.raises(KernelError) as caught:
        mixad.broadcast(sets)(X)
    error = caught.value
    assert error.location.filename == __file__
    assert error.location.line == inspect.getsourcelines(sets)[1] + 1
    assert "return {x, 1.0}" in str(error)
    assert "^^^^^^" in str(error)
    assert "Instead: use a tuple" in str(error)


def test_refused_call_leaves_the_function_usable() -> None:
    kernel = mixad.broadcast(lambda x: x & 1 if x > 0 else x)
    with pytest.raises(KernelTypeError):
        kernel(X)
    np.testing.assert_array_equal(kernel(np.asarray([3, 2, -5])), [1, 0, -5])


@pytest.mark.parametrize("arguments", [(), (X,), (X, X), (X, X, X)])
def test_variable_numbers_of_arguments_are_refused(arguments: Any) -> None:
    with pytest.raises(KernelError, match=r"`\*xs` takes any number of arguments"):
        mixad.broadcast(lambda *xs: xs[0])(*arguments)
    with pytest.raises(KernelError, match=r"`\*\*options` takes any number of arguments"):
        mixad.broadcast(lambda x, **options: x)(*arguments, scale=2.0)


def test_coroutines_and_generators_are_refused_as_what_they_are() -> None:
    async def waits(x: Any) -> Any:
        return x

    def yields(x: Any) -> Any:
        yield x

    with pytest.raises(KernelError, match=r"'waits' is a coroutine \(`async def`\)"):
        mixad.broadcast(waits)
    with pytest.raises(KernelError, match="generators are not supported in a kernel"):
        mixad.broadcast(yields)(X)


# -- threads -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_threads_call_one_kernel_with_different_shapes() -> None:
    kernel = mixad.broadcast(lambda x, y: x * special.exp(-y) if x > y else y)
    start = threading.Barrier(THREADS)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        start.wait()  # the first calls, which compile, are made at once
        for _ in range(CALLS_PER_THREAD):
            rows, columns = rng.integers(1, 90, 2)
            x = rng.uniform(-1, 1, (rows, columns))
            y = rng.uniform(-1, 1, columns)
            want = np.where(x > y, x * np.exp(-y), np.broadcast_to(y, x.shape))
            value, (dx, dy) = mixad.value_and_vjp(kernel, (x, y), np.ones(x.shape))
            np.testing.assert_allclose(kernel(x, y), want, rtol=1e-14)
            np.testing.assert_allclose(value, want, rtol=1e-14)
            np.testing.assert_allclose(dx, np.where(x > y, np.exp(-y), 0), rtol=1e-14)
            slope = np.where(x > y, -x * np.exp(-y), 1.0).sum(0)
            np.testing.assert_allclose(dy, slope, rtol=1e-11, atol=1e-13)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(work, seed) for seed in range(THREADS)]:
            done.result()


def test_threads_change_a_captured_number_each_for_itself() -> None:
    def work(scale: float) -> None:
        kernel = mixad.broadcast(lambda x: x * scale)
        for _ in range(CALLS_PER_THREAD):
            np.testing.assert_array_equal(kernel(X), X * scale)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(work, float(k)) for k in range(THREADS)]:
            done.result()
