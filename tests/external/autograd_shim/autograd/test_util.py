"""Checks of derivatives against differences, as autograd's tests call them."""

from __future__ import annotations

from itertools import product
from typing import Any

from autograd.core import make_jvp, make_vjp, vspace
from autograd.wrap_util import get_name, unary_to_nary

STEP = 1e-6
TOLERANCE = 1e-6


def scalar_close(a: Any, b: Any) -> bool:
    """Tell whether two numbers are close."""
    return abs(a - b) < TOLERANCE or abs(a - b) / abs(a + b) < TOLERANCE


def check_equivalent(x: Any, y: Any) -> None:
    """Check that two values have one structure and are close."""
    assert vspace(x) == vspace(y), f"{vspace(x)} is not {vspace(y)}"
    v = vspace(x).randn()
    found, wanted = vspace(x).inner_prod(x, v), vspace(y).inner_prod(y, v)
    assert scalar_close(found, wanted), f"{x} is not {y}"


def _change(fun: Any, x: Any, v: Any) -> Any:
    """Return how the value of a function changes in a direction, by differences."""
    inputs, results = vspace(x), vspace(fun(x))
    after = fun(inputs.add(x, inputs.scalar_mul(v, STEP / 2)))
    before = fun(inputs.add(x, inputs.scalar_mul(v, -STEP / 2)))
    return results.scalar_mul(results.add(after, results.scalar_mul(before, -1.0)), 1 / STEP)


def _check_forward(fun: Any, x: Any) -> None:
    v = vspace(x).randn()
    check_equivalent(make_jvp(fun, x)(v)[1], _change(fun, x, v))


def _check_reverse(fun: Any, x: Any) -> None:
    pullback, value = make_vjp(fun, x)
    v, g = vspace(x).randn(), vspace(value).randn()
    pulled = pullback(g)
    assert vspace(pulled) == vspace(x), f"{vspace(pulled)} is not {vspace(x)}"
    found = vspace(x).inner_prod(pulled, v)
    wanted = vspace(value).inner_prod(g, _change(fun, x, v))
    assert scalar_close(found, wanted), (
        f"(VJP) check of {get_name(fun)} failed: {found}, by differences {wanted}, at {x}"
    )


@unary_to_nary
def check_grads(fun: Any, x: Any, modes: Any = ("fwd", "rev"), order: int = 2) -> None:
    """Check the derivatives of a function up to an order, by both modes in any mixture."""
    if "fwd" in modes:
        _check_forward(fun, x)
        if order > 1:
            pushed = lambda x, v: make_jvp(fun, x)(v)[1]  # noqa: E731
            check_grads(pushed, (0, 1), modes, order - 1)(x, vspace(x).randn())
    if "rev" in modes:
        _check_reverse(fun, x)
        if order > 1:
            pulled = lambda x, g: make_vjp(fun, x)[0](g)  # noqa: E731
            pulled.__name__ = f"vjp_{get_name(fun)}"
            check_grads(pulled, (0, 1), modes, order - 1)(x, vspace(fun(x)).randn())


def combo_check(fun: Any, *options: Any, **named: Any) -> Any:
    """Check the derivatives of a function for all combinations of arguments."""

    def check(*args: Any, **kwargs: Any) -> None:
        for given in product(*args):
            for values in product(*kwargs.values()):
                check_grads(fun, *options, **named)(
                    *given, **dict(zip(kwargs, values, strict=True))
                )

    return check
