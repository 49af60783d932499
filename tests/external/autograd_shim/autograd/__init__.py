"""What autograd's own tests import, made of mixad's transforms and of NumPy."""

from autograd.builtins import dict, isinstance, list, tuple
from autograd.differential_operators import (
    checkpoint,
    deriv,
    elementwise_grad,
    grad,
    grad_and_aux,
    hessian,
    hessian_tensor_product,
    holomorphic_grad,
    jacobian,
    make_ggnvp,
    make_hvp,
    make_jvp,
    make_vjp,
    tensor_jacobian_product,
    value_and_grad,
)

__all__ = ["checkpoint", "deriv", "dict", "elementwise_grad", "grad", "grad_and_aux", "hessian",
           "hessian_tensor_product", "holomorphic_grad", "isinstance", "jacobian", "list",
           "make_ggnvp", "make_hvp", "make_jvp", "make_vjp", "tensor_jacobian_product", "tuple",
           "value_and_grad"]  # fmt: skip
