"""The HM-LSTM cell update: value and four gradients, given a cotangent.

The cell of Chung, Ahn and Bengio, "Hierarchical multiscale recurrent neural networks" (2017), as
timed by Revels et al., "Dynamic automatic differentiation of GPU broadcast kernels" (2018), §4:
float32, ``z, zb`` of zeros and ones, ``c, f, i, g`` uniform on [0, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import libraries
from benchmarks.peers.harness import Call, Case, Comparison, Contender, Target, Tolerance, Unpack

SIZES = (1024, 2048)
STRATEGIES = ("forward", "auto")
TOLERANCE = Tolerance(relative=1e-5, scaled=2e-6)
TARGETS = {
    "Dr.Jit": Target(1.0, by_interval=True),
    "torch.compile": Target(0.4),
    "JAX jit": Target(0.2),
    "PyTorch eager": Target(0.03),
    "copy of the bytes": Target(1.6),
    "copy of the bytes, PyTorch": Target(1.6),
}

Implementation = Callable[["Problem"], tuple[Call, Unpack]]


@dataclass(frozen=True)
class Problem:
    """Inputs, cotangent, and the value and gradients in float64."""

    z: NDArray
    zb: NDArray
    states: tuple[NDArray, ...]  # c, f, i, g
    cotangent: NDArray
    expected: tuple[NDArray, ...]  # value, then the gradients of c, f, i, g

    @property
    def control(self) -> tuple[NDArray, NDArray]:
        """``z`` and ``zb`` at full size, for what broadcasts slower than it reads."""
        shape = self.states[0].shape
        z, zb = (np.ascontiguousarray(np.broadcast_to(v, shape)) for v in (self.z, self.zb))
        return z, zb

    @property
    def bytes_moved(self) -> int:
        read = (self.z, self.zb, *self.states, self.cotangent)
        return sum(v.nbytes for v in read) + 5 * self.cotangent.nbytes


def sigmoid64(x: NDArray) -> NDArray[np.float64]:
    """Return the logistic function in float64."""
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def value_and_gradients(
    z: NDArray, zb: NDArray, states: Sequence[NDArray], cotangent: NDArray
) -> tuple[NDArray, ...]:
    """Return the cell's value and gradients in float64, derived by hand."""
    c, f, i, g = (x.astype(np.float64) for x in states)
    sf, si, tg = sigmoid64(f), sigmoid64(i), np.tanh(g)
    flush = np.broadcast_to(z == 1, c.shape)
    copy = ~flush & (zb == 0)
    update = ~flush & ~copy
    value = np.where(flush, si * tg, np.where(copy, c, sf * c + si * tg))
    dc = np.where(update, sf, copy)
    df = np.where(update, c * sf * (1 - sf), 0)
    di = np.where(copy, 0, tg * si * (1 - si))
    dg = np.where(copy, 0, si * (1 - tg * tg))
    return value, *(cotangent * d for d in (dc, df, di, dg))


def problem(size: int, control_shape: tuple[int, ...], seed: int) -> Problem:
    """Draw the inputs of one case."""
    rng = np.random.default_rng(seed)
    z, zb = rng.integers(0, 2, (2, *control_shape)).astype(np.float32)
    states = tuple(rng.random((size, size), dtype=np.float32) for _ in range(4))
    cotangent = rng.standard_normal((size, size), dtype=np.float32)
    return Problem(z, zb, states, cotangent, value_and_gradients(z, zb, states, cotangent))


def as_numpy(result: tuple) -> list[NDArray]:
    """Return ``(value, gradients)`` of any library as NumPy arrays."""
    value, gradients = result
    return [np.asarray(x) for x in (value, *gradients)]


def mixad_cell(strategy: str):
    """Return the cell as a user writes it, with a strategy."""
    import mixad
    from mixad.special import sigmoid, tanh

    @mixad.broadcast
    def cell_update(z, zb, c, f, i, g):
        if z == 1.0:  # FLUSH
            return sigmoid(i) * tanh(g)
        elif zb == 0.0:  # COPY
            return c
        return sigmoid(f) * c + sigmoid(i) * tanh(g)  # UPDATE

    return cell_update.with_options(strategy=strategy)


def mixad(p: Problem, strategy: str) -> tuple[Call, Unpack]:
    import mixad

    cell_update = mixad_cell(strategy)
    z, zb = p.z, p.zb

    def cell(c, f, i, g):
        return cell_update(z, zb, c, f, i, g)

    return lambda: mixad.value_and_vjp(cell, p.states, p.cotangent), as_numpy


def drjit_cell(z, zb, c, f, i, g):
    """Return the cell on Dr.Jit arrays."""
    import drjit as dr

    def sigmoid(x):
        return 1 / (1 + dr.exp(-x))

    flush = sigmoid(i) * dr.tanh(g)
    return dr.select(z == 1, flush, dr.select(zb == 0, c, sigmoid(f) * c + flush))


def drjit_arrays(p: Problem) -> list:
    """Return ``z, zb, c, f, i, g, cotangent`` as flat Dr.Jit arrays.

    The control values are at full size: reading them is faster there than a gather or a tensor
    that broadcasts (0.57, 0.73, 0.88 ms at 1024²).
    """
    dr = libraries.drjit()
    from drjit.llvm.ad import Float

    arrays = [Float(x.ravel()) for x in (*p.control, *p.states, p.cotangent)]
    dr.eval(arrays)
    return arrays


def drjit_vjp(z, zb, c, f, i, g, cotangent):
    """Return value and gradients, not yet evaluated."""
    import drjit as dr

    states = [type(x)(x) for x in (c, f, i, g)]
    dr.enable_grad(*states)
    value = drjit_cell(z, zb, *states)
    dr.set_grad(value, cotangent)
    dr.enqueue(dr.ADMode.Backward, value)
    dr.traverse(dr.ADMode.Backward)
    return dr.detach(value), [dr.grad(x) for x in states]


def drjit(p: Problem) -> tuple[Call, Unpack]:
    return drjit_call(p, drjit_vjp)


def drjit_frozen(p: Problem) -> tuple[Call, Unpack]:
    return drjit_call(p, libraries.drjit().freeze(drjit_vjp))


def drjit_call(p: Problem, vjp: Callable) -> tuple[Call, Unpack]:
    dr, arrays = libraries.drjit(), drjit_arrays(p)

    def call():
        result = vjp(*arrays)
        dr.eval(result)
        dr.sync_thread()
        return result

    return call, as_numpy


def torch_cell(z, zb, c, f, i, g):
    """Return the cell on PyTorch tensors."""
    import torch

    flush = torch.sigmoid(i) * torch.tanh(g)
    return torch.where(z == 1, flush, torch.where(zb == 0, c, torch.sigmoid(f) * c + flush))


def torch_tensors(p: Problem):
    """Return ``(z, zb), (c, f, i, g), cotangent`` as tensors on the same memory."""
    torch = libraries.torch()
    control = tuple(torch.from_numpy(x) for x in (p.z, p.zb))
    return control, tuple(torch.from_numpy(x) for x in p.states), torch.from_numpy(p.cotangent)


def torch_call(p: Problem, compiled: bool) -> tuple[Call, Unpack]:
    """Return the cell, compiled or not, with PyTorch's autograd around it."""
    torch = libraries.torch()
    control, states, cotangent = torch_tensors(p)
    cell = torch.compile(torch_cell, dynamic=False) if compiled else torch_cell

    def call():
        active = [x.detach().requires_grad_() for x in states]
        value = cell(*control, *active)
        return value.detach(), torch.autograd.grad(value, active, cotangent)

    return call, as_numpy


def torch_eager(p: Problem) -> tuple[Call, Unpack]:
    return torch_call(p, compiled=False)


def torch_compile(p: Problem) -> tuple[Call, Unpack]:
    return torch_call(p, compiled=True)


def torch_compile_whole(p: Problem) -> tuple[Call, Unpack]:
    """Return value and gradients compiled as one graph, so that nothing is kept for a backward."""
    torch = libraries.torch()
    control, states, cotangent = torch_tensors(p)

    def value_and_vjp(z, zb, c, f, i, g, cotangent):
        value, pullback = torch.func.vjp(partial(torch_cell, z, zb), c, f, i, g)
        return value, pullback(cotangent)

    compiled = torch.compile(value_and_vjp, dynamic=False)
    return lambda: compiled(*control, *states, cotangent), as_numpy


def jax_cell(z, zb, c, f, i, g):
    """Return the cell on JAX arrays."""
    import jax

    flush = jax.nn.sigmoid(i) * jax.numpy.tanh(g)
    update = jax.nn.sigmoid(f) * c + flush
    return jax.numpy.where(z == 1, flush, jax.numpy.where(zb == 0, c, update))


def jax_jit(p: Problem) -> tuple[Call, Unpack]:
    jax = libraries.jax()

    @jax.jit
    def value_and_vjp(z, zb, c, f, i, g, cotangent):
        value, pullback = jax.vjp(partial(jax_cell, z, zb), c, f, i, g)
        return value, pullback(cotangent)

    arrays = [jax.numpy.asarray(x) for x in (p.z, p.zb, *p.states, p.cotangent)]
    return lambda: jax.block_until_ready(value_and_vjp(*arrays)), as_numpy


def numba_by_hand(p: Problem) -> tuple[Call, Unpack]:
    """Return one loop over the elements with value and partials written out: Numba has none."""
    numba = libraries.numba()
    prange, exp, tanh = numba.prange, np.exp, np.tanh

    @numba.njit(parallel=True, error_model="numpy")
    def value_and_gradients(z, zb, c, f, i, g, w):
        value, dc, df = np.empty_like(c), np.empty_like(c), np.empty_like(c)
        di, dg = np.empty_like(c), np.empty_like(c)
        one = np.float32(1)
        zero = np.float32(0)
        for r in prange(c.shape[0]):
            for k in range(c.shape[1]):
                if z[r, k] != one and zb[r, k] == zero:
                    value[r, k], dc[r, k], df[r, k] = c[r, k], w[r, k], zero
                    di[r, k] = dg[r, k] = zero
                    continue
                si, tg = one / (one + exp(-i[r, k])), tanh(g[r, k])
                value[r, k], dc[r, k], df[r, k] = si * tg, zero, zero
                di[r, k] = w[r, k] * tg * si * (one - si)
                dg[r, k] = w[r, k] * si * (one - tg * tg)
                if z[r, k] != one:
                    sf = one / (one + exp(-f[r, k]))
                    value[r, k] += sf * c[r, k]
                    dc[r, k] = w[r, k] * sf
                    df[r, k] = w[r, k] * c[r, k] * sf * (one - sf)
        return value, (dc, df, di, dg)

    arrays = (*p.control, *p.states, p.cotangent)
    return lambda: value_and_gradients(*arrays), as_numpy


def warp_cpu(p: Problem) -> tuple[Call, Unpack]:
    wp = libraries.warp()
    from benchmarks.peers.warp_kernels import cell_update

    rows, columns = p.cotangent.shape
    z, zb = (wp.array(np.atleast_2d(x), dtype=float, device="cpu") for x in (p.z, p.zb))
    states = [wp.array(x, requires_grad=True, device="cpu") for x in p.states]
    cotangent = wp.array(p.cotangent, device="cpu")
    step = tuple(int(extent > 1) for extent in z.shape)

    def call():
        for x in states:
            x.grad = wp.zeros_like(x, requires_grad=False)
        value = wp.empty((rows, columns), dtype=float, requires_grad=True, device="cpu")
        with wp.Tape() as tape:
            inputs = [z, zb, *step, *states]
            wp.launch(cell_update, (rows, columns), inputs, [value], device="cpu")
        tape.backward(grads={value: cotangent})
        return value, [x.grad for x in states]

    return call, lambda result: [x.numpy() for x in (result[0], *result[1])]


def autograd_cell(z, zb, c, f, i, g):
    """Return the cell on autograd's boxes."""
    import autograd.numpy as anp

    def sigmoid(x):
        return 1 / (1 + anp.exp(-x))

    flush = sigmoid(i) * anp.tanh(g)
    return anp.where(z == 1, flush, anp.where(zb == 0, c, sigmoid(f) * c + flush))


def autograd(p: Problem) -> tuple[Call, Unpack]:
    make_vjp = libraries.autograd().make_vjp

    def call():
        pullback, value = make_vjp(lambda states: autograd_cell(p.z, p.zb, *states))(p.states)
        return value, pullback(p.cotangent)

    return call, as_numpy


def copy(p: Problem) -> tuple[Call, Unpack]:
    return libraries.copy_bytes(p.bytes_moved)


def copy_torch(p: Problem) -> tuple[Call, Unpack]:
    return libraries.copy_bytes_torch(p.bytes_moved)


PEERS: Mapping[str, Implementation] = {
    "copy of the bytes": copy,
    "copy of the bytes, PyTorch": copy_torch,
    "Dr.Jit": drjit,
    "Dr.Jit, frozen": drjit_frozen,
    "torch.compile": torch_compile,
    "torch.compile, whole step": torch_compile_whole,
    "JAX jit": jax_jit,
    "PyTorch eager": torch_eager,
    "Numba, derivatives by hand": numba_by_hand,
    "Warp (CPU, one thread)": warp_cpu,
    "autograd": autograd,
}
COPIES = (copy, copy_torch)
IMPLEMENTATIONS: Mapping[str, Implementation] = {
    **{f"mixad {strategy}": partial(mixad, strategy=strategy) for strategy in STRATEGIES},
    **PEERS,
}


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield one case per size and layout of the control values."""
    for size in sizes:
        for control_shape, name in (
            ((size, 1), "(n, 1)"),
            ((size,), "(n,)"),
            ((size, size), "(n, n)"),
        ):
            p = problem(size, control_shape, seed)
            yield Case(
                "hm_lstm",
                f"{size}², z of shape {name}",
                {
                    key: Contender(partial(make, p), () if make in COPIES else p.expected)
                    for key, make in IMPLEMENTATIONS.items()
                },
                [
                    Comparison(f"mixad {strategy}", peer, TARGETS.get(peer))
                    for peer in PEERS
                    for strategy in STRATEGIES
                ],
                TOLERANCE,
            )
