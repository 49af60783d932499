"""A loss that is written once over a namespace of arrays: value and gradients in each library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import libraries
from benchmarks.peers.harness import Call, Contender, Unpack


@dataclass(frozen=True)
class Problem:
    """A loss, its arguments, and what its value and gradients are.

    Parameters
    ----------
    loss : callable
        ``loss(xp, *arrays, *constants)`` returns a scalar; ``xp`` has NumPy's functions.
    arrays : tuple of ndarray
        It is differentiated with respect to all of them.
    expected : tuple of ndarray
        The value, then the gradients, in float64; of each as much as ``checked`` leaves.
    checked : callable
        What is compared of an array.
    constants : tuple of ndarray
        What else it reads.
    """

    loss: Callable
    arrays: tuple[NDArray, ...]
    expected: tuple[NDArray, ...]
    checked: Callable[[NDArray], NDArray]
    constants: tuple[NDArray, ...] = ()

    @property
    def argnums(self) -> tuple[int, ...]:
        return tuple(range(len(self.arrays)))

    @property
    def bytes_moved(self) -> int:
        """What must be read and written: the arguments and as many gradients."""
        read = sum(array.nbytes for array in self.constants)
        return read + 2 * sum(array.nbytes for array in self.arrays)

    def of(self, xp, asarray: Callable = lambda array: array) -> Callable:
        """Return the loss in a library, as a function of its arrays of what is differentiated."""
        constants = [asarray(array) for array in self.constants]
        return lambda *arrays: self.loss(xp, *arrays, *constants)

    def unpack(self, result: tuple) -> list[NDArray]:
        """Return what is compared of ``(value, gradients)`` of any library."""
        value, gradients = result
        return [np.asarray(value), *(self.checked(np.asarray(g)) for g in gradients)]


def mixad(p: Problem) -> tuple[Call, Unpack]:
    """Return the loss as a user of NumPy writes it."""
    import mixad

    value_and_gradients = mixad.value_and_grad(p.of(np), argnums=p.argnums)
    return lambda: value_and_gradients(*p.arrays), p.unpack


def torch_call(p: Problem, compiled: bool) -> tuple[Call, Unpack]:
    """Return the loss, compiled or not, with PyTorch's autograd around it."""
    torch = libraries.torch()
    tensors = [torch.from_numpy(x) for x in p.arrays]
    loss = p.of(torch, torch.from_numpy)
    loss = torch.compile(loss, dynamic=False) if compiled else loss

    def call():
        active = [x.detach().requires_grad_() for x in tensors]
        value = loss(*active)
        return value.detach(), torch.autograd.grad(value, active)

    return call, p.unpack


def torch_eager(p: Problem) -> tuple[Call, Unpack]:
    return torch_call(p, compiled=False)


def torch_compile(p: Problem) -> tuple[Call, Unpack]:
    return torch_call(p, compiled=True)


def torch_compile_whole(p: Problem) -> tuple[Call, Unpack]:
    """Return value and gradients compiled as one graph, so that nothing is kept for a backward."""
    torch = libraries.torch()
    tensors = [torch.from_numpy(x) for x in p.arrays]
    both = torch.func.grad_and_value(p.of(torch, torch.from_numpy), argnums=p.argnums)
    compiled = torch.compile(both, dynamic=False)
    return lambda: compiled(*tensors), lambda result: p.unpack(result[::-1])


def jax_jit(p: Problem) -> tuple[Call, Unpack]:
    jax = libraries.jax()
    arrays = [jax.numpy.asarray(x) for x in p.arrays]
    loss = p.of(jax.numpy, jax.numpy.asarray)
    compiled = jax.jit(jax.value_and_grad(loss, argnums=p.argnums))
    return lambda: jax.block_until_ready(compiled(*arrays)), p.unpack


def autograd(p: Problem) -> tuple[Call, Unpack]:
    value_and_grad = libraries.autograd().value_and_grad
    import autograd.numpy as anp

    loss = p.of(anp)
    both = value_and_grad(lambda arrays: loss(*arrays))
    return lambda: both(p.arrays), p.unpack


def copy(p: Problem) -> tuple[Call, Unpack]:
    return libraries.copy_bytes(p.bytes_moved)


def copy_torch(p: Problem) -> tuple[Call, Unpack]:
    return libraries.copy_bytes_torch(p.bytes_moved)


COPIES = (copy, copy_torch)
NONE: Mapping[str, Callable] = MappingProxyType({})
WARP = "Warp (CPU, one thread)"
PEERS: Mapping[str, Callable[[Problem], tuple[Call, Unpack]]] = {
    "copy of the bytes": copy,
    "copy of the bytes, PyTorch": copy_torch,
    "torch.compile": torch_compile,
    "torch.compile, whole step": torch_compile_whole,
    "JAX jit": jax_jit,
    "PyTorch eager": torch_eager,
    "autograd": autograd,
}


def drjit(p: Problem, terms: Callable) -> tuple[Call, Unpack]:
    """Return the sum of ``terms(xp, *arrays)`` on Dr.Jit's arrays: they have no methods."""
    dr = libraries.drjit()
    from drjit.llvm.ad import TensorXf

    arrays = [TensorXf(x) for x in p.arrays]
    dr.eval(arrays)

    def call():
        active = [TensorXf(x) for x in arrays]
        dr.enable_grad(*active)
        total = dr.sum(terms(dr, *active))
        dr.backward(total)
        result = dr.detach(total), [dr.grad(x) for x in active]
        dr.eval(result)
        dr.sync_thread()
        return result

    return call, p.unpack


def warp_cpu(p: Problem, kernel: str, extents: tuple[int, ...]) -> tuple[Call, Unpack]:
    """Return one of Warp's kernels, which adds its terms to a sum in float64."""
    wp = libraries.warp()
    from benchmarks.peers import warp_kernels

    active = [wp.array(np.atleast_1d(x), requires_grad=True, device="cpu") for x in p.arrays]

    def call():
        for x in active:
            x.grad = wp.zeros_like(x, requires_grad=False)
        total = wp.zeros(1, dtype=wp.float64, requires_grad=True, device="cpu")
        with wp.Tape() as tape:
            wp.launch(getattr(warp_kernels, kernel), extents, active, [total], device="cpu")
        tape.backward(total)
        return total, [x.grad for x in active]

    return call, lambda result: p.unpack((result[0].numpy(), [x.numpy() for x in result[1]]))


def contenders(
    p: Problem,
    ours: Mapping[str, Callable[[Problem], tuple[Call, Unpack]]],
    others: Mapping[str, Callable[[Problem], tuple[Call, Unpack]]] = NONE,
) -> Mapping[str, Contender]:
    """Return mixad's ways of writing a loss, then the peers, those of one workload last."""
    return {
        name: Contender(partial(make, p), () if make in COPIES else p.expected)
        for name, make in {**ours, **PEERS, **others}.items()
    }


def whole(array: NDArray) -> NDArray:
    """Return an array of which all is compared."""
    return array


def every(step: int) -> Callable[[NDArray], NDArray]:
    """Return what compares every so many elements: references of all would fill the memory."""
    return partial(_strided, step=step)


def _strided(array: NDArray, step: int) -> NDArray:
    return array.reshape(-1)[::step]


def in_double(arrays: Sequence[NDArray]) -> list[NDArray[np.float64]]:
    """Return arrays in float64."""
    return [np.asarray(array, np.float64) for array in arrays]
