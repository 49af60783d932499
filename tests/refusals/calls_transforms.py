"""Calls that are refused: transforms, their arguments, results and cotangents."""

import numpy as np
from refused import refused
from subjects import STRICT, X, product, squares

import mixad


@refused("""
TracerError: mixad.grad: f is a float, not a function: pass the function itself, mixad.grad(f, \
...), not what it returns
""")
def refuse_no_function():
    mixad.grad(3.0)


@refused("""
KernelSyntaxError: mixad.broadcast: <lambda> is a transform of mixad, or made by one, which works \
on arrays; a kernel is made of a function of numbers
  Instead: broadcast the function itself and differentiate the result, mixad.grad(lambda x: \
mixad.broadcast(f)(x).sum()), or write mixad.broadcast(f).duals(x) for the derivative at every \
element
""")
def refuse_kernel_of_a_gradient():
    mixad.broadcast(mixad.grad(lambda x: x * x))


@refused("""
KernelSyntaxError: mixad.broadcast: pullback is a transform of mixad, or made by one, which works \
on arrays; a kernel is made of a function of numbers
  Instead: broadcast the function itself and differentiate the result, mixad.grad(lambda x: \
mixad.broadcast(f)(x).sum()), or write mixad.broadcast(f).duals(x) for the derivative at every \
element
""")
def refuse_kernel_of_a_pullback():
    _, pullback = mixad.vjp(lambda x: x * x, 2.0)
    mixad.broadcast(pullback)


@refused("""
KernelSyntaxError: mixad.broadcast: value_and_grad is a transform of mixad, or made by one, which \
works on arrays; a kernel is made of a function of numbers
  Instead: broadcast the function itself and differentiate the result, mixad.grad(lambda x: \
mixad.broadcast(f)(x).sum()), or write mixad.broadcast(f).duals(x) for the derivative at every \
element
""")
def refuse_kernel_of_a_transform():
    mixad.broadcast(mixad.value_and_grad)


@refused("""
KernelSyntaxError: mixad.broadcast: <lambda> is a transform of mixad, or made by one, which works \
on arrays; a kernel is made of a function of numbers
  Instead: broadcast the function itself and differentiate the result, mixad.grad(lambda x: \
mixad.broadcast(f)(x).sum()), or write mixad.broadcast(f).duals(x) for the derivative at every \
element
""")
def refuse_kernel_of_a_jacobian():
    mixad.broadcast(mixad.jacfwd(lambda x: x * x))


@refused("""
KernelSyntaxError: mixad.broadcast: squares is a transform of mixad, or made by one, which works \
on arrays; a kernel is made of a function of numbers
  Instead: broadcast the function itself and differentiate the result, mixad.grad(lambda x: \
mixad.broadcast(f)(x).sum()), or write mixad.broadcast(f).duals(x) for the derivative at every \
element
""")
def refuse_kernel_of_a_checkpoint():
    mixad.broadcast(mixad.checkpoint(squares))


@refused("""
KernelSyntaxError: mixad.broadcast: squares is a transform of mixad, or made by one, which works \
on arrays; a kernel is made of a function of numbers
  Instead: broadcast the function itself and differentiate the result, mixad.grad(lambda x: \
mixad.broadcast(f)(x).sum()), or write mixad.broadcast(f).duals(x) for the derivative at every \
element
""")
def refuse_kernel_of_a_function_with_a_rule():
    mixad.broadcast(mixad.custom_vjp(squares))


@refused("""
TracerError: mixad.grad: argnums is a whole number or a sequence of them: name arguments by \
position, such as 0 or (0, 1), not by the str 'x'
""")
def refuse_argnums_text():
    mixad.grad(squares, argnums="x")(X)


@refused("""
TracerError: mixad.grad: argnums names argument 1 of a call with 1 positional arguments: name one \
of those, or pass it by position (keyword arguments are not differentiated)
""")
def refuse_argnums_out_of_range():
    mixad.grad(squares, argnums=1)(X)


@refused("""
TracerError: mixad.grad: argnums=(0, -2) names an argument twice in a call with 2 positional \
arguments: name it once, and use its gradient twice
""")
def refuse_argnums_twice():
    mixad.grad(product, argnums=(0, -2))(X, X)


@refused("""
TracerError: mixad.grad: argument 0 is the whole number 3: write 3.0
""")
def refuse_whole_number():
    mixad.grad(squares)(3)


@refused("""
TracerError: mixad.grad: argument 0 contains a str: gradients are with respect to arrays and \
floats; close over other values, or see mixad.pytree.register
""")
def refuse_text():
    mixad.grad(squares)("x")


@refused("""
TracerError: mixad.grad: argument 0 contains an array of dtype int64: convert it to a float dtype, \
or leave it out of argnums
""")
def refuse_whole_numbers():
    mixad.grad(squares)(np.arange(3))


@refused("""
TracerError: mixad.grad: the function returned a complex number, a gradient needs a real one: \
return its real part (.real), its imaginary part or abs(), or use mixad.vjp with a complex cotangent
""")
def refuse_complex():
    mixad.grad(squares)(X + 1j)


@refused("""
TracerError: mixad.grad: the function returned an array of shape (3,), a gradient needs one \
number: return its .sum(), or use mixad.vjp
""")
def refuse_no_scalar():
    mixad.grad(lambda x: x * x)(X)


@refused("""
TracerError: mixad.grad: the function returned tuple(*, *), a gradient needs one number: use \
has_aux=True for further results, or mixad.vjp
""")
def refuse_several_results():
    mixad.grad(lambda x: (x.sum(), x.sum()))(X)


@refused("""
TracerError: mixad.grad: the function returned None, a gradient needs one number: is a return \
statement missing?
""")
def refuse_missing_return():
    mixad.grad(lambda x: None)(X)


@refused("""
TracerError: mixad.grad: the function returned a value of dtype int64, which has no gradient: \
return a float computed from the arguments
""")
def refuse_result_without_gradient():
    mixad.grad(lambda x: np.asarray(3))(X)


@refused("""
TracerError: mixad.grad: <lambda> returned a str, which is no array: return arrays and numbers, \
and what else there is as aux, with has_aux=True
""")
def refuse_result_that_is_no_array():
    mixad.grad(lambda x: "text")(X)


@refused("""
TracerError: mixad.grad with has_aux=True: squares must return a pair (value, aux), it returned an \
array: return both, or leave has_aux out
""")
def refuse_aux_without_pair():
    mixad.grad(squares, has_aux=True)(X)


@refused("""
TracerError: mixad.value_and_vjp: primals is a ndarray, not a sequence of arguments: write (x,) \
for one
""")
def refuse_single_primal():
    mixad.value_and_vjp(squares, X, 1.0)


@refused("""
TracerError: mixad.value_and_vjp: the cotangent has the structure tuple(*, *), the value of the \
function has *: pass one array for each of its arrays, in the same structure
""")
def refuse_structure_of_cotangent():
    mixad.value_and_vjp(lambda x: x * x, (X,), (X, X))


@refused("""
TracerError: mixad.value_and_vjp: the cotangent is a str: pass an array of the shape of the value, \
or a number
""")
def refuse_text_as_cotangent():
    mixad.value_and_vjp(lambda x: x * x, (X,), "text")


@refused("""
TracerError: mixad.value_and_vjp: the cotangent has shape (2,) and dtype float64, the value has \
shape (3,) and dtype float64: reshape or convert it
""")
def refuse_shape_of_cotangent():
    mixad.value_and_vjp(lambda x: x * x, (X,), np.ones(2))


@refused("""
TracerError: mixad.value_and_vjp: the cotangent is an array of array_api_strict, the value is one \
of numpy: convert it
""")
def refuse_library_of_cotangent():
    mixad.value_and_vjp(lambda x: x * x, (X,), STRICT)


@refused("""
TracerError: mixad.jacobian: mode='backward': it must be one of 'auto', 'forward', 'reverse'
""")
def refuse_mode_of_jacobian():
    mixad.jacobian(squares, mode="backward")


@refused("""
TracerError: mixad.jvp: tangents is a ndarray, not a sequence of arguments: write (x,) for one
""")
def refuse_single_tangent():
    mixad.jvp(squares, (X,), X)


@refused("""
TracerError: mixad.jvp: 1 tangents for 2 primals: pass one for each
""")
def refuse_number_of_tangents():
    mixad.jvp(product, (X, X), (X,))


@refused("""
TracerError: mixad.jvp: tangent 0 has the structure list(*), the argument has *: pass one array \
for each of its arrays, in the same structure
""")
def refuse_structure_of_tangent():
    mixad.jvp(squares, (X,), ([X],))


@refused("""
TracerError: mixad.linearize: tangent 0 has shape (2,) and dtype float64, argument 0 has shape \
(3,) and dtype float64: reshape or convert it
""")
def refuse_shape_of_tangent():
    mixad.linearize(squares, X)[1](np.ones(2))


@refused("""
TracerError: mixad.jvp: tangent 0 is a str: pass an array of the shape of argument 0, or a number
""")
def refuse_text_as_tangent():
    mixad.jvp(squares, (X,), ("text",))


@refused("""
TracerError: mixad.jacobian of a function of complex numbers is not available: differentiate a \
function of their real and imaginary parts, or use mixad.jvp and mixad.vjp
""")
def refuse_jacobian_of_complex():
    mixad.jacobian(lambda x: x * x)(X + 1j)


@refused("""
TracerError: mixad.check_grads: order is 0: pass a whole number from 1 on
""")
def refuse_order_of_checks():
    mixad.check_grads(squares, (X,), order=0)


@refused("""
TracerError: mixad.check_grads: modes is ('backward',): each must be one of 'fwd', 'rev'
""")
def refuse_modes_of_checks():
    mixad.check_grads(squares, (X,), modes=("backward",))
