"""Transforms inside of transforms: closures, captured values, unused inputs; torch.func is asked.

Every program is written once, over a system: mixad with one of its array libraries, or torch.func.
Traced values stand on the left of arrays: array_api_strict leaves nothing to the right operand.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import array_api_strict
import numpy as np
import pytest

import mixad

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),  # torch's own
    pytest.mark.filterwarnings("ignore:.*does not depend on the arguments:UserWarning"),
]

VALUES = {
    "x": np.asarray([0.5, -1.5, 2.0]),
    "v": np.asarray([1.0, 0.25, -3.0]),
    "m": np.asarray([[0.5, 1.0, -1.0], [2.0, 0.5, 0.25], [-0.5, 1.5, 1.0]]),
    "s": np.asarray(0.75),
}


@dataclass(frozen=True)
class System:
    """What a program needs of one system."""

    grad: Callable[..., Any]
    vjp: Callable[..., Any]
    stop: Callable[[Any], Any]
    kernel: Callable[[Callable[..., Any]], Callable[..., Any]]
    array: Callable[[Any], Any]

    def values(self) -> dict[str, Any]:
        return {name: self.array(value) for name, value in VALUES.items()}


def ours(library: str) -> System:
    array = {"numpy": np.array, "strict": array_api_strict.asarray, "torch": _torch().tensor}
    return System(mixad.grad, mixad.vjp, mixad.stop_gradient, mixad.broadcast, array[library])


def theirs() -> System:
    func = _torch().func
    return System(
        func.grad, func.vjp, lambda t: t.detach(), lambda f: f, lambda a: _torch().tensor(a)
    )


def _torch() -> Any:
    import torch

    return torch


def as_numpy(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else np.from_dlpack(np.asarray(value))


# -- the programs: each returns arrays -----------------------------------------------------------


def confusion(ad: System, x: Any, **_: Any) -> Any:
    """Siskind and Pearlmutter 2005: d/dx (x · d/dy (x + y)) is 1, not 2."""
    return ad.grad(lambda x: x * ad.grad(lambda y: x + y)(x * 0.0 + 1.0))(x[0])


def confusion_of_products(ad: System, x: Any, v: Any, **_: Any) -> Any:
    inner = lambda x: ad.grad(lambda y: (x * y * y * x).sum())(x + v)  # noqa: E731
    return ad.grad(lambda x: (x * inner(x)).sum())(x)


def at_the_same_point(ad: System, x: Any, **_: Any) -> Any:
    return ad.grad(lambda x: ad.grad(lambda y: (x * y * y).sum())(x).sum())(x)


def three_levels(ad: System, s: Any, **_: Any) -> Any:
    def outer(a: Any) -> Any:
        def middle(b: Any) -> Any:
            return a * ad.grad(lambda c: a * b * c * c * c + b * b * a)(a * b)

        return ad.grad(middle)(a * a) * a

    return ad.grad(outer)(s)


def four_times(ad: System, s: Any, **_: Any) -> Any:
    f = ad.kernel(lambda x: x * x * x * x * x / (1.0 + x * x))
    for _level in range(4):
        f = ad.grad(f)
    return f(s)


def hessian_times_vector(ad: System, x: Any, v: Any, m: Any, **_: Any) -> Any:
    f = lambda x: ((x @ m) * (x @ m) * x).sum() / (1.0 + (x * x).sum())  # noqa: E731
    return ad.grad(lambda x: (ad.grad(f)(x) * v).sum())(x)


def hessian_by_rows(ad: System, x: Any, m: Any, **_: Any) -> Any:
    f = lambda x: (((x * x * x) @ m) @ x) + x[0] * x[2]  # noqa: E731
    rows = [ad.grad(lambda x, i=i: ad.grad(f)(x)[i])(x) for i in range(3)]
    return tuple(rows)


def captured_by_a_kernel(ad: System, x: Any, v: Any, **_: Any) -> Any:
    def outer(x: Any) -> Any:
        weigh = ad.kernel(lambda y: y * y * x + v)
        return (weigh(v) * x).sum()

    return ad.grad(outer)(x)


def captured_of_two_levels(ad: System, x: Any, v: Any, s: Any, **_: Any) -> Any:
    def outer(x: Any) -> Any:
        def inner(y: Any) -> Any:
            blend = ad.kernel(lambda z: x * y * z + y / (1.0 + x * x) + s)
            return (blend(x + y) * blend(v)).sum()

        return (ad.grad(inner)(v) * x).sum()

    return ad.grad(outer)(x)


def captured_number(ad: System, s: Any, v: Any, **_: Any) -> Any:
    def outer(s: Any) -> Any:
        scale = ad.kernel(lambda y: y * y * s * s)
        return ad.grad(lambda y: scale(y).sum())(v).sum() * s

    return ad.grad(outer)(s)


def stopped_inside(ad: System, x: Any, **_: Any) -> Any:
    def outer(x: Any) -> Any:
        inner = ad.grad(lambda y: (y * y * ad.stop(x) * x).sum())
        return (inner(x) * ad.stop(x * x)).sum()

    return ad.grad(outer)(x)


def both_arguments(ad: System, x: Any, v: Any, **_: Any) -> Any:
    def outer(x: Any) -> Any:
        a, b = ad.grad(lambda p, q: (p * q * q + p * p * x).sum(), (0, 1))(x, v)
        return (a * b * x).sum()

    return ad.grad(outer)(x)


def handed_over(ad: System, x: Any, v: Any, **_: Any) -> Any:
    """Aux of the inner transform goes on as a value of the outer one."""

    def outer(x: Any) -> Any:
        inner = ad.grad(lambda y: ((y * x * y).sum(), y * x), has_aux=True)
        gradient, aux = inner(x * v)
        return (gradient * aux).sum()

    return ad.grad(outer)(x)


def ignores_its_argument(ad: System, x: Any, v: Any, **_: Any) -> Any:
    outer = lambda x: (ad.grad(lambda y: (x * x).sum())(v) + x * x).sum()  # noqa: E731
    return ad.grad(outer)(x)


def unused(ad: System, x: Any, v: Any, m: Any, **_: Any) -> Any:
    return ad.grad(lambda x, v, m: (x * x).sum(), (0, 1, 2))(x, v, m)


def unused_by_the_outer(ad: System, x: Any, v: Any, **_: Any) -> Any:
    f = lambda x, v: ad.grad(lambda y: (y * y * y).sum())(x).sum()  # noqa: E731
    return ad.grad(f, (0, 1))(x, v)


def unused_in_a_kernel(ad: System, x: Any, v: Any, **_: Any) -> Any:
    first = ad.kernel(lambda a, b: a * a)
    return ad.grad(lambda x, v: first(x, v).sum(), (0, 1))(x, v)


def cancelled(ad: System, x: Any, **_: Any) -> Any:
    f = lambda x: (x * x - x * x).sum() + (x - x).sum()  # noqa: E731
    return ad.grad(f)(x), ad.grad(lambda x: ad.grad(f)(x).sum() * x[0])(x)


def trees(ad: System, x: Any, m: Any, **_: Any) -> Any:
    def loss(w: Any) -> Any:
        inner = ad.grad(lambda z: ((w["m"] @ z) * w["b"][0]).sum())(w["b"][1])
        return (inner * w["b"][1] * w["b"][0]).sum()

    gradient = ad.grad(loss)({"m": m, "b": (x, x * 2.0)})
    return gradient["m"], *gradient["b"]


def pullback_outside(ad: System, x: Any, v: Any, **_: Any) -> Any:
    _, pull = ad.vjp(lambda x: x * x * v, x)
    return ad.grad(lambda c: (pull(c * c)[0] * c).sum())(v)


def pullback_of_a_tracer(ad: System, x: Any, v: Any, **_: Any) -> Any:
    def outer(x: Any) -> Any:
        y, pull = ad.vjp(lambda z: z * z * x, x * v)
        return (pull(x * y)[0] * pull(v)[0]).sum()

    return ad.grad(outer)(x)


def pullback_of_a_pullback(ad: System, x: Any, v: Any, **_: Any) -> Any:
    _, pull = ad.vjp(lambda x: ad.vjp(lambda y: y * y * y, x)[1](x * v)[0], x)
    return pull(v)


def newton(ad: System, s: Any, **_: Any) -> Any:
    """Differentiate through steps that are made of derivatives."""

    def root(a: Any) -> Any:
        z = a * 0.0 + 1.5
        for _step in range(3):
            f = lambda z: z * z * z - a  # noqa: E731
            z = z - f(z) / ad.grad(f)(z)
        return z

    return root(s), ad.grad(root)(s), ad.grad(ad.grad(root))(s)


def inner_descent(ad: System, x: Any, v: Any, m: Any, **_: Any) -> Any:
    """A learned learning rate: the outer gradient goes through three inner steps."""

    def trained(rate: Any, start: Any) -> Any:
        w = start
        loss = lambda w: ((w @ m - v) ** 2).mean()  # noqa: E731
        for _step in range(3):
            w = w - rate * ad.grad(loss)(w)
        return loss(w)

    return ad.grad(trained, (0, 1))(x * x * 0.1, x)


def broadcast_between_levels(ad: System, x: Any, m: Any, s: Any, **_: Any) -> Any:
    def outer(s: Any, x: Any) -> Any:
        inner = ad.grad(lambda t: ((t * m + x.reshape((3, 1)) * s) * (t * m[0, :])).sum())
        return (inner(s) * x * s).sum()

    return ad.grad(outer, (0, 1))(s, x)


PROGRAMS = [
    confusion, confusion_of_products, at_the_same_point, three_levels, four_times,
    hessian_times_vector, hessian_by_rows, captured_by_a_kernel, captured_of_two_levels,
    captured_number, stopped_inside, both_arguments, handed_over, ignores_its_argument, unused,
    unused_by_the_outer, unused_in_a_kernel, cancelled, trees, pullback_outside,
    pullback_of_a_tracer, pullback_of_a_pullback, newton, inner_descent, broadcast_between_levels,
]  # fmt: skip


@pytest.mark.rows("library", ["numpy", "strict", "torch"])
@pytest.mark.rows("program", PROGRAMS, ids=lambda program: program.__name__)
def test_nested_transforms_are_those_of_torch(program: Any, library: str) -> None:
    found = program(ad := ours(library), **ad.values())
    want = program(ad := theirs(), **ad.values())
    found, want = ((r if isinstance(r, tuple) else (r,)) for r in (found, want))
    for mine, other in zip(found, want, strict=True):
        mine, other = as_numpy(mine), as_numpy(other)
        assert mine.shape == other.shape
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, rtol=1e-11, atol=1e-13)
