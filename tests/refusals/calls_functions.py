"""Calls that are refused: functions of arrays."""

import statistics

import array_api_strict
import numpy as np
from refused import refused
from subjects import STRICT, X, inside

import mixad


@refused("""
KernelTypeError: max of complex numbers, which have no order, is not available
  Instead: take it of real numbers: x.real, x.imag, abs(x)
""")
def refuse_order_of_complex():
    mixad.grad(lambda x: np.max(x))(X + 1j)


@refused("""
KernelTypeError: hypot of complex numbers is not defined, or its derivative is not available
  Instead: compute with real numbers: x.real, x.imag, abs(x)
""")
def refuse_kernel_function_of_complex():
    mixad.grad(lambda x: np.hypot(x, x))(X + 1j)


@refused("""
TracerError: eigh() of complex matrices: a function of the vectors that depends on their phases \
has no derivative, for they are not unique; differentiate one that does not, such as abs(v) or v @ \
conj(v).mT
""")
def refuse_phase_of_an_eigenvector():
    mixad.grad(lambda x: np.linalg.eigh(x)[1].imag.sum())(np.diag(X) + 0j)


@refused("""
TracerError: eig() of a matrix with repeated eigenvalues has no derivative: use eigh() if it is \
symmetric or Hermitian, otherwise differentiate trace(), det() or powers of the matrix
""")
def refuse_repeated_eigenvalues_of_eig():
    mixad.grad(lambda x: np.linalg.eigvals(x).real.sum())(np.eye(3))


@refused("""
TracerError: svd(full_matrices=True) of a matrix that is being differentiated and is not square is \
not available: it does not determine the further vectors; use full_matrices=False
""")
def refuse_vectors_of_a_full_svd():
    mixad.grad(lambda x: np.linalg.svd(x)[0].sum())(np.ones((3, 2)))


@refused("""
TracerError: qr(mode='complete') of a tall matrix that is being differentiated is not available: \
the further columns are not determined by it; use mode='reduced'
""")
def refuse_complete_qr():
    mixad.grad(lambda x: np.linalg.qr(x, mode="complete")[0].sum())(np.ones((3, 2)))


@refused("""
TracerError: cholesky() of a matrix that is being differentiated and is not symmetric: the library \
reads one triangle, and the derivative is that along symmetric matrices; pass (x + x.mT) / 2, or a \
symmetric matrix made of the triangle that is meant
""")
def refuse_cholesky_of_one_triangle():
    mixad.grad(lambda x: np.linalg.cholesky(np.tril(x)).sum())(np.ones((3, 3)) + np.eye(3))


@refused("""
TracerError: eigvalsh() of a matrix that is being differentiated and is not Hermitian: the library \
reads one triangle, and the derivative is that along Hermitian matrices; pass (x + x.conj().mT) / \
2, or a Hermitian matrix made of the triangle that is meant
""")
def refuse_eigenvalues_of_what_is_not_hermitian():
    mixad.grad(lambda x: np.linalg.eigvalsh(x).sum())(np.eye(3) + 1j)


@refused("""
TracerError: slogdet() of a singular matrix has no derivative: differentiate det(), which has one, \
or add a multiple of the identity to the matrix
""")
def refuse_logarithm_of_a_determinant_that_is_zero():
    mixad.grad(lambda x: np.linalg.slogdet(x)[1])(np.diag([1.0, 2.0, 0.0]))


@refused("""
TracerError: quantile(q=) of a value that is being differentiated is not available: it jumps \
between the differences of neighbours; pass mixad.stop_gradient(q)
""")
def refuse_shares_of_a_quantile_that_are_differentiated():
    mixad.grad(lambda q: np.quantile(X, q))(np.asarray(0.5))


@refused("""
TracerError: the tangent of a norm, standard deviation or singular value that is 0 is a convention \
and has no derivative: write the sum of squares instead of the squared norm, or take the gradient \
first, as mixad.hvp and mixad.hessian do, which give nan there
""")
def refuse_derivative_of_the_tangent_of_a_norm_that_is_zero():
    mixad.grad(lambda x: mixad.jvp(np.linalg.norm, (x,), (np.ones(2),))[1])(np.zeros(2))


@refused("""
TracerError: qr() of a matrix with dependent columns has no derivative: leave such columns out
""")
def refuse_qr_of_dependent_columns():
    mixad.grad(lambda x: np.linalg.qr(x)[1].sum())(np.diag([1.0, 2.0, 0.0]))


@refused("""
TracerError: svd() of a matrix without full rank: its vectors have no derivative; differentiate a \
function of the singular values, or of a matrix of full rank
""")
def refuse_vectors_without_full_rank():
    mixad.grad(lambda x: np.linalg.svd(x, full_matrices=False)[0].sum())(np.outer(X, [1.0, 2.0]))


@refused("""
TracerError: pinv() of a matrix without full rank has no derivative: remove dependent rows or \
columns, or use solve() of regularised normal equations
""")
def refuse_pinv_without_full_rank():
    mixad.grad(lambda x: np.linalg.pinv(x).sum())(np.zeros((3, 2)))


@refused("""
TracerError: mixad.numpy.where() takes a condition of booleans, this one has dtype float64: write \
condition != 0, of a list asarray(condition) != 0
""")
def refuse_condition_of_numbers():
    mixad.grad(lambda x: x.__array_namespace__().where(x, x, x).sum())(X)


@refused("""
TracerError: numpy.select() takes a condition of booleans, this one has dtype int64: write \
condition != 0, of a list asarray(condition) != 0
""")
def refuse_condition_that_is_a_list_of_numbers():
    mixad.grad(lambda x: np.select([[1, 0, 1]], [x]).sum())(X)


@refused("""
AttributeError: 'H' of a value that is being differentiated is not available: use x.mT of real \
numbers, of complex ones x.mT.conj()
""")
def refuse_adjoint():
    mixad.grad(lambda x: (x.H @ x).sum().real)(np.ones((2, 3)) + 1j)


@refused("""
TracerError: pad(mode='mean', constant_values=0) of a value that is being differentiated is not \
available: use one of ('constant', 'edge', 'reflect', 'symmetric', 'wrap') with a number
""")
def refuse_padding_that_computes():
    inside(lambda x: np.pad(x, 1, "mean").sum())


@refused("""
TracerError: to_device('gpu') of a value on 'cpu' that is being differentiated is not available: \
move the arguments of the transform
""")
def refuse_moving_to_another_device():
    inside(lambda x: x.to_device("gpu").sum())


@refused("""
TracerError: asarray(device=array_api_strict.Device('device1')) of a value on \
array_api_strict.Device('CPU_DEVICE') that is being differentiated is not available: move the \
arguments of the transform
""")
def refuse_an_array_on_another_device():
    xp = mixad.namespace_of(array_api_strict)
    device = array_api_strict.Device("device1")
    mixad.grad(lambda x: xp.sum(xp.asarray([x[0], x[1]], device=device)))(STRICT)


@refused("""
TracerError: concat takes arrays, not a list: convert it first
""")
def refuse_joining_what_is_no_array():
    xp = mixad.namespace_of(np)
    inside(lambda x: xp.concat([x, [1.0]]).sum())


@refused("""
TracerError: norm(ord='nuc', axis=None) of an array of shape (1, 3, 3) that is being \
differentiated is not available: use vector_norm() or matrix_norm()
""")
def refuse_norms_of_several_axes():
    inside(lambda x: np.linalg.norm(np.outer(x, x)[None], "nuc"))


@refused("""
ValueError: gradient() along an axis of length 3 with coordinates of shape (2,): pass one for each \
value
""")
def refuse_coordinates_that_do_not_fit():
    inside(lambda x: np.gradient(x, [0.0, 1.0]).sum())


@refused("""
TracerError: scipy.special.k0() of a value of array_api_strict that is being differentiated is not \
available: SciPy computes it of NumPy arrays only; convert the arguments of the transform
""")
def refuse_functions_of_scipy_of_other_libraries():
    from scipy.special import k0

    mixad.grad(lambda x: k0(x).sum())(STRICT)


@refused("""
TracerError: assignment destination is read-only: NumPy's diagonal, diag, broadcast_to and \
sliding_window_view give views that cannot be written to; write to the array itself, or to a copy \
(x * 1)
""")
def refuse_writing_to_a_diagonal():
    def written(x):
        np.diagonal(np.outer(x, x))[0] = 1.0

    inside(written)


@refused("""
TracerError: numpy.hypot.reduce() of a value that is being differentiated is not available yet: \
write it with operators, indexing, sum, mean, reshape, matmul, functions of one element such as \
exp, or a function decorated with @mixad.broadcast; say mixad.stop_gradient(x) if no derivative is \
meant
""")
def refuse_a_ufunc_that_reduces():
    inside(lambda x: np.hypot.reduce(x))


@refused("""
TracerError: quantile(method='hazen') of a value that is being differentiated is not available: \
use one of ('linear', 'lower', 'higher', 'midpoint')
""")
def refuse_method_of_quantile():
    inside(lambda x: np.quantile(x, 0.5, method="hazen"))


@refused("""
TracerError: lstsq() of a matrix of rank 1 and shape (3, 2) has no derivative: remove dependent \
rows or columns, or use solve() of regularised normal equations
""")
def refuse_least_squares_without_full_rank():
    inside(lambda x: np.linalg.lstsq(np.stack([x, x]).T, X)[0].sum())


@refused("""
TracerError: unwrap() takes no period or discont that is being differentiated: pass \
mixad.stop_gradient(period)
""")
def refuse_period_that_is_differentiated():
    mixad.grad(lambda p: np.unwrap(p * X, period=p).sum())(np.asarray(3.0))


def dask_array():
    import dask.array

    return dask.array.ones(3)


@refused("""
TracerError: delete() with a lazy array of places would compute all that it depends on: pass them \
as an array of NumPy's
""")
def refuse_lazy_places():
    x = dask_array()
    mixad.grad(lambda x: np.delete(x, np.argmax(x)).sum())(x)


@refused("""
TracerError: statistics.stdev() of a value that is being differentiated would lose its derivative: \
use np.std(x, ddof=1), of a list x of np.stack(x), or say mixad.stop_gradient(x) if that is meant
""")
def refuse_statistics_of_python():
    mixad.grad(lambda x: statistics.stdev(x))(X)


@refused("""
TracerError: statistics.mode() of a value that is being differentiated would lose its derivative: \
use x[np.argmax((x[:, None] == x).sum(1))], of a list x of np.stack(x), or say \
mixad.stop_gradient(x) if that is meant
""")
def refuse_mode_of_python():
    mixad.grad(lambda x: statistics.mode([x[0], x[1], x[0]]))(X)


@refused("""
TracerError: hash() of a value that is being differentiated would lose its derivative: keep it in \
a list, or in a dictionary under a name, and compare with ==, or say mixad.stop_gradient(x) if \
that is meant
""")
def refuse_traced_key():
    mixad.grad(lambda x: {x[0]: x[1]}[x[0]])(X)


@refused("""
TracerError: scipy.linalg.expm() of a value that is being differentiated would lose its \
derivative: use mixad.scipy.linalg.expm, or say mixad.stop_gradient(x) if that is meant
""")
def refuse_compiled_function_of_scipy():
    from scipy import linalg

    inside(lambda x: linalg.expm(x @ x.T).sum())


@refused("""
TracerError: scipy.stats.multivariate_normal.logpdf() of a value that is being differentiated \
would lose its derivative: give it one with mixad.custom_vjp, or say mixad.stop_gradient(x) if \
that is meant
""")
def refuse_frozen_distribution_of_scipy():
    from scipy import stats

    inside(lambda x: stats.multivariate_normal(np.zeros(3)).logpdf(x))


@refused("""
MixadError: jax.numpy.sin() of a value that is being differentiated would lose its derivative: use \
numpy.sin in its place, or say mixad.stop_gradient(x) if that is meant
""")
def refuse_function_of_jax():
    import jax.numpy as jnp

    inside(lambda x: jnp.sin(x).sum())


@refused("""
MixadError: jax.numpy.asarray() of a value that is being differentiated would lose its derivative: \
leave it out, and use functions of numpy, or say mixad.stop_gradient(x) if that is meant
""")
def refuse_array_of_jax():
    import jax.numpy as jnp

    inside(lambda x: jnp.asarray(x).sum())


@refused("""
MixadError: jax.vmap() of a value that is being differentiated would lose its derivative: take \
JAX's own derivative: mixad_jax.borrow(function)(x), of the plugin mixad-jax, or say \
mixad.stop_gradient(x) if that is meant
""")
def refuse_transform_of_jax():
    import jax

    inside(lambda x: jax.vmap(lambda v: v * v)(x).sum())
