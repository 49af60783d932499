"""Calls that are refused: rules of the user's own, checkpoints, loops, kinks, audits."""

import numpy as np
from refused import refused
from subjects import X, product, squares

import mixad


@refused("""
TracerError: mixad.custom_vjp of squares has no rule: make one with defvjp(fwd, bwd)
""")
def refuse_function_without_rule():
    mixad.grad(lambda x: mixad.custom_vjp(squares)(x))(X)


@refused("""
TracerError: mixad.custom_vjp of squares: fwd returned an array: return a pair (value, residuals)
""")
def refuse_residuals_without_value():
    custom = mixad.custom_vjp(squares)
    custom.defvjp(squares, lambda x, g: (g * x,))
    mixad.grad(custom)(X)


def ruled(bwd, f=lambda x: x * x):
    """Take the gradient of a function with a backward rule."""
    custom = mixad.custom_vjp(f)
    custom.defvjp(lambda x: (f(x), x), bwd)
    return mixad.grad(lambda x: custom(x).sum())(X)


@refused("""
TracerError: mixad.custom_vjp of <lambda>: bwd returned no tuple for 1 arguments: return a tuple \
with one cotangent for each, None where it is zero
""")
def refuse_cotangent_without_tuple():
    ruled(lambda x, g: g * x)


@refused("""
TracerError: mixad.custom_vjp of <lambda>: bwd returned 2 values for 1 arguments: return a tuple \
with one cotangent for each, None where it is zero
""")
def refuse_number_of_ruled_cotangents():
    ruled(lambda x, g: (g * x, None))


@refused("""
TracerError: mixad.custom_vjp of <lambda>: the cotangent that bwd returned for argument 0 has the \
structure dict(x: *), not *: return one of that structure
""")
def refuse_structure_of_ruled_cotangent():
    ruled(lambda x, g: ({"x": g},))


@refused("""
TracerError: mixad.custom_vjp of <lambda>: the cotangent that bwd returned for argument 0 has \
shape () and dtype float64, the value has shape (3,) and dtype float64: reshape or convert it
""")
def refuse_shape_of_ruled_cotangent():
    ruled(lambda x, g: ((g * x).sum(),))


def pushed(rule, f=lambda x: x * x):
    """Push a tangent through a function with a forward rule."""
    custom = mixad.custom_jvp(f)
    custom.defjvp(rule)
    return mixad.jvp(custom, (X,), (X,))


@refused("""
TracerError: mixad.custom_jvp of <lambda>: the rule returned an array: return a pair (value, \
tangent)
""")
def refuse_tangent_without_value():
    pushed(lambda primals, tangents: tangents[0])


@refused("""
TracerError: mixad.custom_jvp of <lambda>: the tangent that the rule returned has the structure \
list(*), not *: return one of that structure
""")
def refuse_structure_of_ruled_tangent():
    pushed(lambda primals, tangents: (primals[0], list(tangents)))


@refused("""
TracerError: mixad.custom_jvp of <lambda>: the tangent that the rule returned has shape (1,) and \
dtype float64, the value has shape (3,) and dtype float64: reshape or convert it
""")
def refuse_shape_of_ruled_tangent():
    pushed(lambda primals, tangents: (primals[0], tangents[0][:1]))


@refused("""
TracerError: mixad.custom_jvp of <lambda>: the tangent that the rule returned does not depend on \
the tangents of the arguments and is not zero: make it linear in them
""")
def refuse_tangent_of_its_own():
    pushed(lambda primals, tangents: (primals[0], primals[0]))


@refused("""
TracerError: mixad.custom_jvp of product: argument 1 is named in nondiff_argnums and is being \
differentiated: leave it out of nondiff_argnums, or pass its mixad.stop_gradient
""")
def refuse_nondiff_argument_that_is_traced():
    custom = mixad.custom_jvp(product, nondiff_argnums=(1,))
    custom.defjvp(lambda y, primals, tangents: (primals[0] * y, tangents[0] * y))
    mixad.grad(lambda x: custom(x, x).sum())(X)


@refused("""
TracerError: mixad.custom_vjp of squares: nondiff_argnums names argument 1 of a call with 1: name \
one of those
""")
def refuse_nondiff_argnums_out_of_range():
    mixad.custom_vjp(squares, nondiff_argnums=(1,))(X)


def pushed_by(w):
    custom = mixad.custom_jvp(lambda x: x * w)
    custom.defjvp(lambda primals, tangents: (custom(*primals), tangents[0] * w))
    return custom


@refused("""
TracerError: mixad.custom_jvp of <lambda> reads a value that is being differentiated and is not \
among its arguments: pass it as an argument
""")
def refuse_captured_value_of_a_rule():
    mixad.grad(lambda w: pushed_by(w)(w).sum())(X)


@refused("""
TracerError: mixad.custom_vjp of <lambda> returned a str, which is no array: return arrays and \
numbers
""")
def refuse_text_from_a_rule():
    ruled(lambda x, g: (g,), f=lambda x: "text")


@refused("""
TracerError: mixad.checkpoint of noisy returned something else when it was run again for its \
derivative: pass what it depends on, random numbers too, as arguments
""")
def refuse_checkpoint_of_what_changes():
    random = np.random.default_rng(0)

    def noisy(x):
        return x * random.random(3)

    mixad.grad(lambda x: mixad.checkpoint(noisy)(x).sum())(X)


@refused("""
TracerError: mixad.checkpoint: f is a ndarray, not a function: pass the function itself, \
mixad.checkpoint(f, ...), not what it returns
""")
def refuse_checkpoint_of_no_function():
    mixad.checkpoint(X)


@refused("""
TracerError: mixad.custom_jvp of squares has no rule: make one with defjvp(rule)
""")
def refuse_function_without_forward_rule():
    mixad.jvp(mixad.custom_jvp(squares), (X,), (X,))


@refused("""
TracerError: mixad.custom_jvp of squares: the rule is not linear in the tangents (in ..., line 3), \
so what it gives is no derivative and has no transpose for reverse mode (it was tried at four \
tangents, which gave different Jacobians, or at zero): make its tangent a sum of products of one \
tangent and what depends on the primals only, or use custom_vjp
""")
def refuse_rule_that_is_not_linear():
    custom = mixad.custom_jvp(squares)
    custom.defjvp(lambda primals, tangents: (squares(*primals), abs(tangents[0]).sum()))
    mixad.grad(custom)(X)


@refused("""
TracerError: mixad.custom_jvp of <lambda>: k can be passed by keyword only, which rules do not \
get: make it a positional argument
""")
def refuse_keyword_of_a_rule():
    custom = mixad.custom_jvp(lambda x, *, k: x * k)
    custom.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    mixad.jvp(lambda x: custom(x, k=2.0), (X,), (X,))


@refused("""
TracerError: mixad.custom_vjp of <lambda>: fwd reads a value that is being differentiated and is \
not among its arguments: pass it as an argument
""")
def refuse_captured_value_of_a_backward_rule():
    def loss(w):
        custom = mixad.custom_vjp(lambda x: x * 2)
        custom.defvjp(lambda x: (x * 2, w), lambda kept, g: (g * kept,))
        return custom(X).sum() + custom(w).sum()

    mixad.grad(loss)(X)


@refused("""
KernelGradientError: exponential: every iteration of this loop adds to 'total', whatever it is: \
that is no step to a fixed point, which the implicit function theorem is about
  File "...", line 5, column 9
    while abs(term) > 1e-16:
    ^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: differentiate it iteration by iteration, with loops="unrolled"
""")
def refuse_sum_as_a_fixed_point():
    @mixad.broadcast(loops="implicit")
    def exponential(x):
        term, total, n = 1.0, 1.0, 0
        while abs(term) > 1e-16:
            n += 1
            term = term * x / n
            total = total + term
        return total

    mixad.grad(exponential)(1.0)


@refused("""
KernelGradientError: twice_the_root: 'x' becomes something else where this loop is left than in \
its iterations, and the implicit function theorem tells nothing of that
  File "...", line 5, column 9
    while True:
    ^^^^^^^^^^^
  Instead: leave the loop first, and compute it from what the loop leaves
""")
def refuse_fixed_point_that_is_changed():
    @mixad.broadcast(loops="implicit")
    def twice_the_root(a):
        x = 1.0
        while True:
            step = (x * x - a) / (2.0 * x)
            x = x - step
            if abs(step) < 1e-11:
                x = 2.0 * x
                break
        return x

    mixad.grad(twice_the_root)(2.0)


@refused("""
KernelGradientError: ring: 9 values of this loop depend on each other; the implicit function \
theorem is applied to at most 8
  File "...", line 5, column 9
    while abs(x - p) > 1e-12:
    ^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: differentiate it iteration by iteration, with loops="unrolled"
""")
def refuse_fixed_point_of_too_many():
    @mixad.broadcast(loops="implicit")
    def ring(a):
        p, q, r, s, t, u, v, w, x = 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9
        while abs(x - p) > 1e-12:
            p, q, r, s, t, u, v, w, x = q, r, s, t, u, v, w, x, a * p
        return x

    mixad.grad(ring)(0.5)


@refused("""
ConfigurationError: loops must be one of 'unrolled', 'implicit', not 'converged'
""")
def refuse_loops():
    product.with_options(loops="converged")


@refused("""
ConfigurationError: tolerance must be None or a number that is not negative, not -1.0
""")
def refuse_tolerance_of_kinks():
    product.kinks(X, X, tolerance=-1.0)


def squared(rule, function=lambda x: x * x):
    own = mixad.scalar_rule(rule)(function)
    return mixad.broadcast(lambda x: own(x) + 1.0)


@refused("""
KernelTypeError: mixad.scalar_rule of <lambda>: the rule takes ()
  Instead: lambda x: ... as the function does, or one more for its value
""")
def refuse_rule_of_other_parameters():
    squared(lambda: 2.0)


@refused("""
KernelTypeError: '<lambda>' has a rule, and returns a tuple of 2: it must be a number
  File "...", line 3 of squared, column 38
    return mixad.broadcast(lambda x: own(x) + 1.0)
                                     ^^^^^^
  Instead: one function with a rule for each number
""")
def refuse_rule_of_two_numbers():
    squared(lambda x: 2.0 * x, lambda x: (x, x))(X)


@refused("""
KernelTypeError: '<lambda>' has a rule: its parameters are numbers, 'x' is a tuple of 2
  File "...", line 3, column 31
    mixad.broadcast(lambda x: own((x, x)))(X)
                              ^^^^^^^^^^^
  Instead: read it from outside, or write a function for each
""")
def refuse_rule_of_a_tuple():
    own = mixad.scalar_rule(lambda x: 1.0)(lambda x: x)
    mixad.broadcast(lambda x: own((x, x)))(X)


@refused("""
KernelTypeError: a rule gives a partial derivative for each parameter: x; this one gives 2
  File "...", line 2, column 23
    squared(lambda x: (2.0 * x, x))(X)
                      ^^^^^^^^^^^^
  Instead: (dx), None for what is not known
""")
def refuse_rule_with_too_many_partials():
    squared(lambda x: (2.0 * x, x))(X)


@refused("""
KernelTypeError: a partial derivative is a number, this one is a bool
  File "...", line 2, column 23
    squared(lambda x: x > 0.0)(X)
                      ^^^^^^^
  Instead: where(condition, 1, 0)
""")
def refuse_rule_that_gives_a_bool():
    squared(lambda x: x > 0.0)(X)


@refused("""
KernelTypeError: a rule reads numbers from outside, and 'weights' is an array
  File "...", line 3, column 23
    squared(lambda x: 2.0 * x * weights[0])(X)
                      ^^^^^^^^^^^^^^^^^^^^
  Instead: a parameter of the function and of its rule
""")
def refuse_rule_that_reads_an_array():
    weights = np.ones(3)
    squared(lambda x: 2.0 * x * weights[0])(X)


@refused("""
KernelGradientError: the derivative of <lambda> with respect to its parameter 'x' is not \
available: its rule has None
  File "...", line 3 of squared, column 5
    return mixad.broadcast(lambda x: own(x) + 1.0)
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: a partial derivative in the rule, or mixad.stop_gradient of the argument
""")
def refuse_partial_that_is_none():
    kernel = squared(lambda x: None)
    mixad.grad(lambda x: kernel(x).sum())(X)


@refused("""
KernelGradientError: the derivative of <lambda> with respect to what it reads from outside is not \
available: its rule is about its parameters
  File "...", line 4, column 9
    return mixad.broadcast(lambda x: own(x))(X).sum()
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: one parameter more, or mixad.stop_gradient of what it reads
""")
def refuse_derivative_in_what_a_rule_does_not_know():
    def f(w):
        own = mixad.scalar_rule(lambda x: 2.0 * x)(lambda x: w * x * x)
        return mixad.broadcast(lambda x: own(x))(X).sum()

    mixad.grad(f)(3.0)


@refused("""
TracerError: assignment destination is read-only: mixad.checkpoint of cut changes one of its \
arguments in place, or an array that a transform has yet to read: change a copy of it (x = x * 1)
""")
def refuse_checkpoint_that_writes_to_its_argument():
    def cut(x):
        x[0] = 0.0
        return x * x

    mixad.grad(lambda x: mixad.checkpoint(cut)(2.0 * x).sum())(X)


@refused("""
KernelTypeError: '<lambda>' has a rule: its parameters are numbers, 'x' is a c128
  File "...", line 3 of squared, column 38
    return mixad.broadcast(lambda x: own(x) + 1.0)
                                     ^^^^^^
  Instead: its parts, z.real and z.imag, as parameters of their own
""")
def refuse_rule_of_a_complex_number():
    squared(lambda z: 2.0 * z)(1j * X)


@refused("""
TracerError: mixad.custom_vjp of sin: nondiff_argnums names 'x': name arguments by position, such \
as (0, 2)
""")
def refuse_position_that_is_no_number():
    mixad.custom_vjp(np.sin, nondiff_argnums=("x",))


@refused("""
TracerError: mixad.custom_jvp of sin: nondiff_argnums=(0, 0) names an argument twice: name it once
""")
def refuse_position_named_twice():
    mixad.custom_jvp(np.sin, nondiff_argnums=(0, 0))


@refused("""
TracerError: mixad.custom_vjp of squares: bwd is not linear in the cotangent (in ..., line 3), so \
it has no transpose for forward mode (it was tried at four cotangents, which gave different \
Jacobians, or at zero): use reverse mode, which takes bwd as it is, or custom_jvp
""")
def refuse_backward_rule_that_is_not_linear():
    custom = mixad.custom_vjp(squares)
    custom.defvjp(lambda x: (squares(x), x), lambda x, g: (np.minimum(g, 1.0) * x,))
    mixad.jvp(custom, (X,), (X,))


@refused("""
TracerError: the rule of mixad.custom_vjp of squares reads a value that is being differentiated \
and is not among its arguments: pass it as an argument
""")
def refuse_rule_that_reads_a_traced_value():
    def loss(w):
        custom = mixad.custom_vjp(squares)
        custom.defvjp(lambda x: (squares(x), x), lambda x, g: (g * x * w,))
        return custom(w)

    mixad.grad(loss)(X)
