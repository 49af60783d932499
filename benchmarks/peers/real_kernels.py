"""Kernels of real programs beside what each system has for them, float64.

Values and gradients given a cotangent, but for the Mandelbrot set, where the result is the partials
themselves.  Loops end for each element when it has arrived; systems that compile no such loop over
arrays take as many turns for every element as the slowest one needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.kernels import chemistry, eigenvalues, escape, huber, lambert, state
from benchmarks.peers import libraries
from benchmarks.peers.harness import Call, Case, Comparison, Contender, Tolerance, Unpack

SIZES = (1_000_000,)
CHECKED = 61
TURNS = 8  # of Newton's method, where every element takes as many
LIMIT = 60  # of the Mandelbrot set
ACCURACY = 1e-6  # of a step of chemistry


@dataclass(frozen=True)
class Problem:
    """A kernel, its inputs, and what it should give.

    Parameters
    ----------
    kernel : callable
        Of numbers.
    inputs : tuple of ndarray
        What it is differentiated with respect to.
    cotangents : tuple of ndarray
        One for each value.
    expected : callable
        Returns the checked elements of values, then of gradients, in float64.
    peers : mapping
        By name, functions of the problem as `Contender.make` has them.
    constants : tuple
        Numbers after the inputs.
    tolerance : Tolerance
        Of values and gradients.
    """

    kernel: Callable[..., Any]
    inputs: tuple[NDArray, ...]
    cotangents: tuple[NDArray, ...]
    expected: Callable[[Problem], Sequence[NDArray]]
    peers: Mapping[str, Callable[[Problem], tuple[Call, Unpack]]]
    constants: tuple[Any, ...] = ()
    tolerance: Tolerance = field(default_factory=lambda: Tolerance(1e-9, 1e-11))

    @property
    def bytes_moved(self) -> int:
        """Inputs and cotangents once, gradients and values once."""
        return 2 * sum(x.nbytes for x in (*self.inputs, *self.cotangents))

    def checked(self) -> tuple[list[NDArray], list[NDArray]]:
        """Return the elements of inputs and cotangents that are compared."""
        return [x[::CHECKED] for x in self.inputs], [w[::CHECKED] for w in self.cotangents]


def unpack(result: tuple) -> list[NDArray]:
    """Return the checked elements of ``(values, gradients)`` of any library."""
    values, gradients = result
    values = values if isinstance(values, (tuple, list)) else (values,)
    return [np.asarray(x)[::CHECKED] for x in (*values, *gradients)]


# --- the systems


def mixad(p: Problem) -> tuple[Call, Unpack]:
    import mixad

    kernel = mixad.broadcast(p.kernel)
    cotangent = p.cotangents if len(p.cotangents) > 1 else p.cotangents[0]

    def of_inputs(*inputs):
        return kernel(*inputs, *p.constants)

    return lambda: mixad.value_and_vjp(of_inputs, p.inputs, cotangent), unpack


def torch_vjp(p: Problem, text: Callable, compiled: bool) -> tuple[Call, Unpack]:
    """Return the vjp of a function ``text(torch, *tensors)``, which returns a tuple."""
    torch = libraries.torch()
    inputs, cotangents = (
        [torch.from_numpy(x) for x in arrays] for arrays in (p.inputs, p.cotangents)
    )
    function = partial(text, torch)
    function = torch.compile(function, dynamic=False) if compiled else function

    def call():
        active = [x.detach().requires_grad_() for x in inputs]
        values = function(*active)
        gradients = torch.autograd.grad(values, active, cotangents)
        return [v.detach() for v in values], gradients

    return call, unpack


def jax_vjp(p: Problem, text: Callable) -> tuple[Call, Unpack]:
    """Return the same for ``text(jax.numpy, *arrays)``."""
    jax = libraries.jax()

    @jax.jit
    def both(inputs, cotangents):
        values, pullback = jax.vjp(partial(text, jax.numpy), *inputs)
        return values, pullback(cotangents)

    arrays = [tuple(map(jax.numpy.asarray, a)) for a in (p.inputs, p.cotangents)]
    return lambda: jax.block_until_ready(both(*arrays)), unpack


def jax_forward(p: Problem, text: Callable) -> tuple[Call, Unpack]:
    """Return partials of ``text(jax, *scalars)`` by forward mode, mapped, then contracted."""
    jax = libraries.jax()
    jnp = jax.numpy

    def of_one(inputs, cotangents):
        def twice(x):
            values = jnp.stack(text(jax, *x))
            return values, values

        jacobian, values = jax.jacfwd(twice, has_aux=True)(jnp.stack(inputs))
        gradients = jnp.stack(cotangents) @ jacobian
        return tuple(values), tuple(gradients)

    both = jax.jit(jax.vmap(of_one))
    arrays = [tuple(map(jnp.asarray, a)) for a in (p.inputs, p.cotangents)]
    return lambda: jax.block_until_ready(both(*arrays)), unpack


def jax_reverse(p: Problem, text: Callable) -> tuple[Call, Unpack]:
    """Return the vjp of ``text(jax, *scalars)`` with its own loops: JAX says if there is none."""
    jax = libraries.jax()
    mapped = jax.vmap(partial(text, jax))
    return jax_vjp(p, lambda _, *arrays: mapped(*arrays))


def by_arrays(text: Callable, *, compiled: bool) -> dict[str, Callable]:
    """Return what computes with whole arrays, of a function ``text(xp, *arrays)``.

    Not ``compiled`` by torch, where that takes a minute.
    """
    found = {
        "PyTorch eager": partial(torch_vjp, text=text, compiled=False),
        "JAX jit": partial(jax_vjp, text=text),
    }
    if not compiled:
        return found
    return {"torch.compile": partial(torch_vjp, text=text, compiled=True)} | found


def by_numba(write: Callable) -> Callable[[Problem], tuple[Call, Unpack]]:
    """Return values and gradients by hand: ``write(numba)`` returns a compiled function."""

    def make(p: Problem) -> tuple[Call, Unpack]:
        both = write(libraries.numba())
        return lambda: both(*p.inputs, *p.cotangents, *p.constants), unpack

    return make


def copy(p: Problem) -> tuple[Call, Unpack]:
    return libraries.copy_bytes(p.bytes_moved)


# --- Huber's loss


def huber_of_arrays(xp, r, delta):
    size = abs(r)
    return (xp.where(size <= delta, 0.5 * r * r, delta * (size - 0.5 * delta)),)


def huber_expected(p: Problem) -> Sequence[NDArray]:
    (r, delta), (w,) = p.checked()
    value = np.where(abs(r) <= delta, 0.5 * r * r, delta * (abs(r) - 0.5 * delta))
    return value, w * np.clip(r, -delta, delta), w * np.maximum(abs(r) - delta, 0.0)


def huber_problem(size: int, rng: np.random.Generator) -> Problem:
    inputs = rng.standard_normal(size), rng.uniform(0.5, 1.5, size)
    peers = by_arrays(huber_of_arrays, compiled=True)
    return Problem(huber.huber, inputs, (rng.standard_normal(size),), huber_expected, peers)


# --- Lambert's W


def lambert_of_arrays(xp, x):
    q = 2.0 * (math.e * x + 1.0)
    p = xp.sqrt(q)
    log = xp.log1p(x)
    w = xp.where(q < 1.0, -1.0 + p * (1.0 - p / 3.0), log * (1.0 - 0.3 * log / (1.0 + abs(log))))
    for _ in range(5):
        exp = xp.exp(w)
        f = w * exp - x
        w = w - f / (exp * (w + 1.0) - 0.5 * (w + 2.0) * f / (w + 1.0))
    return (w,)


def lambert_by_hand(numba):
    prange, value = numba.prange, numba.njit(lambert.lambert_w, error_model="numpy")

    @numba.njit(parallel=True, error_model="numpy")
    def both(x, cotangent):
        w, gradient = np.empty_like(x), np.empty_like(x)
        for k in prange(x.size):
            w[k] = value(x[k])
            gradient[k] = cotangent[k] / (x[k] + math.exp(w[k]))
        return (w,), (gradient,)

    return both


def lambert_expected(p: Problem) -> Sequence[NDArray]:
    from scipy.special import lambertw

    (x,), (cotangent,) = p.checked()
    w = lambertw(x).real
    return w, cotangent / (x + np.exp(w))


def lambert_problem(size: int, rng: np.random.Generator) -> Problem:
    peers = {"Numba by hand": by_numba(lambert_by_hand)} | by_arrays(
        lambert_of_arrays, compiled=False
    )
    inputs = (rng.uniform(-0.36, 50.0, size),)
    cotangents = (rng.standard_normal(size),)
    return Problem(lambert.lambert_w, inputs, cotangents, lambert_expected, peers)


# --- an equation of state


def state_of_arrays(xp, p, T, a, b):
    rho = 0.5 / b
    rho = xp.where(p / (state.R * T) < rho, p / (state.R * T), rho)
    root = xp.sqrt(T)
    for _ in range(TURNS):
        pressure = state.R * T * rho / (1.0 - b * rho) - a * rho * rho / (root * (1.0 + b * rho))
        attraction = rho * (2.0 + b * rho) / ((1.0 + b * rho) * (1.0 + b * rho))
        slope = state.R * T / ((1.0 - b * rho) * (1.0 - b * rho)) - a * attraction / root
        rho = rho - (pressure - p) / slope
    return (rho,)


def state_by_hand(numba):
    prange = numba.prange
    # the kernel's own text up to mixad.stop_gradient
    pressure, slope = (numba.njit(f, error_model="numpy") for f in (state.pressure, state.slope))
    solve = numba.njit(_with(state.solved, pressure=pressure, slope=slope), error_model="numpy")
    R = state.R

    @numba.njit(parallel=True, error_model="numpy")
    def both(p, T, a, b, w):
        rho, dp, dT = np.empty_like(p), np.empty_like(p), np.empty_like(p)
        da, db = np.empty_like(p), np.empty_like(p)
        for k in prange(p.size):
            r = solve(p[k], T[k], a[k], b[k])
            root, low, high = math.sqrt(T[k]), 1.0 - b[k] * r, 1.0 + b[k] * r
            scale = w[k] / slope(r, T[k], a[k], b[k])
            rho[k], dp[k] = r - (pressure(r, T[k], a[k], b[k]) - p[k]) * scale / w[k], scale
            dT[k] = -scale * (R * r / low + 0.5 * a[k] * r * r / (T[k] * root * high))
            da[k] = scale * r * r / (root * high)
            db[k] = -scale * r * r * (R * T[k] / (low * low) + a[k] * r / (root * high * high))
        return (rho,), (dp, dT, da, db)

    return both


def _with(function: Callable, **names: Any) -> Callable:
    """Return a function that sees other functions by these names."""
    return type(function)(function.__code__, function.__globals__ | names, function.__name__)


def state_expected(p: Problem) -> Sequence[NDArray]:
    """Return densities that made the pressures, and the implicit function's derivatives."""
    (_, T, a, b), (w,) = p.checked()
    rho = p.densities[::CHECKED]
    low, high, root = 1.0 - b * rho, 1.0 + b * rho, np.sqrt(T)
    slope = state.R * T / low**2 - a * rho * (2.0 + b * rho) / (high**2 * root)
    by_T = state.R * rho / low + 0.5 * a * rho**2 / (T * root * high)
    by_b = state.R * T * rho**2 / low**2 + a * rho**3 / (root * high**2)
    scale = w / slope
    return rho, scale, -scale * by_T, scale * rho**2 / (root * high), -scale * by_b


@dataclass(frozen=True)
class GasProblem(Problem):
    """Pressures that were made from densities."""

    densities: NDArray = field(default_factory=lambda: np.empty(0))


def state_problem(size: int, rng: np.random.Generator) -> Problem:
    rho, T = rng.uniform(0.2, 12.0, size), rng.uniform(330.0, 420.0, size)
    a, b = rng.uniform(60.0, 66.0, size), rng.uniform(0.028, 0.031, size)
    p = state.R * T * rho / (1.0 - b * rho) - a * rho**2 / (np.sqrt(T) * (1.0 + b * rho))
    peers = {"Numba by hand": by_numba(state_by_hand)} | by_arrays(state_of_arrays, compiled=False)
    return GasProblem(
        state.density,
        (p, T, a, b),
        (rng.standard_normal(size),),
        state_expected,
        peers,
        tolerance=Tolerance(1e-8, 1e-10),
        densities=rho,
    )


# --- the Mandelbrot set


def mixad_partials(p: Problem) -> tuple[Call, Unpack]:
    """Return the partials themselves: of the potential, for the distance."""
    import mixad

    kernel = mixad.broadcast(p.kernel)

    def unpack_duals(chunks):
        count, potential = chunks
        slopes = (potential.partials[name] for name in ("re", "im"))
        return [x[::CHECKED] for x in (count.primal, potential.primal, *slopes)]

    return lambda: kernel.duals(*p.inputs, *p.constants, wrt=("re", "im")), unpack_duals


def escape_by_hand(numba):
    prange = numba.prange

    @numba.njit(parallel=True, error_model="numpy")
    def both(re, im, w, v, limit):
        count, potential = np.zeros_like(re), np.zeros_like(re)
        by_re, by_im = np.zeros_like(re), np.zeros_like(re)
        for k in prange(re.size):
            x = y = dx = dy = 0.0
            for n in range(limit):
                dx, dy = 2.0 * (x * dx - y * dy) + 1.0, 2.0 * (x * dy + y * dx)
                x, y = x * x - y * y + re[k], 2.0 * x * y + im[k]
                square = x * x + y * y
                if square > 1e6:
                    potential[k] = 0.5 * math.log(square)
                    count[k] = n + 1.0 - math.log2(potential[k])
                    by_re[k] = (x * dx + y * dy) / square
                    by_im[k] = (y * dx - x * dy) / square
                    break
        return (count, potential), (by_re, by_im)

    return both


def escape_in_jax(p: Problem) -> tuple[Call, Unpack]:
    """Return two pushforwards through the exact loop, mapped over the points."""
    jax = libraries.jax()
    jnp = jax.numpy

    def of_one(re, im):
        def turn(state):
            x, y, n = state
            return x * x - y * y + re, 2.0 * x * y + im, n + 1

        def goes_on(state):
            x, y, n = state
            return (x * x + y * y <= 1e6) & (n < LIMIT)

        x, y, n = jax.lax.while_loop(goes_on, turn, (0.0 * re, 0.0 * im, 0))
        square = x * x + y * y
        left = square > 1e6
        potential = 0.5 * jnp.log(jnp.where(left, square, 1.0))
        count = n - jnp.log2(jnp.where(left, potential, 1.0))
        return jnp.where(left, count, 0.0), jnp.where(left, potential, 0.0)

    def both(re, im):
        values, (_, by_re) = jax.jvp(of_one, (re, im), (1.0, 0.0))
        _, (_, by_im) = jax.jvp(of_one, (re, im), (0.0, 1.0))
        return values, (by_re, by_im)

    compiled = jax.jit(jax.vmap(both))
    arrays = [jnp.asarray(x) for x in p.inputs]
    return lambda: jax.block_until_ready(compiled(*arrays)), unpack


def escape_expected(p: Problem) -> Sequence[NDArray]:
    """Return the results of complex numbers, z' carried by hand."""
    (re, im), _ = p.checked()
    z, dz = np.zeros(re.size, complex), np.zeros(re.size, complex)
    count, potential, slope = np.zeros(re.size), np.zeros(re.size), np.zeros(re.size, complex)
    going = np.ones(re.size, bool)
    for n in range(LIMIT):
        dz = np.where(going, 2.0 * z * dz + 1.0, dz)
        z = np.where(going, z * z + (re + 1j * im), z)
        left = going & (abs(z) ** 2 > 1e6)
        potential[left] = np.log(abs(z[left]))
        count[left] = n + 1.0 - np.log2(potential[left])
        slope[left] = dz[left] / z[left]
        going &= ~left
    return count, potential, slope.real, -slope.imag


def escape_problem(size: int, rng: np.random.Generator) -> Problem:
    columns = max(1, math.isqrt(size))
    rows = size // columns
    re, im = np.meshgrid(np.linspace(-2.1, 0.7, columns), np.linspace(-1.2, 1.2, rows))
    peers = {
        "Numba by hand": by_numba(escape_by_hand),
        "JAX forward, while_loop": escape_in_jax,
    }
    return Problem(
        escape.escape,
        (re.ravel(), im.ravel()),
        (np.ones(re.size),) * 2,
        escape_expected,
        peers,
        (LIMIT,),
        Tolerance(1e-6, 1e-6),
    )


# --- chemistry


def chemistry_in_jax(jax, e, s, c, p, k1, k2, k3, time):
    """Return the concentrations by the exact loop."""
    jnp = jax.numpy

    def rates(e, s, c):
        bound, parted, made = k1 * e * s, k2 * c, k3 * c
        return jnp.stack([parted - bound, bound - parted - made, made])

    def turn(state):
        t, h, y, f1 = state
        h = jnp.minimum(h, time - t)
        f2 = at(y + 0.5 * h * f1)
        f3 = at(y + 0.75 * h * f2)
        new = y + h * (2.0 * f1 + 3.0 * f2 + 4.0 * f3) / 9.0
        f4 = at(new)
        off = jnp.abs(h * (-5.0 * f1 + 6.0 * f2 + 8.0 * f3 - 9.0 * f4) / 72.0)
        off = jnp.maximum(jnp.maximum(off[0], off[1]), 1e-3 * ACCURACY)
        good = off <= ACCURACY
        factor = jnp.maximum(0.2, 0.9 * (ACCURACY / jax.lax.stop_gradient(off)) ** (1.0 / 3.0))
        t = jnp.where(good, t + h, t)
        return t, h * factor, jnp.where(good, new, y), jnp.where(good, f4, f1)

    first = jnp.stack([s, c, p])

    def at(y):
        return rates(e + c - y[1], y[0], y[1])

    start = 0.0 * time, 0.1 * time, first, at(first)
    y = jax.lax.while_loop(lambda state: state[0] < time, turn, start)[2]
    return e + c - y[1], y[0], y[1], y[2]


def chemistry_expected(p: Problem) -> Sequence[NDArray]:
    """Return the solution of the sensitivity equations, by 400 steps of Runge and Kutta's."""
    (*start, k1, k2, k3, time), weights = p.checked()
    count, steps = time.size, 400

    def slope(y):
        (e, s, c, _), J = y[:4], y[4:].reshape(4, 7, count)
        flux = np.stack([k1 * e * s, k2 * c, k3 * c])
        own = np.stack([k1 * (s * J[0] + e * J[1]), k2 * J[2], k3 * J[2]])
        own[0, 4] += e * s
        own[1, 5] += c
        own[2, 6] += c
        both = np.concatenate([flux[:, None], own], axis=1)
        turned = np.einsum("ij,jkn->ikn", STOICHIOMETRY, both)
        return np.concatenate([turned[:, 0], turned[:, 1:].reshape(28, count)])

    unit = np.broadcast_to(np.eye(4, 7).reshape(28, 1), (28, count))
    y, h = np.concatenate([np.stack(start), unit]), time / steps
    for _ in range(steps):
        f1 = slope(y)
        f2 = slope(y + 0.5 * h * f1)
        f3 = slope(y + 0.5 * h * f2)
        f4 = slope(y + h * f3)
        y = y + h * (f1 + 2.0 * f2 + 2.0 * f3 + f4) / 6.0
    J = np.concatenate([y[4:].reshape(4, 7, count), slope(y)[:4][:, None]], axis=1)
    return (*y[:4], *np.einsum("mn,mkn->kn", np.stack(weights), J))


STOICHIOMETRY = np.array([[-1.0, 1, 1], [-1, 1, 0], [1, -1, -1], [0, 0, 1]])


def chemistry_problem(size: int, rng: np.random.Generator) -> Problem:
    bounds = (0.5, 1), (1, 3), (0, 0.2), (0, 0.1), (1, 9), (0.2, 1), (0.3, 2), (0.5, 3)
    inputs = tuple(rng.uniform(low, high, size) for low, high in bounds)
    peers = {
        "JAX forward, while_loop": partial(jax_forward, text=chemistry_in_jax),
        "JAX reverse, while_loop": partial(jax_reverse, text=chemistry_in_jax),
    }
    cotangents = tuple(rng.standard_normal((4, size)))
    # what the sub-steps may err, and their number is not what the reference has
    tolerance = Tolerance(3e-4, 3e-4)
    return Problem(
        chemistry.after, inputs, cotangents, chemistry_expected, peers, (ACCURACY,), tolerance
    )


# --- eigenvalues


def eigenvalues_of_arrays(xp, xx, xy, xz, yy, yz, zz):
    mean = (xx + yy + zz) / 3.0
    a, b, c = xx - mean, yy - mean, zz - mean
    square = (a * a + b * b + c * c + 2.0 * (xy * xy + xz * xz + yz * yz)) / 6.0
    p = xp.sqrt(square)
    determinant = a * (b * c - yz * yz) - xy * (xy * c - yz * xz) + xz * (xy * yz - b * xz)
    third = xp.arccos(xp.clip(0.5 * determinant / (square * p), -1.0, 1.0)) / 3.0
    largest = mean + 2.0 * p * xp.cos(third)
    smallest = mean + 2.0 * p * xp.cos(third + 2.0943951023931953)
    return largest, 3.0 * mean - largest - smallest, smallest


def eigenvalues_by_library(xp, xx, xy, xz, yy, yz, zz):
    rows = [xp.stack(row, -1) for row in ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))]
    found = xp.linalg.eigvalsh(xp.stack(rows, -2))
    return found[..., 2], found[..., 1], found[..., 0]


def eigenvalues_expected(p: Problem) -> Sequence[NDArray]:
    entries, weights = p.checked()
    full = np.moveaxis(np.stack(entries)[np.array([[0, 1, 2], [1, 3, 4], [2, 4, 5]])], -1, 0)
    values, vectors = np.linalg.eigh(full)
    rows, columns = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 2, 1, 2, 2])
    twice = np.where(rows == columns, 1.0, 2.0)[:, None]
    products = (vectors[:, rows] * vectors[:, columns] * twice)[..., ::-1]
    gradients = np.einsum("nkm,mn->kn", products, np.stack(weights))
    return (*values[:, ::-1].T, *gradients)


def eigenvalues_problem(size: int, rng: np.random.Generator) -> Problem:
    # well apart: |off the diagonal| is less than the distance of the entries on it
    bounds = (2.5, 3.5), (-0.3, 0.3), (-0.3, 0.3), (0.5, 1.0), (-0.3, 0.3), (-2.0, -1.0)
    entries = tuple(rng.uniform(low, high, size) for low, high in bounds)
    peers = by_arrays(eigenvalues_of_arrays, compiled=True) | {
        "PyTorch eager, eigvalsh": partial(torch_vjp, text=eigenvalues_by_library, compiled=False),
        "JAX jit, eigvalsh": partial(jax_vjp, text=eigenvalues_by_library),
    }
    cotangents = tuple(rng.standard_normal((3, size)))
    return Problem(eigenvalues.eigenvalues, entries, cotangents, eigenvalues_expected, peers)


PROBLEMS = {
    "Huber's loss": huber_problem,
    "Lambert's W": lambert_problem,
    "equation of state": state_problem,
    "Mandelbrot set": escape_problem,
    "chemistry": chemistry_problem,
    "eigenvalues": eigenvalues_problem,
}


def case(name: str, size: int, seed: int) -> Case:
    """Return the case of one kernel."""
    p = PROBLEMS[name](size, np.random.default_rng(seed))
    expected = p.expected(p)
    ours = mixad_partials if p.kernel is escape.escape else mixad
    makes = {"mixad": ours, "copy of the bytes": copy} | p.peers
    return Case(
        "real kernels",
        f"{name}, n = {p.inputs[0].size:,}",
        {n: Contender(partial(make, p), () if make is copy else expected)
         for n, make in makes.items()},
        [Comparison("mixad", peer) for peer in list(makes)[1:]],
        p.tolerance,
        keeps=(0,),
    )  # fmt: skip


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield one case per kernel and size."""
    for size in sizes:
        for name in PROBLEMS:
            yield case(name, size, seed)
