"""How bytes a second depend on the number of active inputs: Π tanh(±xᵢ), N = 1 … 24.

The experiment of Revels et al. (2018), §5.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from benchmarks.gpu.elementwise import Elementwise, contenders
from benchmarks.gpu.work import Work, sampled
from benchmarks.peers.harness import Tolerance
from mixad.special import tanh

ARITIES = range(1, 25)
SIDES = (2048, 8192)


def product_of(count: int) -> Callable[..., object]:
    """Return the kernel of so many scalars, as a user would write it out."""
    names = [f"x{k}" for k in range(count)]
    factors = " * ".join(f"tanh({x} if {x} > 0.5 else -{x})" for x in names)
    source = f"def product({', '.join(names)}):\n    return {factors}\n"
    file = f"<product of {count}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space: dict[str, object] = {"tanh": tanh}
    exec(compile(source, file, "exec"), space)  # noqa: S102  # our own text
    return space["product"]


def expected(e: Elementwise) -> list[np.ndarray]:
    """Return value and gradients in float64, at the elements that are checked."""
    xs = [sampled(x).astype(np.float64) for x in e.active]
    sign = [np.where(x > 0.5, 1.0, -1.0) for x in xs]
    factors = [np.tanh(s * x) for s, x in zip(sign, xs, strict=True)]
    slopes = [s * (1 - t * t) for s, t in zip(sign, factors, strict=True)]
    w = sampled(e.cotangent)
    others = [np.prod(factors[:k] + factors[k + 1 :], axis=0) for k in range(len(xs))]
    gradients = [w * o * d for o, d in zip(others, slopes, strict=True)]
    return [np.prod(factors, axis=0), *gradients]


def drawn(side: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Draw as many inputs as the largest arity has, and the cotangent."""
    rng = np.random.default_rng(seed)
    xs = [rng.random((side, side), dtype=np.float32) for _ in range(max(ARITIES))]
    return xs, rng.standard_normal((side, side), dtype=np.float32)


def works(scale: float, seed: int) -> Iterator[Work]:
    """Yield every arity at both sizes; the inputs of fewer are the first ones of more."""
    for side in (max(8, int(side * scale)) for side in SIDES):
        xs, cotangent = drawn(side, seed)
        for count in ARITIES:
            e = Elementwise(product_of(count), None, (), xs[:count], cotangent)
            title = f"N = {count}, {side}²"
            yield Work("arity", title, contenders(e), partial(expected, e),
                       e.bytes_moved, Tolerance(2e-5, 4e-6))  # fmt: skip
