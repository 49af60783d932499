"""autograd's operators, each made of mixad's `vjp` and `jvp`."""

from __future__ import annotations

from typing import Any

import numpy as np

import mixad
from autograd import core
from autograd.core import vspace
from autograd.wrap_util import unary_to_nary

make_vjp = unary_to_nary(core.make_vjp)
make_jvp = unary_to_nary(core.make_jvp)
checkpoint = mixad.checkpoint


def _scalar_vjp(fun: Any, x: Any) -> tuple[Any, Any]:
    pullback, value = core.make_vjp(fun, x)
    if vspace(value).size != 1:
        raise TypeError("grad of what is no real number")
    return pullback, value


@unary_to_nary
def grad(fun: Any, x: Any) -> Any:
    """
    Returns a function which gives the gradient of `fun`."""
    pullback, value = _scalar_vjp(fun, x)
    return pullback(vspace(value).ones())


@unary_to_nary
def value_and_grad(fun: Any, x: Any) -> Any:
    pullback, value = _scalar_vjp(fun, x)
    return value, pullback(vspace(value).ones())


@unary_to_nary
def elementwise_grad(fun: Any, x: Any) -> Any:
    pullback, value = core.make_vjp(fun, x)
    if vspace(value).iscomplex:
        raise TypeError("elementwise_grad of complex results")
    return pullback(vspace(value).ones())


@unary_to_nary
def deriv(fun: Any, x: Any) -> Any:
    return core.make_jvp(fun, x)(vspace(x).ones())[1]


@unary_to_nary
def jacobian(fun: Any, x: Any) -> Any:
    pullback, value = core.make_vjp(fun, x)
    rows = [pullback(unit) for unit in vspace(value).standard_basis()]
    return np.reshape(np.stack(rows), np.shape(value) + np.shape(x))


@unary_to_nary
def holomorphic_grad(fun: Any, x: Any) -> Any:
    return np.conj(grad(lambda x: np.real(fun(x)))(x))


@unary_to_nary
def hessian(fun: Any, x: Any) -> Any:
    return jacobian(jacobian(fun))(x)


@unary_to_nary
def make_hvp(fun: Any, x: Any) -> Any:
    return core.make_vjp(grad(fun), x)


@unary_to_nary
def grad_and_aux(fun: Any, x: Any) -> Any:
    return mixad.grad(fun, has_aux=True)(x)


def hessian_tensor_product(fun: Any, argnum: int = 0) -> Any:
    def product(*args: Any) -> Any:
        *args, vector = args
        return np.tensordot(grad(fun, argnum)(*args), vector, np.ndim(vector))

    return grad(product, argnum)


def tensor_jacobian_product(fun: Any, argnum: int = 0) -> Any:
    def product(*args: Any) -> Any:
        *args, vector = args
        return np.tensordot(vector, fun(*args), np.ndim(vector))

    return jacobian(product, argnum)


def make_ggnvp(f: Any, g: Any = lambda x: 0.5 * np.sum(x**2, axis=-1), f_argnum: int = 0) -> Any:
    @unary_to_nary
    def made(f: Any, x: Any) -> Any:
        def product(v: Any) -> Any:
            pullback, value = core.make_vjp(f, x)
            change = core.make_jvp(f, x)(v)[1]
            return pullback(core.make_jvp(grad(g), value)(change)[1])

        return product

    return made(f, f_argnum)
