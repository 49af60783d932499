"""Calls that are refused, each for one reason: what transforms, arrays and backends say."""

import math
import os
from types import SimpleNamespace

import array_api_strict
import numpy as np

import mixad
from mixad import config, special
from mixad.backends.hookspecs import API_VERSION, BackendSpec, Capability, hookimpl
from mixad.backends.registry import PluginSource, Registry
from mixad.errors import BackendError

HUGE = 2**70
X = np.asarray([1.0, 2.0, 3.0])
STRICT = array_api_strict.ones(3)


@mixad.broadcast
def product(x, y):
    return x * y


def squares(x):
    return (x * x).sum()


def inside(operation):
    """Do something with a value that is being differentiated."""
    return mixad.grad(operation)(X.copy())


# -- transforms ------------------------------------------------------------------------------------


def refuse_no_function():
    mixad.grad(3.0)


def refuse_kernel_of_a_gradient():
    mixad.broadcast(mixad.grad(lambda x: x * x))


def refuse_kernel_of_a_pullback():
    _, pullback = mixad.vjp(lambda x: x * x, 2.0)
    mixad.broadcast(pullback)


def refuse_kernel_of_a_transform():
    mixad.broadcast(mixad.value_and_grad)


def refuse_kernel_of_a_jacobian():
    mixad.broadcast(mixad.jacfwd(lambda x: x * x))


def refuse_kernel_of_a_checkpoint():
    mixad.broadcast(mixad.checkpoint(squares))


def refuse_kernel_of_a_function_with_a_rule():
    mixad.broadcast(mixad.custom_vjp(squares))


def refuse_argnums_text():
    mixad.grad(squares, argnums="x")(X)


def refuse_argnums_out_of_range():
    mixad.grad(squares, argnums=1)(X)


def refuse_argnums_twice():
    mixad.grad(product, argnums=(0, -2))(X, X)


def refuse_whole_number():
    mixad.grad(squares)(3)


def refuse_text():
    mixad.grad(squares)("x")


def refuse_whole_numbers():
    mixad.grad(squares)(np.arange(3))


def refuse_complex():
    mixad.grad(squares)(X + 1j)


def refuse_no_scalar():
    mixad.grad(lambda x: x * x)(X)


def refuse_several_results():
    mixad.grad(lambda x: (x.sum(), x.sum()))(X)


def refuse_missing_return():
    mixad.grad(lambda x: None)(X)


def refuse_result_without_gradient():
    mixad.grad(lambda x: np.asarray(3))(X)


def refuse_result_that_is_no_array():
    mixad.grad(lambda x: "text")(X)


def refuse_aux_without_pair():
    mixad.grad(squares, has_aux=True)(X)


def refuse_single_primal():
    mixad.value_and_vjp(squares, X, 1.0)


def refuse_structure_of_cotangent():
    mixad.value_and_vjp(lambda x: x * x, (X,), (X, X))


def refuse_text_as_cotangent():
    mixad.value_and_vjp(lambda x: x * x, (X,), "text")


def refuse_shape_of_cotangent():
    mixad.value_and_vjp(lambda x: x * x, (X,), np.ones(2))


def refuse_library_of_cotangent():
    mixad.value_and_vjp(lambda x: x * x, (X,), STRICT)


def refuse_mode_of_jacobian():
    mixad.jacobian(squares, mode="backward")


def refuse_single_tangent():
    mixad.jvp(squares, (X,), X)


def refuse_number_of_tangents():
    mixad.jvp(product, (X, X), (X,))


def refuse_structure_of_tangent():
    mixad.jvp(squares, (X,), ([X],))


def refuse_shape_of_tangent():
    mixad.linearize(squares, X)[1](np.ones(2))


def refuse_text_as_tangent():
    mixad.jvp(squares, (X,), ("text",))


# -- rules of the user's own, checkpoints ----------------------------------------------------------


def ruled(bwd, f=lambda x: x * x):
    """Take the gradient of a function with a backward rule."""
    custom = mixad.custom_vjp(f)
    custom.defvjp(lambda x: (f(x), x), bwd)
    return mixad.grad(lambda x: custom(x).sum())(X)


def pushed(rule, f=lambda x: x * x):
    """Push a tangent through a function with a forward rule."""
    custom = mixad.custom_jvp(f)
    custom.defjvp(rule)
    return mixad.jvp(custom, (X,), (X,))


def refuse_function_without_rule():
    mixad.grad(lambda x: mixad.custom_vjp(squares)(x))(X)


def refuse_residuals_without_value():
    custom = mixad.custom_vjp(squares)
    custom.defvjp(squares, lambda x, g: (g * x,))
    mixad.grad(custom)(X)


def refuse_cotangent_without_tuple():
    ruled(lambda x, g: g * x)


def refuse_number_of_ruled_cotangents():
    ruled(lambda x, g: (g * x, None))


def refuse_structure_of_ruled_cotangent():
    ruled(lambda x, g: ({"x": g},))


def refuse_shape_of_ruled_cotangent():
    ruled(lambda x, g: ((g * x).sum(),))


def refuse_tangent_without_value():
    pushed(lambda primals, tangents: tangents[0])


def refuse_structure_of_ruled_tangent():
    pushed(lambda primals, tangents: (primals[0], list(tangents)))


def refuse_shape_of_ruled_tangent():
    pushed(lambda primals, tangents: (primals[0], tangents[0][:1]))


def refuse_tangent_of_its_own():
    pushed(lambda primals, tangents: (primals[0], primals[0]))


def refuse_nondiff_argument_that_is_traced():
    custom = mixad.custom_jvp(product, nondiff_argnums=(1,))
    custom.defjvp(lambda y, primals, tangents: (primals[0] * y, tangents[0] * y))
    mixad.grad(lambda x: custom(x, x).sum())(X)


def refuse_nondiff_argnums_out_of_range():
    mixad.custom_vjp(squares, nondiff_argnums=(1,))(X)


def refuse_captured_value_of_a_rule():
    mixad.grad(lambda w: pushed_by(w)(w).sum())(X)


def pushed_by(w):
    custom = mixad.custom_jvp(lambda x: x * w)
    custom.defjvp(lambda primals, tangents: (custom(*primals), tangents[0] * w))
    return custom


def refuse_text_from_a_rule():
    ruled(lambda x, g: (g,), f=lambda x: "text")


def refuse_checkpoint_of_what_changes():
    random = np.random.default_rng(0)

    def noisy(x):
        return x * random.random(3)

    mixad.grad(lambda x: mixad.checkpoint(noisy)(x).sum())(X)


def refuse_checkpoint_of_no_function():
    mixad.checkpoint(X)


# -- values that are differentiated ----------------------------------------------------------------


def refuse_use_after_the_end():
    kept = []
    mixad.grad(lambda x: kept.append(x) or x.sum())(X)
    kept[0] + 1


def refuse_float():
    mixad.grad(lambda x: math.exp(x))(1.0)


def refuse_complex_number():
    mixad.grad(lambda x: complex(x))(1.0)


def refuse_item():
    mixad.grad(lambda x: x.item())(1.0)


def refuse_list():
    inside(lambda x: x.tolist())


def refuse_assignment_to_a_number():
    def operation(x):
        x[()] = 1.0

    mixad.grad(operation)(2.0)


def refuse_view_of_what_was_written():
    def operation(x):
        x[0:][0] = 1.0
        return x.sum()

    inside(operation)


def refuse_change_in_place_to_another_shape():
    def operation(x):
        x += np.ones((2, 3))
        return x.sum()

    inside(operation)


def refuse_change_in_place_to_another_dtype():
    def operation(x):
        x += mixad.stop_gradient(STRICT)
        return x.sum()

    mixad.grad(operation)(array_api_strict.ones(3, dtype=array_api_strict.float32))


def refuse_adding_into_an_array():
    def operation(x):
        total = np.zeros(3)
        total += x
        return total.sum()

    inside(operation)


def refuse_method_of_ufunc():
    inside(lambda x: np.subtract.accumulate(x).sum())


def refuse_function():
    inside(lambda x: np.polyfit(x, x, 1))


def refuse_method():
    inside(lambda x: x.byteswap().sum())


def refuse_function_that_makes_an_array():
    inside(lambda x: np.asarray(x).sum())


def refuse_option():
    inside(lambda x: np.var(x, mean=0.5))


def refuse_too_many_arguments():
    inside(lambda x: x.mean(0, None, None, False, 1, 2, 3, 4))


def refuse_operand():
    inside(lambda x: np.add(x, "text").sum())


def refuse_index():
    inside(lambda x: x["rows"].sum())


def refuse_order_of_reshape():
    inside(lambda x: x.reshape((3, 1), order="A").sum())


def refuse_dtype_of_mean():
    inside(lambda x: np.mean(x, dtype=np.int64))


def refuse_attribute():
    inside(lambda x: x.flat)


def refuse_change_of_what_is_needed():
    x = X.copy()

    def loss(w):
        found = (w * x * w).sum()
        x[0] = 9.0
        return found

    os.environ["MIXAD_CHECK"] = "full"
    try:
        mixad.grad(loss)(X)
    finally:
        del os.environ["MIXAD_CHECK"]


def refuse_libraries_in_an_operation():
    inside(lambda x: (x @ STRICT).sum())


def refuse_mixture_by_the_library():
    mixad.grad(lambda x: (x + array_api_strict.ones(3, dtype=array_api_strict.int32)).sum())(STRICT)


# -- kernels ---------------------------------------------------------------------------------------


def refuse_argument():
    product(X, "text")


def refuse_dates():
    product(X, np.zeros(3, "M8[s]"))


def refuse_captured_array_of_long_complex():
    z = (X + 1j).astype("clongdouble")
    mixad.broadcast(lambda x: x * z)(X)


def refuse_byte_order():
    product(X, X.astype(">f8"))


def refuse_subclass_of_array():
    class Masked(np.ndarray):
        pass

    product(X, X.view(Masked))


def refuse_shapes():
    product(X, np.ones(2))


def refuse_libraries():
    product(X, STRICT)


def refuse_mixture_of_kinds():
    product(STRICT, array_api_strict.ones(3, dtype=array_api_strict.int32))


def refuse_large_integer():
    product(X, 2**70)


def refuse_large_integer_from_outside():
    mixad.broadcast(lambda x: x * HUGE)(X)


def refuse_gradient_of_indexed_array():
    def loss(table):
        return mixad.broadcast(lambda i: table[i])(np.asarray([0, 1])).sum()

    mixad.grad(loss)(X)


def refuse_missing_derivative():
    def slope(x):
        return mixad.grad(lambda n: mixad.broadcast(lambda n: special.polygamma(n, 2))(n).sum())(x)

    slope(X)


def refuse_index_in_a_lambda():
    table = np.asarray([1.0, 2.0])
    mixad.broadcast(lambda i: 1 + table[i] * 2)(np.asarray([0, 5]))


def refuse_unknown_wrt():
    product.duals(X, X, wrt="z")


def refuse_wrt_of_integers():
    product.duals(X, np.arange(3), wrt="y")


def refuse_too_many_duals():
    many = mixad.broadcast(lambda a, b, c, d, e, f, g, h, i, j, k: a * b * c * d * e * f * g)
    many.duals(*(X,) * 11)


def refuse_array_for_special_function():
    special.sin(X)


def refuse_number_of_arguments_for_special_function():
    special.sin(1.0, 2.0)


# -- options and backends --------------------------------------------------------------------------


def refuse_dtype_for_special_function():
    special.sin(np.complex64(1.0))


def refuse_strategy():
    mixad.broadcast(strategy="fast")


def refuse_reverse_through_a_loop():
    @mixad.broadcast(strategy="reverse")
    def power(x, n):
        result = 1.0
        for _ in range(n):
            result *= x
        return result

    mixad.grad(lambda x: power(x, np.asarray([1, 2, 3])).sum())(X.copy())


def refuse_placement():
    product.with_options(placement="backward")


def refuse_placement_with_strategy():
    product.with_options(strategy="reverse").with_options(placement="forward")


def refuse_chunk():
    product.with_options(chunk=11)


def refuse_empty_backend():
    product.with_options(backend="")


def refuse_variable():
    os.environ["MIXAD_NUM_THREADS"] = "many"
    try:
        config.NUM_THREADS.read()
    finally:
        del os.environ["MIXAD_NUM_THREADS"]


def _registry(load, **options):
    """Return a registry of one backend, for float64 arrays of NumPy on the CPU."""
    capability = Capability(("numpy",), ("cpu",), frozenset({"float64"}), native=True)
    spec = BackendSpec("abacus", API_VERSION, capability, load, "install abacus-beads")
    plugin = SimpleNamespace(mixad_backends=hookimpl(lambda: [spec]))
    return Registry([PluginSource("abacus", "dist-abacus 1.0", lambda: plugin)], **options)


def _without_beads():
    raise BackendError("no beads on this machine")


def refuse_backend_that_is_not_there():
    _registry(_without_beads).backend("bead")


def refuse_backend_that_fails():
    _registry(_without_beads).backend("abacus")


def refuse_blocked_backend():
    _registry(_without_beads, block=frozenset({"abacus"})).backend("abacus")


def refuse_backend_that_is_not_allowed():
    _registry(_without_beads, allow=frozenset({"cpu"})).backend("abacus")


def refuse_where_none_serves():
    _registry(_without_beads).resolve("numpy", "cpu", frozenset({"float64"}))


def refuse_dtype_that_none_serves():
    _registry(_without_beads).resolve("numpy", "cpu", frozenset({"float64", "int8"}))


# -- tensors of torch ------------------------------------------------------------------------------


def refuse_torch_that_requires_grad():
    import torch

    product(torch.ones(3, requires_grad=True), 2.0)


def refuse_torch_without_elements():
    import torch

    product(torch.ones(3, device="meta"), 2.0)


def refuse_torch_sparse():
    import torch

    product(torch.ones(3).to_sparse(), 2.0)


def refuse_torch_under_vmap():
    import torch

    torch.func.vmap(lambda x: product(x, 2.0))(torch.ones(3))


def refuse_torch_subclass():
    import torch

    class Named(torch.Tensor):
        pass

    product(torch.ones(3).as_subclass(Named), 2.0)


def refuse_torch_change_in_place():
    import torch

    def loss(x):
        torch.ones(3).add_(x)

    mixad.grad(loss)(torch.ones(3))


def refuse_duals_of_a_complex_argument():
    product.duals(X + 1j, X, wrt="x")


def refuse_torch_compiled_function():
    import torch

    mixad.grad(lambda x: torch.linalg.lu_factor(x)[0].sum())(torch.eye(2))


def refuse_complex_to_real():
    mixad.grad(lambda x: x.astype(float).sum())(X + 1j)


def refuse_complex_into_real():
    def loss(x):
        x = x * 1
        x[0] = x[1] * 1j
        return x.sum()

    mixad.grad(loss)(X)


def refuse_order_of_complex():
    mixad.grad(lambda x: np.max(x))(X + 1j)


def refuse_kernel_function_of_complex():
    mixad.grad(lambda x: np.hypot(x, x))(X + 1j)


def refuse_jacobian_of_complex():
    mixad.jacobian(lambda x: x * x)(X + 1j)


def refuse_phase_of_an_eigenvector():
    mixad.grad(lambda x: np.linalg.eigh(x)[1].imag.sum())(np.diag(X) + 0j)


def refuse_repeated_eigenvalues_of_eig():
    mixad.grad(lambda x: np.linalg.eigvals(x).real.sum())(np.eye(3))


def refuse_kernel_of_a_ufunc():
    mixad.broadcast(np.sin)


def refuse_kernel_of_an_op():
    mixad.broadcast(special.sigmoid)


def refuse_function_without_forward_rule():
    mixad.jvp(mixad.custom_jvp(squares), (X,), (X,))


def refuse_rule_that_is_not_linear():
    custom = mixad.custom_jvp(squares)
    custom.defjvp(lambda primals, tangents: (squares(*primals), abs(tangents[0]).sum()))
    mixad.grad(custom)(X)


def refuse_keyword_of_a_rule():
    custom = mixad.custom_jvp(lambda x, *, k: x * k)
    custom.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    mixad.jvp(lambda x: custom(x, k=2.0), (X,), (X,))


def refuse_captured_value_of_a_backward_rule():
    def loss(w):
        custom = mixad.custom_vjp(lambda x: x * 2)
        custom.defvjp(lambda x: (x * 2, w), lambda kept, g: (g * kept,))
        return custom(X).sum() + custom(w).sum()

    mixad.grad(loss)(X)


def refuse_order_of_checks():
    mixad.check_grads(squares, (X,), order=0)


def refuse_modes_of_checks():
    mixad.check_grads(squares, (X,), modes=("backward",))


def refuse_vectors_of_a_full_svd():
    mixad.grad(lambda x: np.linalg.svd(x)[0].sum())(np.ones((3, 2)))


def refuse_complete_qr():
    mixad.grad(lambda x: np.linalg.qr(x, mode="complete")[0].sum())(np.ones((3, 2)))


def refuse_cholesky_of_one_triangle():
    mixad.grad(lambda x: np.linalg.cholesky(np.tril(x)).sum())(np.ones((3, 3)) + np.eye(3))


def refuse_eigenvalues_of_what_is_not_hermitian():
    mixad.grad(lambda x: np.linalg.eigvalsh(x).sum())(np.eye(3) + 1j)


def refuse_logarithm_of_a_determinant_that_is_zero():
    mixad.grad(lambda x: np.linalg.slogdet(x)[1])(np.diag([1.0, 2.0, 0.0]))


def refuse_shares_of_a_quantile_that_are_differentiated():
    mixad.grad(lambda q: np.quantile(X, q))(np.asarray(0.5))


def refuse_derivative_of_the_tangent_of_a_norm_that_is_zero():
    mixad.grad(lambda x: mixad.jvp(np.linalg.norm, (x,), (np.ones(2),))[1])(np.zeros(2))


def refuse_qr_of_dependent_columns():
    mixad.grad(lambda x: np.linalg.qr(x)[1].sum())(np.diag([1.0, 2.0, 0.0]))


def refuse_vectors_without_full_rank():
    mixad.grad(lambda x: np.linalg.svd(x, full_matrices=False)[0].sum())(np.outer(X, [1.0, 2.0]))


def refuse_pinv_without_full_rank():
    mixad.grad(lambda x: np.linalg.pinv(x).sum())(np.zeros((3, 2)))


def refuse_condition_of_numbers():
    mixad.grad(lambda x: x.__array_namespace__().where(x, x, x).sum())(X)


def refuse_captures_in_a_compiled_graph():
    scale = 2.0

    @mixad.broadcast
    def scaled(x):
        return x * scale

    from mixad.graph_calls import call_in_graph

    call_in_graph(scaled._number, (X,), {})


# -- functions of arrays ---------------------------------------------------------------------------


def refuse_padding_that_computes():
    inside(lambda x: np.pad(x, 1, "mean").sum())


def refuse_moving_to_another_device():
    inside(lambda x: x.to_device("gpu").sum())


def refuse_an_array_on_another_device():
    xp = mixad.namespace_of(array_api_strict)
    device = array_api_strict.Device("device1")
    mixad.grad(lambda x: xp.sum(xp.asarray([x[0], x[1]], device=device)))(STRICT)


def refuse_joining_what_is_no_array():
    xp = mixad.namespace_of(np)
    inside(lambda x: xp.concat([x, [1.0]]).sum())


def refuse_norms_of_several_axes():
    inside(lambda x: np.linalg.norm(np.outer(x, x)[None], "nuc"))


def refuse_coordinates_that_do_not_fit():
    inside(lambda x: np.gradient(x, [0.0, 1.0]).sum())


def refuse_functions_of_scipy_of_other_libraries():
    from scipy.special import k0

    mixad.grad(lambda x: k0(x).sum())(STRICT)


def refuse_writing_to_a_diagonal():
    def written(x):
        np.diagonal(np.outer(x, x))[0] = 1.0

    inside(written)


def refuse_a_ufunc_that_reduces():
    inside(lambda x: np.logaddexp.reduce(x))


def refuse_an_index_that_is_traced():
    inside(lambda x: x[x[0]])


def refuse_conversion_to_complex():
    inside(lambda x: complex(x[0]))


def refuse_rounding_to_digits():
    inside(lambda x: round(x[0], 2))


def refuse_lists_of_numbers():
    inside(lambda x: sum(x.tolist()))


def refuse_export():
    inside(np.from_dlpack)


def refuse_pickling():
    import pickle

    inside(pickle.dumps)


def refuse_change_between_passes():
    x = X.copy()
    _, pullback = mixad.vjp(lambda x: (x * x).sum(), x)
    x[0] = 5.0
    pullback(1.0)


def refuse_dtypes_of_a_backend():
    _registry(_without_beads).backend("abacus", frozenset({"float32"}))


def refuse_a_graph_of_another_process():
    from mixad.tape.named_call import named_call

    named_call("squares.1")


# -- lazy arrays -----------------------------------------------------------------------------------


def dask_array():
    import dask.array

    return dask.array.ones(3)


def refuse_dask_elements():
    mixad.grad(lambda x: x.sum() if x[0] > 0 else -x.sum())(dask_array())


def refuse_dask_arrays_of_unknown_shape():
    x = dask_array()
    mixad.grad(squares)(x[x > 0])


def refuse_dask_arrays_beside_a_number():
    x = dask_array()
    mixad.grad(lambda a: (a * x).sum())(2.0)


def refuse_dask_arrays_on_another_backend():
    product.with_options(backend="cpu")(dask_array(), 2.0)


# -- what torch follows ----------------------------------------------------------------------------


def refuse_torch_dual_tensor():
    import warnings

    import torch
    from torch.autograd import forward_ad

    with warnings.catch_warnings(action="ignore"), forward_ad.dual_level():  # torch's own
        product(forward_ad.make_dual(torch.ones(3), torch.ones(3)), 2.0)


def refuse_torch_default_dtype():
    import torch

    torch.set_default_dtype(torch.float16)
    try:
        mixad.grad(squares)(torch.ones(3))
    finally:
        torch.set_default_dtype(torch.float32)


def refuse_torch_bits_of_elements():
    import torch

    mixad.grad(lambda x: x.view(torch.int32))(torch.ones(3))


def refuse_torch_moving_to_another_device():
    import torch

    mixad.grad(lambda x: x.to("meta").sum())(torch.ones(3))


def refuse_torch_dropout():
    import torch

    mixad.grad(lambda x: torch.nn.functional.dropout(x).sum())(torch.ones(3))


def refuse_torch_padding_by_elements():
    import torch

    mixad.grad(lambda x: torch.nn.functional.pad(x[None], (1, 1), "circular").sum())(torch.ones(3))


def refuse_torch_weights_of_smoothed_classes():
    import torch

    def loss(x):
        return torch.nn.functional.cross_entropy(
            x, torch.tensor([0, 1, 2]), x[0], label_smoothing=0.1
        )

    mixad.grad(loss)(torch.ones(3, 3))


def refuse_torch_functions_that_are_missing():
    import torch

    mixad.grad(lambda x: torch.mode(x))(torch.ones(3))


# -- loops that are differentiated where they end --------------------------------------------------


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


def refuse_fixed_point_of_too_many():
    @mixad.broadcast(loops="implicit")
    def ring(a):
        p, q, r, s, t, u, v, w, x = 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9
        while abs(x - p) > 1e-12:
            p, q, r, s, t, u, v, w, x = q, r, s, t, u, v, w, x, a * p
        return x

    mixad.grad(ring)(0.5)


def refuse_loops():
    product.with_options(loops="converged")


# -- kinks -----------------------------------------------------------------------------------------


def refuse_tolerance_of_kinks():
    product.kinks(X, X, tolerance=-1.0)


def refuse_kinks_of_dask_arrays():
    import dask.array

    lazy = dask.array.ones(3)
    product.kinks(lazy, lazy)


# -- audits ----------------------------------------------------------------------------------------


def refuse_what_a_backend_computes_wrongly():
    from mixad.backends.audit import Audit
    from mixad.kernel.spec import OutputRequest

    program = product._parsed((X, X), {})[0].program
    stored = (OutputRequest(0, 0),)
    audit = Audit((program,), stored, X.shape, "abacus", 1.0, lambda _, arguments: arguments[:1])
    audit([X, X], [X + X])


def refuse_jacobian_of_several_types():
    mixad.broadcast(lambda x: (x, x > 0.0)).jacobian(X)


def refuse_jacobian_by_nothing():
    mixad.broadcast(lambda n: n * 1.5).jacobian(np.arange(3))


def refuse_duals_of_complex_values():
    product.duals(X + 1j, X, wrt="y")


# -- vectors and structures ------------------------------------------------------------------------

from dataclasses import dataclass, field  # noqa: E402  (lines above are part of expected texts)
from typing import Any, NamedTuple  # noqa: E402


class Motion(NamedTuple):
    x: Any
    v: Any


@dataclass
class Named:
    x: Any
    names: Any = field(default=(), metadata={"static": True})


@mixad.broadcast(signature="(n),(n)->()")
def dot(a, b):
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


def refuse_signature_that_is_none():
    dot.with_options(signature="n,n->1")


def refuse_signature_of_another_type():
    dot.with_options(signature=3)


def refuse_signature_with_no_length():
    dot.with_options(signature="(0),(n)->()")


def refuse_signature_of_an_unknown_length():
    dot.with_options(signature="(3),(n)->(m)")


def refuse_signature_of_other_parameters():
    dot.with_options(signature="(3)->()")(X, X)


def refuse_vector_of_another_length():
    dot(X, X[:2])


def refuse_vector_without_its_axis():
    dot(X, 2.0)


def refuse_vector_of_rows():
    dot([[1.0, 2.0], [3.0, 4.0]], X)


def refuse_matrix_of_uneven_rows():
    dot.with_options(signature="(2,n),(n)->()")([[1.0, 2.0], [3.0]], X)


def refuse_vectors_that_are_too_long():
    dot(np.ones(33), np.ones(33))


def refuse_result_without_its_core():
    dot.with_options(signature="(n),(n)->(2)")(X, X)


def refuse_results_of_another_number():
    dot.with_options(signature="(n),(n)->(),()")(X, X)


def refuse_list_in_a_structure():
    mixad.broadcast(lambda s: s.v)(Motion([1.0, 2.0], X))


def refuse_text_in_a_structure():
    mixad.broadcast(lambda s: s.v)(Motion("fast", X))


def refuse_static_field_that_may_change():
    mixad.broadcast(lambda s: s.x)(Named(X, ["a"]))


def refuse_unknown_field_in_wrt():
    mixad.broadcast(lambda s: s.x * s.v).duals(Motion(X, X), wrt="s.mass")


# -- plain errors of mixad's own interface ---------------------------------------------------------


def refuse_wrt_that_is_no_name():
    product.duals(X, X, wrt=1)


def refuse_option_that_there_is_not():
    product.with_options(chunks=2)


def refuse_stage_that_there_is_not():
    product.source(X, X, stage="tree")


def refuse_stage_of_another_backend():
    product.with_options(backend="reference").source(X, X, stage="asm")


def refuse_namespace_of_a_number():
    mixad.namespace_of(3.0)


def refuse_version_of_the_standard():
    inside(lambda x: x.__array_namespace__(api_version="2019.01").sum(x))


# -- rules of users' own functions -----------------------------------------------------------------


def squared(rule, function=lambda x: x * x):
    own = mixad.scalar_rule(rule)(function)
    return mixad.broadcast(lambda x: own(x) + 1.0)


def refuse_rule_of_other_parameters():
    squared(lambda: 2.0)


def refuse_rule_of_two_numbers():
    squared(lambda x: 2.0 * x, lambda x: (x, x))(X)


def refuse_rule_of_a_tuple():
    own = mixad.scalar_rule(lambda x: 1.0)(lambda x: x)
    mixad.broadcast(lambda x: own((x, x)))(X)


def refuse_rule_with_too_many_partials():
    squared(lambda x: (2.0 * x, x))(X)


def refuse_rule_that_gives_a_bool():
    squared(lambda x: x > 0.0)(X)


def refuse_rule_that_reads_an_array():
    weights = np.ones(3)
    squared(lambda x: 2.0 * x * weights[0])(X)


def refuse_partial_that_is_none():
    kernel = squared(lambda x: None)
    mixad.grad(lambda x: kernel(x).sum())(X)


def refuse_derivative_in_what_a_rule_does_not_know():
    def f(w):
        own = mixad.scalar_rule(lambda x: 2.0 * x)(lambda x: w * x * x)
        return mixad.broadcast(lambda x: own(x))(X).sum()

    mixad.grad(f)(3.0)


def refuse_index_outside_after_very_many_turns():
    heights = np.zeros(150_000)

    @mixad.broadcast
    def above(limit):
        i = 0
        while heights[i] < limit:
            i += 1
        return heights[i] - limit

    above(X)


def refuse_checkpoint_that_writes_to_its_argument():
    def cut(x):
        x[0] = 0.0
        return x * x

    mixad.grad(lambda x: mixad.checkpoint(cut)(2.0 * x).sum())(X)


def refuse_torch_function_in_a_kernel():
    import torch

    mixad.broadcast(lambda x: torch.special.expit(x))(X)


def refuse_method_of_quantile():
    inside(lambda x: np.quantile(x, 0.5, method="hazen"))


def refuse_least_squares_without_full_rank():
    inside(lambda x: np.linalg.lstsq(np.stack([x, x]).T, X)[0].sum())


def refuse_period_that_is_differentiated():
    mixad.grad(lambda p: np.unwrap(p * X, period=p).sum())(np.asarray(3.0))


def refuse_method_of_a_constant():
    inside(lambda x: np.ones(3, like=x).choose([x, x]).sum())


import dataclasses  # noqa: E402  (lines above are part of expected texts)


def refuse_field_that_is_not_there_to_be_replaced():
    mixad.broadcast(lambda m: m._replace(mass=1.0))(Motion(X, X))


def refuse_replacing_fields_of_what_is_no_dataclass():
    mixad.broadcast(lambda m: dataclasses.replace(m, x=1.0))(Motion(X, X))


class Moved(Motion):
    def _replace(self, **changes):
        return Moved(2 * self[0], **changes)


def refuse_replacing_fields_by_a_method_of_the_class():
    mixad.broadcast(lambda m: m._replace(x=1.0))(Moved(X, X))


class Spring(NamedTuple):
    stiffness: Any

    def force(self, x):
        return -self.stiffness * x


def refuse_method_of_a_structure():
    mixad.broadcast(lambda spring, x: spring.force(x))(Spring(X), X)


def refuse_comparison_of_tuples():
    mixad.broadcast(lambda x, y: x if (x, y) == (1.0, 2.0) else y)(X, X)


def refuse_rule_of_a_complex_number():
    squared(lambda z: 2.0 * z)(1j * X)


def refuse_array_where_the_signature_has_a_number():
    mixad.broadcast(lambda v: v, signature="(n)->()")(X)


def refuse_lazy_places():
    x = dask_array()
    mixad.grad(lambda x: np.delete(x, np.argmax(x)).sum())(x)


def refuse_compiled_function_of_scipy():
    from scipy import linalg

    inside(lambda x: linalg.expm(x @ x.T).sum())


def refuse_position_that_is_no_number():
    mixad.custom_vjp(np.sin, nondiff_argnums=("x",))


def refuse_position_named_twice():
    mixad.custom_jvp(np.sin, nondiff_argnums=(0, 0))
