"""Programs that do what the refusals of calls advise: each gives (got, expected) pairs.

``follow_NAME`` does what the text of ``refuse_NAME`` says.  What is expected is derived by hand, or
computed by another library or by differences.
"""

import os
import statistics
import warnings

import array_api_strict
import numpy as np
from calls_kernels import Motion, Named, Spring, dot
from calls_rules import pushed, ruled, squared
from subjects import X, product, squares

import mixad
from mixad import special

STRICT = array_api_strict.ones(3)
ONE = np.ones(3)


def slopes(f, x, h=1e-6):
    """Return the gradient of a function of an array by central differences."""
    found = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[at] = h
        found[at] = (f(x + step) - f(x - step)) / (2 * h)
    return found


def grad(f, x=X):
    """Return the gradient of a function, and its differences: they agree."""
    return [(mixad.grad(f)(x.copy()), slopes(lambda x: float(f(x)), x))]


# -- transforms ------------------------------------------------------------------------------------


def follow_no_function():
    return [(mixad.grad(squares)(X), 2 * X)]


def follow_kernel_of_a_gradient():
    f = mixad.broadcast(lambda x: x * x)
    got = mixad.grad(lambda x: f(x).sum())(X)
    return [(got, 2 * X), (f.duals(X).partials["x"], 2 * X)]


follow_kernel_of_a_pullback = follow_kernel_of_a_gradient
follow_kernel_of_a_transform = follow_kernel_of_a_gradient
follow_kernel_of_a_jacobian = follow_kernel_of_a_gradient
follow_kernel_of_a_checkpoint = follow_kernel_of_a_gradient
follow_kernel_of_a_function_with_a_rule = follow_kernel_of_a_gradient


def follow_argnums_text():
    gx, gy = mixad.grad(lambda x, y: (x * y).sum(), argnums=(0, 1))(X, ONE)
    return [(mixad.grad(squares, argnums=0)(X), 2 * X), (gx, ONE), (gy, X)]


def follow_argnums_out_of_range():
    return [(mixad.grad(lambda x, y: (x * y).sum(), argnums=1)(X, 2 * X), X)]


def follow_argnums_twice():
    g = mixad.grad(lambda x, y: (x * y).sum(), argnums=0)(X, 2 * X)
    return [(g + g, 4 * X)]


def follow_whole_number():
    return [(mixad.grad(squares_of_number)(3.0), 6.0)]


def squares_of_number(x):
    return x * x


def follow_text():
    name = "x"
    return [(mixad.grad(lambda x: {"x": squares(x)}[name])(X), 2 * X)]


def follow_whole_numbers():
    n = np.arange(3)
    converted = mixad.grad(squares)(n.astype(float))
    left_out = mixad.grad(lambda x, n: (x * n).sum(), argnums=0)(X, n)
    return [(converted, 2.0 * n), (left_out, n)]


def follow_complex():
    z = X + 2j
    real = mixad.grad(lambda z: squares(z).real)(z)
    imaginary = mixad.grad(lambda z: squares(z).imag)(z)
    modulus = mixad.grad(lambda z: abs(squares(z)))(z)
    _, pullback = mixad.vjp(squares, z)
    s = (z * z).sum()
    # The gradient of a real function with respect to x + iy is d/dx + i d/dy.
    return [
        (real, np.conj(2 * z)),
        (imaginary, np.conj(2 * z) * 1j),
        (modulus, np.conj(2 * z) * s / abs(s)),
        (pullback(1.0 + 0.0j)[0], np.conj(2 * z)),
    ]


def follow_no_scalar():
    _, pullback = mixad.vjp(lambda x: x * x, X)
    return [(mixad.grad(lambda x: (x * x).sum())(X), 2 * X), (pullback(X)[0], 2 * X * X)]


def follow_several_results():
    got, aux = mixad.grad(lambda x: (squares(x), x.sum()), has_aux=True)(X)
    _, pullback = mixad.vjp(lambda x: (squares(x), x.sum()), X)
    return [(got, 2 * X), (aux, 6.0), (pullback((1.0, 1.0))[0], 2 * X + 1)]


def follow_missing_return():
    return [(mixad.grad(lambda x: x.sum())(X), ONE)]


def follow_result_without_gradient():
    return [(mixad.grad(lambda x: x.sum() * np.asarray(3))(X), 3 * ONE)]


def follow_result_that_is_no_array():
    got, aux = mixad.grad(lambda x: (x.sum(), "text"), has_aux=True)(X)
    assert aux == "text"
    return [(got, ONE)]


def follow_aux_without_pair():
    got, aux = mixad.grad(lambda x: (squares(x), 5), has_aux=True)(X)
    return [(got, 2 * X), (aux, 5), (mixad.grad(squares)(X), 2 * X)]


def follow_single_primal():
    value, (got,) = mixad.value_and_vjp(squares, (X,), 1.0)
    return [(value, 14.0), (got, 2 * X)]


def follow_structure_of_cotangent():
    return [(mixad.value_and_vjp(lambda x: x * x, (X,), X)[1][0], 2 * X * X)]


def follow_text_as_cotangent():
    array = mixad.value_and_vjp(lambda x: x * x, (X,), 3 * ONE)[1][0]
    number = mixad.value_and_vjp(lambda x: x * x, (X,), 3.0)[1][0]
    return [(array, 6 * X), (number, 6 * X)]


def follow_shape_of_cotangent():
    reshaped = mixad.value_and_vjp(lambda x: x * x, (X,), np.ones((1, 3)).reshape(3))[1][0]
    converted = mixad.value_and_vjp(lambda x: x * x, (X,), np.ones(3, "f4").astype("f8"))[1][0]
    return [(reshaped, 2 * X), (converted, 2 * X)]


def follow_library_of_cotangent():
    return [(mixad.value_and_vjp(lambda x: x * x, (X,), np.from_dlpack(STRICT))[1][0], 2 * X)]


def follow_mode_of_jacobian():
    return [
        (mixad.jacobian(lambda x: x * x, mode=mode)(X), np.diag(2 * X))
        for mode in ("auto", "forward", "reverse")
    ]


def follow_single_tangent():
    return [(mixad.jvp(squares, (X,), (X,))[1], 28.0)]


def follow_number_of_tangents():
    return [(mixad.jvp(product, (X, X), (X, ONE))[1], X * X + X)]


def follow_structure_of_tangent():
    return [(mixad.jvp(lambda x: squares(x[0]), ([X],), ([X],))[1], 28.0)]


def follow_shape_of_tangent():
    return [(mixad.linearize(squares, X)[1](np.ones((3, 1)).reshape(3)), 12.0)]


def follow_text_as_tangent():
    return [(mixad.jvp(squares, (X,), (X,))[1], 28.0), (mixad.jvp(squares, (X,), (1.0,))[1], 12.0)]


# -- rules of the user's own, checkpoints ----------------------------------------------------------


def follow_function_without_rule():
    custom = mixad.custom_vjp(squares)
    custom.defvjp(lambda x: (squares(x), x), lambda x, g: (g * 2 * x,))
    return [(mixad.grad(custom)(X), 2 * X)]


follow_residuals_without_value = follow_function_without_rule


def follow_function_without_forward_rule():
    custom = mixad.custom_jvp(squares)
    custom.defjvp(
        lambda primals, tangents: (squares(*primals), 2 * (primals[0] * tangents[0]).sum())
    )
    return [(mixad.jvp(custom, (X,), (ONE,))[1], 12.0), (mixad.grad(custom)(X), 2 * X)]


follow_rule_that_is_not_linear = follow_function_without_forward_rule


def follow_cotangent_without_tuple():
    return [(ruled(lambda x, g: (2 * g * x,)), 2 * X), (ruled(lambda x, g: (None,)), 0 * X)]


follow_number_of_ruled_cotangents = follow_cotangent_without_tuple
follow_structure_of_ruled_cotangent = follow_cotangent_without_tuple


def follow_shape_of_ruled_cotangent():
    return [(ruled(lambda x, g: ((g * x).sum() * np.ones(3),)), 6 * ONE)]


def follow_tangent_without_value():
    value, tangent = pushed(lambda primals, tangents: (primals[0], tangents[0]))
    return [(value, X * X), (tangent, X)]


follow_structure_of_ruled_tangent = follow_tangent_without_value


def follow_shape_of_ruled_tangent():
    return [(pushed(lambda primals, tangents: (primals[0], tangents[0] * 1))[1], X)]


def follow_tangent_of_its_own():
    return [(pushed(lambda primals, tangents: (primals[0], primals[0] * tangents[0]))[1], X * X)]


def follow_nondiff_argument_that_is_traced():
    custom = mixad.custom_jvp(product)
    custom.defjvp(
        lambda primals, tangents: (
            primals[0] * primals[1],
            tangents[0] * primals[1] + primals[0] * tangents[1],
        )
    )
    fixed = mixad.custom_jvp(product, nondiff_argnums=(1,))
    fixed.defjvp(lambda y, primals, tangents: (primals[0] * y, tangents[0] * y))
    stopped = mixad.grad(lambda x: fixed(x, mixad.stop_gradient(x)).sum())(X)
    return [(mixad.grad(lambda x: custom(x, x).sum())(X), 2 * X), (stopped, X)]


def follow_nondiff_argnums_out_of_range():
    custom = mixad.custom_vjp(lambda x, k: k * squares(x), nondiff_argnums=(1,))
    custom.defvjp(lambda x, k: (k * squares(x), x), lambda k, x, g: (g * 2 * k * x,))
    return [(mixad.grad(lambda x: custom(x, 3.0))(X), 6 * X)]


follow_position_that_is_no_number = follow_nondiff_argnums_out_of_range
follow_position_named_twice = follow_nondiff_argnums_out_of_range


def follow_captured_value_of_a_rule():
    custom = mixad.custom_jvp(lambda x, w: x * w)
    custom.defjvp(
        lambda primals, tangents: (
            primals[0] * primals[1],
            tangents[0] * primals[1] + primals[0] * tangents[1],
        )
    )
    return [(mixad.grad(lambda w: custom(w, w).sum())(X), 2 * X)]


def follow_captured_value_of_a_backward_rule():
    custom = mixad.custom_vjp(lambda x, w: x * w)
    custom.defvjp(lambda x, w: (x * w, (x, w)), lambda kept, g: (g * kept[1], g * kept[0]))
    return [(mixad.grad(lambda w: custom(X, w).sum())(X), X)]


def follow_keyword_of_a_rule():
    custom = mixad.custom_jvp(lambda x, k: x * k)
    custom.defjvp(
        lambda primals, tangents: (
            primals[0] * primals[1],
            tangents[0] * primals[1] + primals[0] * tangents[1],
        )
    )
    return [(mixad.jvp(lambda x: custom(x, 2.0), (X,), (X,))[1], 2 * X)]


def follow_text_from_a_rule():
    return [(ruled(lambda x, g: (2 * g * x,)), 2 * X)]


def follow_checkpoint_of_what_changes():
    noise = np.random.default_rng(0).random(3)

    def noisy(x, noise):
        return x * noise

    got = mixad.grad(lambda x: mixad.checkpoint(noisy)(x, noise).sum())(X)
    return [(got, noise)]


def follow_checkpoint_of_no_function():
    return [(mixad.grad(mixad.checkpoint(squares))(X), 2 * X)]


def follow_checkpoint_that_writes_to_its_argument():
    def cut(x):
        x = x * 1
        x[0] = 0.0
        return x * x

    got = mixad.grad(lambda x: mixad.checkpoint(cut)(2.0 * x).sum())(X)
    return [(got, np.asarray([0.0, 16.0, 24.0]))]


# -- values that are differentiated ----------------------------------------------------------------


def follow_use_after_the_end():
    _, kept = mixad.grad(lambda x: (x.sum(), 2 * x), has_aux=True)(X)
    return [(kept + 1, 2 * X + 1)]


def follow_float():
    def written(x):
        out = np.zeros_like(x)
        out[0] = x[1] * x[1]
        return out.sum()

    def made(x):
        out = np.zeros(2, like=x)
        out[0] = x[1] * x[1]
        return out.sum()

    expected = np.asarray([0.0, 4.0, 0.0])
    return [
        (mixad.grad(lambda x: np.exp(x))(1.0), np.e),
        (mixad.grad(written)(X), expected),
        (mixad.grad(made)(X), expected),
    ]


def follow_complex_number():
    return [(mixad.grad(lambda x: abs(x * 1j))(2.0), 1.0)]


def follow_conversion_to_complex():
    return [(mixad.grad(lambda x: (x[0] * (1 + 2j)).imag)(X), [2.0, 0.0, 0.0])]


def follow_item():
    return [(mixad.grad(lambda x: x * 2)(1.0), 2.0)]


def follow_list():
    return [(mixad.grad(lambda x: sum(x))(X), ONE)]


follow_lists_of_numbers = follow_list


def follow_assignment_to_a_number():
    got = mixad.grad(lambda x: np.where(x > 1, x * x, 0.0))(2.0)
    stacked = mixad.grad(lambda x: (np.stack([x, 2 * x]) ** 2).sum())(3.0)
    return [(got, 4.0), (stacked, 30.0)]


def follow_view_of_what_was_written():
    def direct(x):
        x[0] = 1.0
        return (x * x).sum()

    def later(x):
        x[0] = 1.0
        view = x[0:]
        return (view * view).sum()

    def copied(x):
        part = x[1:] * 1
        part[0] = 1.0
        return (part * x[1:]).sum()

    expected = np.asarray([0.0, 4.0, 6.0])
    # part is [1, x2]: 1 * x1 + x2 * x2
    return [
        (mixad.grad(direct)(X.copy()), expected),
        (mixad.grad(later)(X.copy()), expected),
        (mixad.grad(copied)(X.copy()), [0.0, 1.0, 6.0]),
    ]


def follow_change_in_place_to_another_shape():
    def operation(x):
        x = x + np.ones((2, 3))
        return (x * x).sum()

    return [(mixad.grad(operation)(X), 4 * (X + 1))]


def follow_change_in_place_to_another_dtype():
    def operation(x):
        x = x + mixad.stop_gradient(STRICT)
        return (
            array_api_strict.sum(x * x) if x is None else (x * x).__array_namespace__().sum(x * x)
        )

    got = mixad.grad(operation)(array_api_strict.ones(3, dtype=array_api_strict.float32))
    return [(np.from_dlpack(got), 4 * ONE)]


def follow_adding_into_an_array():
    def into(x):
        total = np.zeros_like(x)
        total += x * x
        return total.sum()

    def anew(x):
        total = np.zeros(3)
        total = total + x * x
        return total.sum()

    return [(mixad.grad(into)(X), 2 * X), (mixad.grad(anew)(X), 2 * X)]


def follow_method_of_ufunc():
    @mixad.broadcast
    def minus(x, y):
        return x - y

    def by_indexing(x):
        first = x[0] * x[0]
        second = minus(first, x[1])
        return first + second + minus(second, x[2])

    value = float(np.subtract.accumulate([X[0] * X[0], X[1], X[2]]).sum())
    return [(by_indexing(X), value), *grad(by_indexing)]


def follow_function():
    def slope(x):
        # The slope of the line through (x, y): a ratio of centred sums, as polyfit has it.
        y = x * x
        dx, dy = x - x.mean(), y - y.mean()
        return (dx * dy).sum() / (dx * dx).sum()

    return [(slope(X), np.polyfit(X, X * X, 1)[0]), *grad(slope)]


def follow_method():
    stopped = mixad.grad(lambda x: (x * mixad.stop_gradient(x).byteswap().byteswap()).sum())(X)
    return [(stopped, X)]


def follow_function_that_makes_an_array():
    stacked = mixad.grad(lambda x: (np.stack([x[0], x[1]]) ** 2).sum())(X)
    joined = mixad.grad(lambda x: (np.concatenate([x, 2 * x]) ** 2).sum())(X)
    return [(stacked, [2.0, 4.0, 0.0]), (joined, 10 * X)]


def follow_option():
    return grad(lambda x: np.var(x))


def follow_too_many_arguments():
    return grad(lambda x: x.mean(0))


def follow_operand():
    return [(mixad.grad(lambda x: np.add(x, np.asarray(2.0)).sum())(X), ONE)]


def follow_index():
    rows = np.asarray([0, 0, 2])
    mask = np.asarray([True, False, True])
    return [
        (mixad.grad(lambda x: (x[rows] ** 2).sum())(X), [4.0, 0.0, 6.0]),
        (mixad.grad(lambda x: (x[mask] ** 2).sum())(X), [2.0, 0.0, 6.0]),
        (mixad.grad(lambda x: (x[..., None, 1:] ** 2).sum())(X), [0.0, 4.0, 6.0]),
        (mixad.grad(lambda x: x[1] ** 2)(X), [0.0, 4.0, 0.0]),
    ]


def follow_an_index_that_is_traced():
    return [(mixad.grad(lambda x: x[np.asarray([1])].sum())(X), [0.0, 1.0, 0.0])]


def follow_order_of_reshape():
    weights = np.arange(6.0).reshape(3, 2)
    matrix = np.arange(6.0).reshape(2, 3)
    return [
        (
            mixad.grad(lambda x: (x.reshape((3, 2), order=order) * weights).sum())(matrix),  # noqa: B023
            weights.reshape((2, 3), order=order),
        )
        for order in "CF"
    ]


def follow_dtype_of_mean():
    f4 = mixad.grad(lambda x: np.mean(x, dtype=np.float32))(X)
    return [(f4, ONE / 3), (mixad.grad(lambda x: np.mean(x))(X), ONE / 3)]


def follow_attribute():
    return [(mixad.grad(lambda x: (x.reshape(-1) ** 2).sum())(X), 2 * X)]


def follow_change_of_what_is_needed():
    def by_copy(w):
        x = X.copy()
        found = (w * x * w).sum()
        x = x.copy()
        x[0] = 9.0
        return found

    def anew(w):
        x = X.copy()
        found = (w * x * w).sum()
        x = np.asarray([9.0, *x[1:]])
        return found + x.sum()

    return [(mixad.grad(by_copy)(X), 2 * X * X), (mixad.grad(anew)(X), 2 * X * X)]


def follow_change_between_passes():
    x = np.linspace(0.0, 1.0, 20_000)
    _, pullback = mixad.vjp(squares, x)
    changed = x.copy()
    changed[0] = 5.0
    got, expected = pullback(1.0)[0], 2 * x
    x[0] = 5.0  # when the last gradient is there
    return [(got, expected)]


def follow_libraries_in_an_operation():
    strict = mixad.grad(lambda x: x.__array_namespace__().sum(x * STRICT))(
        array_api_strict.asarray(X)
    )
    return [(np.from_dlpack(strict), ONE)]


def follow_mixture_by_the_library():
    n = array_api_strict.ones(3, dtype=array_api_strict.int32)
    converted = array_api_strict.astype(n, array_api_strict.float64)
    got = mixad.grad(lambda x: x.__array_namespace__().sum(x * converted))(STRICT)
    return [(np.from_dlpack(got), ONE)]


def follow_rounding_to_digits():
    value, got = mixad.value_and_grad(lambda x: np.round(100 * x[0]) / 100 * x[1])(X / 3)
    return [(value, 0.33 * 2 / 3), (got, [0.0, 0.33, 0.0])]


def follow_export():
    return [(mixad.grad(lambda x: (x * x).sum())(X), 2 * X)]


def follow_pickling():
    import pickle

    _, kept = mixad.grad(lambda x: (squares(x), 2 * x), has_aux=True)(X)
    return [(pickle.loads(pickle.dumps(kept)), 2 * X)]


# -- kernels ---------------------------------------------------------------------------------------


def follow_argument():
    mode = "twice"

    @mixad.broadcast
    def chosen(x):
        return 2 * x if mode == "twice" else x

    named = mixad.broadcast(lambda s: s.x * 2 if s.names == "twice" else s.x)(Named(X, "twice"))
    return [(chosen(X), 2 * X), (named, 2 * X)]


def follow_dates():
    return [(product(X, np.arange(3).astype("M8[s]").astype("i8")), X * np.arange(3))]


def follow_captured_array_of_long_complex():
    z = (X + 1j).astype("clongdouble").astype("complex128")
    return [(mixad.broadcast(lambda x: x * z)(X), X * (X + 1j))]


def follow_byte_order():
    return [(product(X, X.astype(">f8").astype("float64")), X * X)]


def follow_subclass_of_array():
    class Masked(np.ndarray):
        pass

    return [(product(X, np.asarray(X.view(Masked))), X * X)]


def follow_shapes():
    return [
        (product(X[:, None], np.ones(2)), np.outer(X, np.ones(2))),
        (product(X, np.ones((3, 1)).reshape(3)), X),
    ]


def follow_libraries():
    return [(product(X, np.from_dlpack(STRICT)), X)]


def follow_mixture_of_kinds():
    n = array_api_strict.ones(3, dtype=array_api_strict.int32)
    got = mixad.broadcast(lambda x, y: x * float(y))(STRICT, n)
    return [(np.from_dlpack(got), ONE)]


def follow_large_integer():
    return [(product(X, float(2**70)), X * 2.0**70)]


def follow_large_integer_from_outside():
    return [(mixad.broadcast(lambda x: x * 1.1805916207174113e21)(X), X * 2.0**70)]


def follow_gradient_of_array_in_a_loop():
    def loss(table):
        @mixad.broadcast
        def product(n):
            total = 1.0
            for k in (0, 1):
                if k < n:
                    total = total * table[k]
            return total

        return product(np.asarray([1, 2])).sum()

    def constant(table):
        fixed = mixad.stop_gradient(table)
        return mixad.broadcast(lambda i, x: fixed[i] * x)(np.asarray([0, 1, 1]), table).sum()

    return [(mixad.grad(loss)(X), [3.0, 1.0, 0.0]), (mixad.grad(constant)(X), [1.0, 2.0, 2.0])]


def follow_stored_partials_of_array():
    rows = np.asarray([0, 1, 1])
    read = mixad.grad(lambda table: mixad.broadcast(lambda i: table[i] ** 2)(rows).sum())
    return [(read(X), [2.0, 8.0, 0.0])]


def follow_partials_of_array():
    rows = np.asarray([0, 1])
    of_read = mixad.broadcast(lambda t: t * t).duals(X[rows])

    def read(table: mixad.Array, i):
        return table[i] * table[i]

    grad = mixad.grad(lambda table: mixad.broadcast(read)(table, rows).sum())(X)
    return [(of_read.partials["t"], [2.0, 4.0]), (grad, [2.0, 4.0, 0.0])]


def follow_number_as_whole_array():
    rows = np.asarray([0, 1])

    def read(table: mixad.Array, i):
        return table[i]

    broadcast = mixad.broadcast(lambda x, i: x * i)(2.0, rows)
    return [(mixad.broadcast(read)(X, rows), X[:2]), (broadcast, [0.0, 2.0])]


def follow_missing_derivative():
    got = mixad.grad(lambda x: mixad.broadcast(lambda x: special.polygamma(1, x))(x).sum())(X)
    # psi''(1) = -2 zeta(3), and psi''(x + 1) = psi''(x) + 2 / x^3
    first = -2.4041138063191885
    return [(got, [first, first + 2.0, first + 2.25])]


def follow_index_in_a_lambda():
    table = np.asarray([1.0, 2.0])
    i = np.asarray([0, 5])
    guarded = mixad.broadcast(lambda i: table[i] * 2 if i < 2 else 0.0)(i)
    clipped = mixad.broadcast(lambda i: table[min(i, 1)] * 2)(i)
    return [(guarded, [2.0, 0.0]), (clipped, [2.0, 4.0])]


def follow_index_outside_after_very_many_turns():
    heights = np.zeros(50)

    @mixad.broadcast
    def above(limit):
        i = 0
        found = 0.0
        while i < 50 and found < limit:
            found += heights[i] + 0.5
            i += 1
        return found - limit

    return [(above(X), 0 * X)]


def follow_unknown_wrt():
    return [(product.duals(X, 2 * X, wrt=("x", "y")).partials["x"], 2 * X)]


def follow_wrt_of_integers():
    return [(product.duals(X, np.arange(3), wrt="x").partials["x"], np.arange(3))]


def follow_wrt_that_is_no_name():
    return [(product.duals(X, 2 * X, wrt="y").partials["y"], X)]


def follow_too_many_duals():
    many = mixad.broadcast(lambda a, b, c, d, e, f, g, h, i, j, k: a * b * c * d * e * f * g)
    values = [X + n for n in range(11)]
    a = np.prod(values[1:7], axis=0)
    blocks = many.jacobian(*values)
    return [(blocks[:, 0], a), (many.duals(*values, wrt="a").partials["a"], a)]


def follow_array_for_special_function():
    return [(mixad.broadcast(lambda x: special.sin(x))(X), np.sin(X))]


def follow_number_of_arguments_for_special_function():
    return [(special.sin(1.0), np.sin(1.0))]


def follow_dtype_for_special_function():
    return [(special.sin(float(np.complex64(1.0).real)), np.sin(1.0))]


def follow_duals_of_a_complex_argument():
    z = X + 2j
    f = mixad.broadcast(lambda x, y: (x * x * y).real)
    found = f.duals(z, ONE, wrt=("x.real", "x.imag")).partials
    got = mixad.grad(lambda z: f(z, ONE).sum())(z)
    # The real part of (a + ib)^2 is a^2 - b^2.
    return [(found["x.real"], 2 * X), (found["x.imag"], -4 * ONE), (got, 2 * X - 4j)]


def follow_jacobian_of_several_types():
    value, other = mixad.broadcast(lambda x: (x * x, x > 1.5)).duals(X)
    converted = mixad.broadcast(lambda x: (x * x, float(x > 1.5))).jacobian(X)
    return [(value.partials["x"], 2 * X), (other.primal, X > 1.5), (converted[:, 0, 0], 2 * X)]


def follow_jacobian_by_nothing():
    f = mixad.broadcast(lambda n, x: n * x)
    floats = mixad.broadcast(lambda n: n * 1.5).jacobian(np.arange(3.0))
    return [(floats[:, 0], 1.5 * ONE), (f.jacobian(np.arange(3), X, wrt="x")[:, 0], np.arange(3))]


def follow_duals_of_complex_values():
    z = X + 2j
    parts = mixad.broadcast(lambda z, y: ((z * y).real, (z * y).imag)).duals(z, X, wrt="y")
    tangent = mixad.jvp(lambda y: product(z, y), (X,), (ONE,))[1]
    got = [part.partials["y"] for part in parts]
    return [(got[0], X), (got[1], 2 * ONE), (tangent, z)]


def follow_kernel_of_a_ufunc():
    return grad(lambda x: mixad.broadcast(lambda x: np.sin(x))(x).sum())


def follow_kernel_of_an_op():
    sigmoid = mixad.broadcast(lambda x: special.sigmoid(x))
    s = 1 / (1 + np.exp(-X))
    return [(sigmoid(X), s), (mixad.grad(lambda x: sigmoid(x).sum())(X), s * (1 - s))]


# -- options ---------------------------------------------------------------------------------------


def _as_ever(**options):
    f = mixad.broadcast(lambda x: x * x * x).with_options(**options)
    return [(f(X), X**3), (mixad.grad(lambda x: f(x).sum())(X), 3 * X**2)]


def follow_strategy():
    return [p for s in ("auto", "forward", "reverse") for p in _as_ever(strategy=s)]


def follow_placement():
    return [p for s in ("auto", "forward", "reverse") for p in _as_ever(placement=s)]


def follow_placement_with_strategy():
    return [*_as_ever(strategy="reverse"), *_as_ever(placement="forward")]


def follow_chunk():
    return [*_as_ever(chunk=10), *_as_ever(chunk=1), *_as_ever(chunk=None)]


def follow_empty_backend():
    return [*_as_ever(backend="cpu"), *_as_ever(backend=None)]


def follow_loops():
    return [*_as_ever(loops="unrolled"), *_as_ever(loops="implicit")]


def follow_option_that_there_is_not():
    return _as_ever(chunk=2)


def follow_reverse_through_a_loop():
    n = np.asarray([1, 2, 3])
    pairs = []
    for strategy in ("forward", "auto"):

        @mixad.broadcast(strategy=strategy)
        def power(x, n):
            result = 1.0
            for _ in range(n):
                result *= x
            return result

        pairs.append((mixad.grad(lambda x: power(x, n).sum())(X.copy()), n * X ** (n - 1)))
    return pairs


def follow_variable():
    from mixad import config

    os.environ.pop("MIXAD_NUM_THREADS", None)
    return [
        (config.NUM_THREADS.read({"MIXAD_NUM_THREADS": "3"}), 3),
        (config.NUM_THREADS.read() > 0, 1),
    ]


def follow_stage_that_there_is_not():
    return [("mul" in product.source(X, X, stage="program"), True)]


def follow_stage_of_another_backend():
    return [(bool(product.source(X, X, stage="asm")), True)]


def follow_tolerance_of_kinks():
    hinge = mixad.broadcast(lambda x: max(x, 2.0))
    return [(bool(hinge.kinks(X, tolerance=0.0)), True), (bool(hinge.kinks(X + 0.5)), False)]


def follow_namespace_of_a_number():
    xp = mixad.namespace_of(np)
    return [(mixad.grad(lambda x: xp.sum(xp.exp(x)))(X), np.exp(X))]


def follow_version_of_the_standard():
    versions = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
    return [
        (mixad.grad(lambda x: x.__array_namespace__(api_version=v).sum(x * x))(X), 2 * X)  # noqa: B023
        for v in versions
    ]


# -- tensors of torch ------------------------------------------------------------------------------


def follow_torch_that_requires_grad():
    import torch

    x = torch.ones(3, requires_grad=True)
    return [(product(x.detach(), 2.0).numpy(), 2 * ONE)]


def follow_torch_without_elements():
    import torch

    x = torch.ones(3, device="meta")
    return [(product(torch.empty_like(x, device="cpu"), 2.0).shape[0], 3)]


def follow_torch_sparse():
    import torch

    return [(product(torch.ones(3).to_sparse().to_dense(), 2.0).numpy(), 2 * ONE)]


def follow_torch_under_vmap():
    import torch

    got = mixad.grad(lambda x: product(x, x).sum())(torch.ones(3))
    return [(got.numpy(), 2 * ONE)]


def follow_torch_subclass():
    import torch

    class Tagged(torch.Tensor):
        pass

    x = torch.ones(3).as_subclass(Tagged)
    return [(product(x.as_subclass(torch.Tensor), 2.0).numpy(), 2 * ONE)]


def follow_torch_change_in_place():
    import torch

    def into(x):
        total = torch.zeros_like(x)
        total += x * x
        return total.sum()

    def anew(x):
        total = torch.ones(3)
        total = total + x * x
        return total.sum()

    x = torch.tensor(X)
    return [(mixad.grad(into)(x).numpy(), 2 * X), (mixad.grad(anew)(x).numpy(), 2 * X)]


def follow_torch_dual_tensor():
    import torch
    from torch.autograd import forward_ad

    with warnings.catch_warnings(action="ignore"), forward_ad.dual_level():
        x = forward_ad.make_dual(torch.ones(3), torch.ones(3))
        value = product(forward_ad.unpack_dual(x).primal, 2.0)
    tangent = mixad.jvp(lambda x: product(x, 2.0), (torch.ones(3),), (torch.ones(3),))[1]
    return [(value.numpy(), 2 * ONE), (tangent.numpy(), 2 * ONE)]


def follow_torch_default_dtype():
    import torch

    torch.set_default_dtype(torch.float32)
    return [(mixad.grad(squares)(torch.ones(3)).numpy(), 2 * ONE)]


def follow_torch_bits_of_elements():
    import torch

    x = torch.tensor(X)
    got = mixad.grad(lambda x: (x.to(torch.float32) ** 2).sum())(x)
    return [(got.numpy(), 2 * X)]


def follow_torch_moving_to_another_device():
    import torch

    return [(mixad.grad(squares)(torch.tensor(X).to("cpu")).numpy(), 2 * X)]


def follow_torch_dropout():
    import torch

    x = torch.tensor(X)
    mask = torch.nn.functional.dropout(torch.ones_like(x), 0.5)
    return [(mixad.grad(lambda x: (x * mask).sum())(x).numpy(), mask.numpy())]


def follow_torch_padding_by_elements():
    import torch

    x = torch.tensor(X)
    around = torch.tensor([2, 0, 1, 2, 0])
    weights = torch.arange(5.0, dtype=torch.float64)
    indexed = mixad.grad(lambda x: (x[around] * weights).sum())(x)
    padded = mixad.grad(
        lambda x: (torch.nn.functional.pad(x[None], (1, 1), mode="constant") ** 2).sum()
    )(x)
    return [(indexed.numpy(), [5.0, 2.0, 3.0]), (padded.numpy(), 2 * X)]


def follow_torch_weights_of_smoothed_classes():
    import torch
    from torch.nn.functional import cross_entropy, log_softmax

    smoothed = 0.1 / 3 + 0.9 * torch.eye(3)
    weight = torch.tensor([1.0, 2.0, 0.5])
    x = torch.arange(9.0).reshape(3, 3).sin().requires_grad_()
    cross_entropy(x, smoothed, weight, reduction="sum").backward()
    got = mixad.grad(lambda x: -(weight * smoothed * log_softmax(x, 1)).sum(1).sum())(x.detach())
    return [(got.numpy(), x.grad.numpy())]


def follow_torch_compiled_function():
    import torch

    a = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    got = mixad.grad(lambda a: (a @ torch.ones(2, dtype=torch.float64)).sum())(a)
    return [(got.numpy(), np.ones((2, 2)))]


def follow_torch_functions_that_are_missing():
    import torch

    got = mixad.grad(lambda x: x[0] * mixad.stop_gradient(torch.mode(mixad.stop_gradient(x))[0]))
    return [(got(torch.tensor([2.0, 2.0, 3.0])).numpy(), [2.0, 0.0, 0.0])]


def follow_torch_function_in_a_kernel():
    s = 1 / (1 + np.exp(-X))
    return [(mixad.broadcast(lambda x: special.sigmoid(x))(X), s)]


# -- complex numbers -------------------------------------------------------------------------------


def follow_complex_to_real():
    z = X + 2j
    return [
        (mixad.grad(lambda z: (z.real.astype(float) ** 2).sum())(z), 2 * X),
        (mixad.grad(lambda z: abs(z).sum())(z), z / abs(z)),
    ]


def follow_complex_into_real():
    def loss(x):
        x = x * 1
        x[0] = (x[1] * 1j).imag
        return x.sum()

    return [(mixad.grad(loss)(X), [0.0, 2.0, 1.0])]


def follow_order_of_complex():
    z = X + 2j
    return [(mixad.grad(lambda z: np.max(z.real))(z), [0.0, 0.0, 1.0])]


def follow_kernel_function_of_complex():
    z = X + 2j
    return [(mixad.grad(lambda z: np.hypot(z.real, z.imag).sum())(z), z / abs(z))]


def follow_jacobian_of_complex():
    z = X + 2j
    tangent = mixad.jvp(lambda z: z * z, (z,), (z,))[1]
    parts = mixad.jacobian(lambda x: x * x + 1.0)(X)
    return [(tangent, 2 * z * z), (parts, np.diag(2 * X))]


# -- linear algebra --------------------------------------------------------------------------------

A = np.asarray([[2.0, 0.3, 0.1], [0.2, 3.0, 0.5], [0.4, 0.1, 4.0]])
W = np.asarray([[1.0, 2.0, 0.5], [0.3, 1.0, 2.0], [1.5, 0.2, 1.0]])
TALL = A[:, :2]


def follow_phase_of_an_eigenvector():
    matrix = np.diag(X) + 0.1
    got = mixad.grad(lambda x: (abs(np.linalg.eigh((x + x.T) / 2 + 0j)[1]) * W).sum())(matrix)
    return [(got, slopes(lambda x: (abs(np.linalg.eigh((x + x.T) / 2)[1]) * W).sum(), matrix))]


def follow_repeated_eigenvalues_of_eig():
    return [
        (mixad.grad(lambda x: np.trace(x))(np.eye(3)), np.eye(3)),
        (mixad.grad(lambda x: np.linalg.det(x))(np.eye(3)), np.eye(3)),
        (mixad.grad(lambda x: np.trace(x @ x))(np.eye(3)), 2 * np.eye(3)),
        (mixad.grad(lambda x: np.linalg.eigh(x)[0].sum())(np.eye(3)), np.eye(3)),
    ]


def follow_vectors_of_a_full_svd():
    return grad(lambda x: (np.linalg.svd(x, full_matrices=False)[0] * W[:, :2]).sum(), TALL)


def follow_complete_qr():
    return grad(lambda x: (np.linalg.qr(x, mode="reduced")[0] * W[:, :2]).sum(), TALL)


def follow_cholesky_of_one_triangle():
    return grad(lambda x: (np.linalg.cholesky((x + x.mT) / 2) * W).sum(), A)


def follow_eigenvalues_of_what_is_not_hermitian():
    w = np.asarray([1.0, 2.0, 4.0])
    got = mixad.grad(lambda x: (np.linalg.eigvalsh((x + x.conj().mT) / 2) * w).sum())(A)
    return [(got, slopes(lambda x: (np.linalg.eigvalsh((x + x.T) / 2) * w).sum(), A))]


def follow_logarithm_of_a_determinant_that_is_zero():
    singular = np.diag([1.0, 2.0, 0.0])
    return [
        (mixad.grad(lambda x: np.linalg.det(x))(singular), np.diag([0.0, 0.0, 2.0])),
        *grad(lambda x: np.linalg.slogdet(x + 0.5 * np.eye(3))[1], singular),
    ]


def follow_derivative_of_the_tangent_of_a_norm_that_is_zero():
    direction = np.ones(2)

    def slope(x):
        return mixad.jvp(lambda x: (x * x).sum(), (x,), (direction,))[1]

    nan = mixad.hvp(np.linalg.norm, (np.zeros(2),), (direction,))
    return [(mixad.grad(slope)(np.zeros(2)), 2 * direction), (np.isnan(nan), [True, True])]


def follow_qr_of_dependent_columns():
    return grad(lambda x: (np.linalg.qr(x[:, :2])[1] * W[:2, :2]).sum(), A)


def follow_vectors_without_full_rank():
    thin = np.outer(X, [1.0, 2.0])
    values = mixad.grad(lambda x: np.linalg.svd(x, full_matrices=False)[1].max())(thin)
    u = thin / np.linalg.norm(thin)  # the derivative of the largest value of a rank-1 matrix
    return [(values, u)]


def follow_pinv_without_full_rank():
    def regularised(x):
        return (np.linalg.solve(x.T @ x + 0.1 * np.eye(2), x.T) * W[:2]).sum()

    return [
        *grad(lambda x: (np.linalg.pinv(x) * W[:2]).sum(), TALL),
        *grad(regularised, np.ones((3, 2))),
    ]


def follow_least_squares_without_full_rank():
    def regularised(x):
        a = np.stack([x, x]).T
        return np.linalg.solve(a.T @ a + 0.1 * np.eye(2), a.T @ X)[0]

    return [*grad(regularised), *grad(lambda x: np.linalg.lstsq(x[:, None], X)[0].sum(), X)]


def follow_norms_of_several_axes():
    xp = mixad.namespace_of(np)
    got = mixad.grad(lambda x: xp.sum(xp.linalg.matrix_norm(xp.expand_dims(x, axis=0), ord="nuc")))(
        A
    )
    u, _, v = np.linalg.svd(A)
    vector = mixad.grad(lambda x: xp.linalg.vector_norm(x))(A)
    return [(got, u @ v), (vector, A / np.linalg.norm(A))]


# -- functions of arrays ---------------------------------------------------------------------------


def follow_shares_of_a_quantile_that_are_differentiated():
    return [
        (mixad.grad(lambda x: np.quantile(x, mixad.stop_gradient(x[0] / 2)))(X), [0.0, 1.0, 0.0])
    ]


def follow_method_of_quantile():
    expected = {"linear": [0.0, 1.0, 0.0], "lower": [0.0, 1.0, 0.0]}
    expected |= {"higher": [0.0, 1.0, 0.0], "midpoint": [0.0, 1.0, 0.0]}
    return [
        (mixad.grad(lambda x: np.quantile(x, 0.5, method=m))(X), e)  # noqa: B023
        for m, e in expected.items()
    ]


def follow_condition_of_numbers():
    got = mixad.grad(lambda x: x.__array_namespace__().where(x != 0, x * x, x).sum())(X)
    return [(got, 2 * X)]


def follow_padding_that_computes():
    modes = ("constant", "edge", "reflect", "symmetric", "wrap")
    return [
        pair
        for mode in modes
        for pair in grad(lambda x: (np.pad(x, 1, mode) ** 2 * np.arange(5.0)).sum())  # noqa: B023
    ]


def follow_moving_to_another_device():
    return [(mixad.grad(lambda x: x.to_device("cpu").sum())(X), ONE)]


def follow_an_array_on_another_device():
    xp = mixad.namespace_of(array_api_strict)
    there = array_api_strict.ones(3, device=array_api_strict.Device("device1"))
    got = mixad.grad(lambda x: xp.sum(xp.asarray([x[0], x[1]])))(there)
    back = array_api_strict.asarray(got, device=array_api_strict.Device("CPU_DEVICE"))
    return [(np.from_dlpack(back), [1.0, 1.0, 0.0])]


def follow_joining_what_is_no_array():
    xp = mixad.namespace_of(np)
    got = mixad.grad(lambda x: xp.sum(xp.concat([x, xp.asarray([1.0])]) ** 2))(X)
    return [(got, 2 * X)]


def follow_coordinates_that_do_not_fit():
    places = np.asarray([0.0, 1.0, 3.0])
    weights = np.asarray([1.0, 2.0, 5.0])
    return grad(lambda x: (np.gradient(x, places) * weights).sum())


def follow_functions_of_scipy_of_other_libraries():
    from scipy.special import k0, k1

    return [(mixad.grad(lambda x: k0(x).sum())(np.from_dlpack(STRICT)), -k1(ONE))]


def follow_statistics_of_python():
    value, got = mixad.value_and_grad(lambda x: np.std(x, ddof=1))(X)
    return [(value, statistics.stdev(X)), (got, (X - X.mean()) / (2 * statistics.stdev(X)))]


def follow_mode_of_python():
    def mode(x):
        return x[np.argmax((x[:, None] == x).sum(1))]

    value, got = mixad.value_and_grad(lambda x: mode(np.stack([x[0], x[1], x[0]])))(X)
    return [(value, X[0]), (got, np.eye(X.size)[0])]


def follow_traced_key():
    def by_name(x):
        kept = {"first": x[0], "second": x[1]}
        return kept["second"] if kept["first"] == X[0] else kept["first"]

    def by_value(x):
        return {mixad.stop_gradient(x[0]): x[1]}[X[0]]

    return [(mixad.grad(use)(X), np.eye(X.size)[1]) for use in (by_name, by_value)]


def follow_compiled_function_of_scipy():
    from scipy import linalg

    found = mixad.grad(lambda x: mixad.scipy.linalg.expm(x @ x.T).sum())(A)
    return [(found, slopes(lambda x: linalg.expm(x @ x.T).sum(), A))]


def follow_writing_to_a_diagonal():
    def written(x):
        outer = np.outer(x, x)
        outer[np.arange(3), np.arange(3)] = 1.0
        return outer.sum()

    def copied(x):
        part = np.diagonal(np.outer(x, x)) * 1
        part[0] = 1.0
        return part.sum()

    return [(mixad.grad(written)(X), 2 * (6.0 - X)), (mixad.grad(copied)(X), [0.0, 4.0, 6.0])]


def follow_a_ufunc_that_reduces():
    return grad(lambda x: np.log(np.exp(x).sum()))


def follow_period_that_is_differentiated():
    p = np.asarray(3.0)
    got = mixad.grad(lambda p: np.unwrap(p * X / 4, period=mixad.stop_gradient(p)).sum())(p)
    return [(got, 6.0 / 4)]


def follow_condition_that_is_a_list_of_numbers():
    got = mixad.grad(lambda x: np.select([np.asarray([1, 0, 1]) != 0], [x]).sum())(X)
    return [(got, [1.0, 0.0, 1.0])]


def follow_adjoint():
    z = np.asarray([[1 + 2j, 3.0 - 1j], [0.5j, 2.0]])
    got = mixad.grad(lambda z: (z.mT.conj() @ z).sum().real)(z)
    real = mixad.grad(lambda x: (x.mT @ x).sum())(z.real)
    return [(got, 2 * z.sum(1, keepdims=True) * np.ones(2)), (real, got.real)]


def follow_method_of_a_constant():
    got = mixad.grad(lambda x: np.where(np.ones(3, like=x) == 1, x * x, x).sum())(X)
    return [(got, 2 * X)]


# -- lazy arrays -----------------------------------------------------------------------------------


def dask_x():
    import dask.array

    return dask.array.from_array(X)


def follow_dask_elements():
    x = dask_x()
    chosen = mixad.grad(lambda x: np.where(x > 1.5, x * x, x).sum())(x)
    kernel = mixad.broadcast(lambda x: x * x if x > 1.5 else x)
    decorated = mixad.grad(lambda x: kernel(x).sum())(x)
    before = mixad.grad(lambda x, sign: (x * sign).sum())(x, 1 if x[0].compute() > 0 else -1)
    expected = [1.0, 4.0, 6.0]
    return [
        (chosen.compute(), expected),
        (decorated.compute(), expected),
        (before.compute(), ONE),
    ]


def follow_dask_arrays_of_unknown_shape():
    x = dask_x()
    where = mixad.grad(lambda x: np.where(x > 1.5, x * x, 0.0).sum())(x)
    known = x[x > 1.5]
    known.compute_chunk_sizes()
    return [
        (where.compute(), [0.0, 4.0, 6.0]),
        (mixad.grad(squares)(known).compute(), [4.0, 6.0]),
    ]


def follow_a_loop_over_numpys_arrays_beside_dasks():
    import dask.array

    x = dask_x()
    f = mixad.grad(lambda w: (x * mixad.map(lambda a: a * a, w)).sum())
    return [(f(dask.array.asarray(X)).compute(), 2 * X * X)]


def follow_to_write_a_lazy_number_into_an_array_of_numpy():
    import dask.array

    x = dask_x()

    def loss(w):
        w[0] = x.sum()
        return w.sum()

    return [(mixad.grad(loss)(dask.array.asarray(X)).compute(), [0.0, 1.0, 1.0])]


def follow_dask_arrays_on_another_backend():
    return [(product.with_options(backend="cpu")(dask_x().compute(), 2.0), 2 * X)]


def follow_kinks_of_dask_arrays():
    x = dask_x().compute()
    return [(bool(product.kinks(x, x)), False)]


def follow_lazy_places():
    x = dask_x()
    places = np.asarray(np.argmax(x.compute()))
    return [(mixad.grad(lambda x: (np.delete(x, places) ** 2).sum())(x).compute(), [2.0, 4.0, 0.0])]


# -- loops that are differentiated where they end --------------------------------------------------


def follow_sum_as_a_fixed_point():
    @mixad.broadcast(loops="unrolled")
    def exponential(x):
        term, total, n = 1.0, 1.0, 0
        while abs(term) > 1e-16:
            n += 1
            term = term * x / n
            total = total + term
        return total

    return [(mixad.grad(exponential)(1.0), np.e)]


def follow_fixed_point_that_is_changed():
    @mixad.broadcast(loops="implicit")
    def twice_the_root(a):
        x = 1.0
        while True:
            step = (x * x - a) / (2.0 * x)
            x = x - step
            if abs(step) < 1e-11:
                break
        return 2.0 * x

    return [(mixad.grad(twice_the_root)(2.0), 1 / np.sqrt(2.0))]


def follow_fixed_point_of_too_many():
    @mixad.broadcast(loops="unrolled")
    def ring(a):
        p, q, r, s, t, u, v, w, x = 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9
        for _ in range(9):
            p, q, r, s, t, u, v, w, x = q, r, s, t, u, v, w, x, a * p
        return x

    return [(mixad.grad(ring)(0.5), 0.9)]


# -- vectors and structures ------------------------------------------------------------------------


def follow_signature_that_is_none():
    first = mixad.broadcast(lambda a, b, n: a[0] * b[1] * n, signature="(3),(n),()->()")
    return [(first(X, X, 2.0), 4.0)]


def follow_signature_of_another_type():
    scaled = mixad.broadcast(lambda a, x: (a[0] * x, a[1] * x, a[2] * x), signature="(3),()->(3)")
    return [(scaled(X, 2.0), 2 * X)]


def follow_signature_with_no_length():
    return [(dot.with_options(signature="(1),(n)->()")(X[:1], X[:1]), 1.0)]


def follow_signature_of_an_unknown_length():
    both = mixad.broadcast(lambda a, b: (a[0], b[0]), signature="(3),(n)->(2)")
    return [(both(X, X), [1.0, 1.0])]


def follow_signature_of_other_parameters():
    scaled = mixad.broadcast(lambda a, x: a[0] * x, signature="(3),()->()")
    return [(scaled(X, X), X)]


def follow_vector_of_another_length():
    got = mixad.grad(lambda b: dot(X, b))(2 * X)
    return [(dot(X, X[:3]), 14.0), (got, X)]


def follow_vector_without_its_axis():
    return [(dot(X, np.full(3, 2.0)), 12.0), (dot(X, [2.0, 2.0, 2.0]), 12.0)]


def follow_vector_of_rows():
    return [
        (dot(np.asarray([[1.0, 2.0], [3.0, 4.0]]), X[:2]), [5.0, 11.0]),
        (dot([1.0, 2.0], X[:2]), 5.0),
    ]


def follow_matrix_of_uneven_rows():
    trace = mixad.broadcast(lambda a, b: a[0, 0] * b[0] + a[1, 1] * b[1], signature="(2,n),(n)->()")
    return [(trace([[1.0, 2.0], [3.0, 4.0]], X[:2]), 9.0)]


@mixad.broadcast(signature="(n),()->()")
def total(a, n):
    s = 0.0
    for i in range(n):
        s += a[i]
    return s


LONG = np.arange(65.0)


def follow_vectors_that_are_too_long():
    return [(total(LONG, 65), LONG.sum()), (total(np.stack([LONG, 2 * LONG]), 3), [3.0, 6.0])]


def follow_loop_over_long_vector():
    return [(total(LONG, 65), LONG.sum())]


def follow_sum_of_long_vector():
    return [(total(LONG, 65), LONG.sum())]


def follow_length_of_long_vector():
    of_first = mixad.broadcast(signature="(n),()->()")(lambda a, n: a[1] / n)
    return [(of_first(LONG, 65), 1 / 65)]


def follow_shape_of_long_vector():
    return follow_length_of_long_vector()


def follow_arithmetic_of_long_vector():
    doubled = mixad.broadcast(signature="(n),()->()")(lambda a, i: a[i] * 2.0)
    return [(doubled(LONG, np.arange(3)), [0.0, 2.0, 4.0])]


def follow_whole_array_with_a_core():
    def of_whole(a: mixad.Array, i):
        return a[i]

    core = mixad.broadcast(signature="(n),()->()")(lambda a, i: a[i])
    whole = mixad.broadcast(signature="(),()->()")(of_whole)
    rows = np.asarray([1, 0])
    return [(core(X, rows), X[rows]), (whole(X, rows), X[rows])]


def follow_array_where_the_signature_has_a_number():
    number = mixad.broadcast(lambda v: v[0], signature="(n)->()")
    array = mixad.broadcast(lambda v: v, signature="(n)->(n)")
    return [(number(X), 1.0), (array(X), X)]


def follow_result_without_its_core():
    both = mixad.broadcast(lambda a, b: (a[0] * b[0], a[1] * b[1]), signature="(n),(n)->(2)")
    return [(both(X, X), [1.0, 4.0]), (dot(X, X), 14.0)]


def follow_results_of_another_number():
    both = mixad.broadcast(lambda a, b: (a[0] * b[0], a[1]), signature="(n),(n)->(),()")
    return [(both(X, X)[1], 2.0), (dot.with_options(signature="(n),(n)->()")(X, X), 14.0)]


def follow_list_in_a_structure():
    got = mixad.broadcast(lambda s: s.v * s.x.x)(Motion(Motion(1.0, 2.0), X))
    return [(got, X)]


def follow_text_in_a_structure():
    got = mixad.broadcast(lambda s: s.x * (2 if s.names == "fast" else 1))(Named(X, "fast"))
    return [(got, 2 * X)]


def follow_static_field_that_may_change():
    return [(mixad.broadcast(lambda s: s.x)(Named(X, ("a",))), X)]


def follow_unknown_field_in_wrt():
    f = mixad.broadcast(lambda s: s.x * s.v)
    return [(f.duals(Motion(X, 2 * X), wrt="s.x").partials["s.x"], 2 * X)]


def follow_field_that_is_not_there_to_be_replaced():
    return [(mixad.broadcast(lambda m: m._replace(x=1.0).x * m.v)(Motion(X, X)), X)]


def follow_replacing_fields_by_a_method_of_the_class():
    return [(mixad.broadcast(lambda m: Motion(2 * m[0], 1.0).x)(Motion(X, X)), 2 * X)]


def follow_replacing_fields_of_what_is_no_dataclass():
    import dataclasses

    return [(mixad.broadcast(lambda s: dataclasses.replace(s, x=s.x * s.x).x)(Named(X)), X * X)]


def follow_method_of_a_structure():
    got = mixad.grad(lambda x: mixad.broadcast(lambda s, x: Spring.force(s, x))(Spring(X), x).sum())
    return [(got(X), -X)]


def follow_comparison_of_tuples():
    f = mixad.broadcast(lambda x, y: 7.0 if x == 1.0 and y == 2.0 else y)
    return [(f(X, np.asarray([2.0, 2.0, 3.0])), [7.0, 2.0, 3.0])]


# -- rules of users' own functions -----------------------------------------------------------------


def _ruled(rule, function=lambda x: x * x):
    kernel = squared(rule, function)
    return mixad.grad(lambda x: kernel(x).sum())(X)


def follow_rule_of_other_parameters():
    return [(_ruled(lambda x: 2.0 * x), 2 * X), (_ruled(lambda x, value: 2.0 * value / x), 2 * X)]


def follow_rule_of_two_numbers():
    first = mixad.scalar_rule(lambda x: 2.0 * x)(lambda x: x * x)
    second = mixad.scalar_rule(lambda x: 3.0)(lambda x: 3.0 * x)
    both = mixad.broadcast(lambda x: first(x) + second(x))
    return [(mixad.grad(lambda x: both(x).sum())(X), 2 * X + 3)]


def follow_rule_of_a_tuple():
    first = mixad.scalar_rule(lambda x: 1.0)(lambda x: x)
    second = mixad.scalar_rule(lambda x: 2.0)(lambda x: 2.0 * x)
    return [
        (mixad.grad(lambda x: mixad.broadcast(lambda x: first(x) * second(x))(x).sum())(X), 4 * X)
    ]


def follow_rule_with_too_many_partials():
    return [(_ruled(lambda x: 2.0 * x), 2 * X), (_ruled(lambda x: (2.0 * x,)), 2 * X)]


def follow_rule_that_gives_a_bool():
    return [(_ruled(lambda x: np.where(x > 1.5, 1, 0)), [0.0, 1.0, 1.0])]


def follow_rule_that_reads_an_array():
    own = mixad.scalar_rule(lambda x, w: (2.0 * x * w, x * x))(lambda x, w: x * x * w)
    kernel = mixad.broadcast(lambda x, w: own(x, w))
    return [(mixad.grad(lambda x: kernel(x, X).sum())(X), 2 * X * X)]


def follow_partial_that_is_none():
    kernel = squared(lambda x: None)
    stopped = mixad.grad(lambda x: (kernel(mixad.stop_gradient(x)) * x).sum())(X)
    return [(_ruled(lambda x: 2.0 * x), 2 * X), (stopped, X * X + 1)]


def follow_derivative_in_what_a_rule_does_not_know():
    own = mixad.scalar_rule(lambda x, w: (2.0 * w * x, x * x))(lambda x, w: w * x * x)
    more = mixad.grad(lambda w: mixad.broadcast(lambda x: own(x, w))(X).sum())(3.0)

    def stopped(w):
        fixed = mixad.stop_gradient(w)
        inner = mixad.scalar_rule(lambda x: 2.0 * fixed * x)(lambda x: fixed * x * x)
        return w * mixad.broadcast(lambda x: inner(x))(X).sum()

    return [(more, 14.0), (mixad.grad(stopped)(3.0), 42.0)]


def follow_rule_of_a_complex_number():
    own = mixad.scalar_rule(lambda x, y: (2.0 * x, 2.0 * y))(lambda x, y: x * x + y * y)
    got = mixad.grad(lambda z: mixad.broadcast(lambda z: own(z.real, z.imag))(z).sum())(X + 2j)
    return [(got, 2 * (X + 2j))]


# -- kernels over types that have rules of their own -----------------------------------------------


def _strict(values, dtype):
    return array_api_strict.asarray(values, dtype=getattr(array_api_strict, dtype))


def follow_strict_mixture():
    n, x = _strict([1, 2, 3], "int32"), _strict(X, "float64")
    got = mixad.grad(lambda x: _total(mixad.broadcast(lambda n, x: float(n) * x)(n, x)))(x)
    return [(np.from_dlpack(got), [1.0, 2.0, 3.0])]


def _total(x):
    return x.__array_namespace__().sum(x)


def follow_strict_sine():
    n = _strict([1, 2, 3], "int32")
    got = mixad.broadcast(lambda n: np.sin(np.float32(n)))(n)
    return [(np.from_dlpack(got), np.sin(np.asarray([1, 2, 3], "f4")))]


def follow_strict_division():
    n, m = _strict([1, 2, 3], "int32"), _strict([2, 2, 2], "int32")
    got = mixad.broadcast(lambda n, m: (float(n) / float(m), n // m))(n, m)
    return [(np.from_dlpack(got[0]), [0.5, 1.0, 1.5]), (np.from_dlpack(got[1]), [0, 1, 1])]


def follow_strict_complex():
    x, n = _strict(X, "float64"), _strict([1, 2, 3], "int32")
    got = mixad.broadcast(lambda x, n: (x * 1j + float(n)).real)(x, n)
    return [(np.from_dlpack(got), [1.0, 2.0, 3.0])]


def follow_u64_comparison():
    n, m = np.asarray([1, 5], "u8"), np.asarray([2, -1], "i8")
    return [(mixad.broadcast(lambda n, m: 1.0 if np.int64(n) < m else 0.0)(n, m), [1.0, 0.0])]


def _narrow(other):
    import torch

    x = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    y = torch.tensor([3, 4], dtype=getattr(torch, other))
    got = mixad.broadcast(lambda x, y: float(x) * float(y))(x, y)
    return [(got.to(torch.float64).numpy(), [3.0, 8.0])]


def follow_mixture_of_narrow_floats():
    return _narrow("float16")


def follow_integers_beside_bfloat16():
    return _narrow("int32")


def follow_frozen_distribution_of_scipy():
    from scipy import stats

    density = stats.multivariate_normal(np.zeros(3))
    logarithm = mixad.custom_vjp(density.logpdf)
    logarithm.defvjp(lambda x: (density.logpdf(x), x), lambda x, g: (-g * x,))
    return [(mixad.grad(lambda x: 2 * logarithm(x))(X), -2 * X)]


def follow_function_of_jax():
    import jax.numpy as jnp

    return [(mixad.grad(lambda x: np.sin(x).sum())(x), np.cos(X)) for x in (X, jnp.asarray(X))]


def follow_array_of_jax():
    return [(mixad.grad(lambda x: np.square(x).sum())(X), 2 * X)]


follow_transform_of_jax = follow_array_of_jax


def follow_sum_of_a_traced_array():
    def shares(x):
        result = x.sum()
        return (mixad.broadcast(lambda v: v / result)(x) ** 2).sum()

    total = X.sum()
    expected = 2 * X / total**2 - 2 * (X**2).sum() / total**3
    return [(mixad.grad(shares)(X), expected)]


def follow_product_of_a_traced_array():
    def shares(x):
        result = x.prod(axis=0)
        return mixad.broadcast(lambda v: v / result)(x).sum()

    return [(mixad.grad(shares)(X), 1 / X.prod() - X.sum() / X.prod() / X)]


def follow_trace_without_an_element():
    (last,) = product.trace(X, X, at=(2,)).returned
    return [(last.primal, X[2] ** 2), (last.partials["x"], X[2])]


def follow_trace_of_nothing():
    return [(product.trace(np.ones((3, 1)), 1.0, at=(0, 0)).returned[0].primal, 1.0)]


def follow_trace_with_many_inputs():
    total = mixad.broadcast(lambda v: sum(v), signature="(n)->()")
    trace = total.trace(np.ones((2, 11)), at=0, wrt=("v[0]", "v[10]"))
    return [(list(trace.returned[0].partials.values()), [1.0, 1.0])]


def follow_list_of_arrays():
    return [(product(np.stack([X, X]), X), [X**2, X**2])]


def follow_list_of_traced_values():
    return [(mixad.grad(lambda x: product(np.stack([x, x]), 1.0).sum())(2.0), 2.0)]


def follow_list_of_rows_of_several_lengths():
    return [(product([[1.0, 2.0], [3.0, 4.0]], ONE[:2]), [[1.0, 2.0], [3.0, 4.0]])]
