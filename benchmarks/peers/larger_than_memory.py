"""A fit to more data than there is memory for: value and gradients of a loss, chunk by chunk.

Chunks of 8 MiB are made by the tasks that read them; a size is in MiB, so that without options
1,000 of them are 8 GB that no file holds. Two processes of Dask with 1 GB each share them. The loss
is Huber's, with a well, of a column's own place and scale. Beside mixad over the Dask array stand
`map_blocks` with each chunk's value and gradients: by mixad over NumPy, by JAX, and by NumPy with
derivatives by hand.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import THREAD_VARIABLES
from benchmarks.peers.harness import (
    Call,
    Case,
    Comparison,
    Contender,
    Target,
    Tolerance,
    UnavailableError,
    Unpack,
)

SIZES = (8000,)  # MiB
ROUNDS = 5
ROWS, COLUMNS = 1 << 13, 1 << 7  # of a chunk, which has 8 MiB
KINDS = 8  # chunks that differ: the expected sums are those of so many
WORKERS, MEMORY = 2, "1GB"
BY_HAND = "map_blocks of mixad's kernel"
TOLERANCE = Tolerance(relative=1e-9, scaled=1e-9)
TARGETS = {BY_HAND: Target(1.4)}
ONE_THREAD = dict.fromkeys(THREAD_VARIABLES, "1") | {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"
}

Block = Callable[[NDArray], NDArray]


def parameters(seed: int) -> tuple[NDArray, float, NDArray]:
    """Return each column's place, a weight, each column's scale."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0, 0.2, COLUMNS), 1.25, rng.uniform(0.8, 1.0, COLUMNS)


def chunk(number: int) -> NDArray:
    """Return the data of a chunk: as little work as writing it allows."""
    rng = np.random.default_rng(number % KINDS)
    return np.add.outer(rng.random(ROWS) * 2, np.linspace(0, 1, COLUMNS))


def by_hand(x: NDArray, a: NDArray, b: float, s: NDArray) -> NDArray:
    """Return the value of a chunk and its derivatives, one after another."""
    r = (x - a) / s
    far, well = r > 2, np.exp(-r * r)
    bent = np.where(far, 2 * r - 2, 0.5 * r * r)
    slope = np.where(far, 2 * b, b * r - 2 * r * well)
    value = b * bent.sum() + well[~far].sum()
    return np.concatenate(
        [[value], -(slope / s).sum(0), [bent.sum()], -(slope * r / s).sum(0)],
    )


@cache
def of_mixad() -> Callable[..., tuple[Any, Sequence[Any]]]:
    """Return the value and the gradients over any array, made once in a process."""
    mixad = importlib.import_module("mixad")

    @mixad.broadcast
    def model(x, a, b, s):
        r = (x - a) / s
        if r > 2.0:
            return b * (2.0 * r - 2.0)
        return 0.5 * b * r * r + np.exp(-r * r)

    def gradients(x: Any, *at: Any) -> tuple[Any, Sequence[Any]]:
        loss = mixad.value_and_grad(lambda a, b, s: np.sum(model(x, a, b, s)), argnums=(0, 1, 2))
        return loss(*at)

    return gradients


@cache
def of_jax() -> Callable[..., tuple[Any, Sequence[Any]]]:
    """Return the same by JAX, compiled once in a process."""
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy

    def loss(a, b, s, x):
        r = (x - a) / s
        near = 0.5 * b * r * r + jnp.exp(-r * r)
        return jnp.sum(jnp.where(r > 2.0, b * (2.0 * r - 2.0), near))

    compiled = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))
    return lambda x, *at: compiled(*at, x)


def joined(value: Any, gradients: Sequence[Any]) -> NDArray:
    """Return a value and gradients as one vector."""
    return np.concatenate([np.atleast_1d(np.asarray(part)) for part in (value, *gradients)])


def by_mixad(x: NDArray, *at: Any) -> NDArray:
    return joined(*of_mixad()(x, *at))


def by_jax(x: NDArray, *at: Any) -> NDArray:
    return joined(*of_jax()(x, *at))


def data(chunks: int) -> Any:
    """Return a Dask array of so many chunks below each other."""

    def block(block_info: Any = None) -> NDArray:
        return chunk(block_info[None]["chunk-location"][0])

    sizes = ((ROWS,) * chunks, (COLUMNS,))
    da = importlib.import_module("dask.array")
    return da.map_blocks(block, chunks=sizes, dtype=float, meta=np.empty((0, 0)))


def over_dask(client: Any, chunks: int, at: Sequence[Any]) -> tuple[Call, Unpack]:
    """Return the gradients by mixad over the array of Dask."""

    def call() -> list[Any]:
        value, gradients = of_mixad()(data(chunks), *at)
        return client.gather(client.compute([value, *gradients]))

    return call, lambda results: [joined(results[0], results[1:])]


def over_blocks(client: Any, chunks: int, block: Block, at: Sequence[Any]) -> tuple[Call, Unpack]:
    """Return the sum of what a function gives of each chunk."""

    def call() -> Any:
        parts = data(chunks).map_blocks(
            lambda x: block(x, *at)[None],
            chunks=((1,) * chunks, (2 * COLUMNS + 2,)),
            dtype=float,
            meta=np.empty((0, 0)),
        )
        return client.compute(parts.sum(0)).result()

    return call, lambda result: [result]


def of_jax_blocks(client: Any, chunks: int, at: Sequence[Any]) -> tuple[Call, Unpack]:
    importlib.import_module("jax")  # which workers import when they are first asked
    return over_blocks(client, chunks, by_jax, at)


def expected(chunks: int, at: Sequence[Any]) -> NDArray:
    """Return the sums by formulas of each kind of chunk, as often as it is there."""
    often = np.bincount(np.arange(chunks) % KINDS, minlength=KINDS)
    return sum(n * by_hand(chunk(k), *at) for k, n in enumerate(often))


def cluster(stack: ExitStack) -> Any:
    """Return a client of two processes, each of one thread, which end with the stack."""
    try:
        distributed = importlib.import_module("distributed")
        importlib.import_module("dask.array")
    except ModuleNotFoundError as absent:
        raise UnavailableError(f"{absent.name} is not installed") from absent
    processes = distributed.LocalCluster(
        n_workers=WORKERS,
        threads_per_worker=1,
        memory_limit=MEMORY,
        processes=True,
        dashboard_address=None,
        env=ONE_THREAD,
    )
    return stack.enter_context(distributed.Client(stack.enter_context(processes)))


def contenders(client: Any, chunks: int, seed: int) -> Mapping[str, Contender]:
    """Return what is timed."""
    at = parameters(seed)
    make = {
        "mixad over Dask": partial(over_dask, client, chunks, at),
        BY_HAND: partial(over_blocks, client, chunks, by_mixad, at),
        "map_blocks of JAX jit": partial(of_jax_blocks, client, chunks, at),
        "map_blocks of NumPy by hand": partial(over_blocks, client, chunks, by_hand, at),
    }
    want = [expected(chunks, at)]
    return {name: Contender(each, want) for name, each in make.items()}


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield a case for each size."""
    with ExitStack() as stack:
        client = cluster(stack)
        for size in sizes:
            chunks = max(size // 8, 1)
            found = contenders(client, chunks, seed)
            yield Case(
                "larger_than_memory",
                f"{chunks * ROWS * COLUMNS * 8 / 1e9:.1f} GB in {chunks} chunks",
                found,
                [
                    Comparison("mixad over Dask", name, TARGETS.get(name))
                    for name in found
                    if name != "mixad over Dask"
                ],
                tolerance=TOLERANCE,
                keeps=(0,),
                rounds=ROUNDS,
                lead=0,
            )
