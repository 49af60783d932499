"""How the cost grows with the number of active inputs: Π tanh(±xᵢ), N = 1 … 10, and up to 24.

The experiment of Revels et al. (2018), §5: ``tanh(x if x > 0.5 else -x)`` multiplied over N inputs,
all active, by forward duals. Value and N gradients, given a cotangent, in float32 arrays larger
than the cache. A call moves 2 N + 2 arrays; its time per byte is compared with that of N = 3.

Beyond ten inputs dual numbers take several passes. A second case has the time per input there, of
the strategy that mixad chooses and of forward duals, compared with that of N = 10.
"""

from __future__ import annotations

import importlib.util
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import mul
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import libraries
from benchmarks.peers.harness import (
    Call,
    Case,
    Comparison,
    Contender,
    Target,
    Times,
    Tolerance,
    Unpack,
)

SIZES = (1 << 23,)
ARITIES = range(1, 11)
BASE = 3
WIDE_SIZE = 1 << 20
WIDE_ARITIES = (10, 11, 12, 14, 16, 20, 24)
WIDE_BASE = 10
CHECKED = 61  # every so many elements are checked: float64 references of all would fill the memory
TOLERANCE = Tolerance(relative=1e-5, scaled=2e-6)
TARGETS = {f"N = {BASE}": Target(1.6), f"N = {WIDE_BASE}, per input": Target(1.3)}
GIGABYTE = 1e9


def s(x):
    """Return one factor."""
    return math.tanh(x if x > 0.5 else -x)


# Written out: the kernel of each arity is a function of exactly so many scalars.
PRODUCTS: Mapping[int, Callable] = {
    1: lambda a: s(a),
    2: lambda a, b: s(a) * s(b),
    3: lambda a, b, c: s(a) * s(b) * s(c),
    4: lambda a, b, c, d: s(a) * s(b) * s(c) * s(d),
    5: lambda a, b, c, d, e: s(a) * s(b) * s(c) * s(d) * s(e),
    6: lambda a, b, c, d, e, f: s(a) * s(b) * s(c) * s(d) * s(e) * s(f),
    7: lambda a, b, c, d, e, f, g: s(a) * s(b) * s(c) * s(d) * s(e) * s(f) * s(g),
    8: lambda a, b, c, d, e, f, g, h: s(a) * s(b) * s(c) * s(d) * s(e) * s(f) * s(g) * s(h),
    9: lambda a, b, c, d, e, f, g, h, i: (
        s(a) * s(b) * s(c) * s(d) * s(e) * s(f) * s(g) * s(h) * s(i)
    ),
    10: lambda a, b, c, d, e, f, g, h, i, j: (
        s(a) * s(b) * s(c) * s(d) * s(e) * s(f) * s(g) * s(h) * s(i) * s(j)
    ),
}


@dataclass(frozen=True)
class Problem:
    """As many inputs as the largest arity takes, and the cotangent."""

    xs: tuple[NDArray, ...]
    cotangent: NDArray

    def bytes_moved(self, n: int) -> int:
        return (2 * n + 2) * self.cotangent.nbytes

    def expected(self, n: int) -> tuple[NDArray, ...]:
        """Return value and gradients at the elements that are checked, in float64."""
        xs = [x[::CHECKED].astype(np.float64) for x in self.xs[:n]]
        factors = [np.tanh(np.where(x > 0.5, x, -x)) for x in xs]
        slopes = [np.where(x > 0.5, 1, -1) * (1 - t * t) for x, t in zip(xs, factors, strict=True)]
        cotangent = self.cotangent[::CHECKED]
        value = np.prod(factors, axis=0)
        others = [np.prod(factors[:k] + factors[k + 1 :], axis=0) for k in range(n)]
        return value, *(cotangent * o * d for o, d in zip(others, slopes, strict=True))


def problem(size: int, seed: int, arity: int = max(ARITIES)) -> Problem:
    """Draw the inputs of all arities."""
    rng = np.random.default_rng(seed)
    xs = tuple(rng.random(size, dtype=np.float32) for _ in range(arity))
    return Problem(xs, rng.standard_normal(size, dtype=np.float32))


def checked(result: tuple) -> list[NDArray]:
    """Return the checked elements of ``(value, gradients)`` of any library."""
    value, gradients = result
    return [np.asarray(x)[::CHECKED] for x in (value, *gradients)]


def written(folder: Path) -> Mapping[int, Callable]:
    """Return the kernels of the wide arities from a file of them: parsing them takes one."""
    path = folder / "products_of_many.py"
    lines = ["from benchmarks.peers.arity import s", ""]
    for n in WIDE_ARITIES:
        names = [f"x{k}" for k in range(n)]
        factors = " * ".join(f"s({name})" for name in names)
        lines += ["", f"def product_{n}({', '.join(names)}):", f"    return {factors}", ""]
    path.write_text("\n".join(lines), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {n: getattr(module, f"product_{n}") for n in WIDE_ARITIES}


def mixad(
    p: Problem, n: int, products: Mapping[int, Callable] = PRODUCTS, strategy: str = "forward"
) -> tuple[Call, Unpack]:
    import mixad

    product = mixad.broadcast(strategy=strategy)(products[n])
    return lambda: mixad.value_and_vjp(product, p.xs[:n], p.cotangent), checked


def drjit(p: Problem, n: int) -> tuple[Call, Unpack]:
    dr = libraries.drjit()
    from drjit.llvm.ad import Float

    *xs, cotangent = (Float(x) for x in (*p.xs[:n], p.cotangent))
    dr.eval(xs, cotangent)

    def call():
        active = [Float(x) for x in xs]
        dr.enable_grad(*active)
        value = reduce(mul, [dr.tanh(dr.select(x > 0.5, x, -x)) for x in active])
        dr.set_grad(value, cotangent)
        dr.enqueue(dr.ADMode.Backward, value)
        dr.traverse(dr.ADMode.Backward)
        result = dr.detach(value), [dr.grad(x) for x in active]
        dr.eval(result)
        dr.sync_thread()
        return result

    return call, checked


def jax_jit(p: Problem, n: int) -> tuple[Call, Unpack]:
    jax = libraries.jax()
    jnp = jax.numpy

    def product(*xs):
        return reduce(mul, [jnp.tanh(jnp.where(x > 0.5, x, -x)) for x in xs])

    @jax.jit
    def value_and_vjp(cotangent, *xs):
        value, pullback = jax.vjp(product, *xs)
        return value, pullback(cotangent)

    arrays = [jnp.asarray(x) for x in (p.cotangent, *p.xs[:n])]
    return lambda: jax.block_until_ready(value_and_vjp(*arrays)), checked


def copy(p: Problem, n: int) -> tuple[Call, Unpack]:
    return libraries.copy_bytes(p.bytes_moved(n))


IMPLEMENTATIONS = {"mixad forward": mixad, "copy": copy, "Dr.Jit": drjit, "JAX jit": jax_jit}


def per_gigabyte(times: Times, name: str, gigabytes: float) -> NDArray[np.float64]:
    """Return seconds per gigabyte moved, round by round."""
    return times[name] / gigabytes


def per_input(times: Times, name: str, n: int) -> NDArray[np.float64]:
    """Return seconds per input, round by round."""
    return times[name] / n


def wide_case(size: int, seed: int, products: Mapping[int, Callable]) -> Case:
    """Return the case of many inputs."""
    p = problem(size, seed, max(WIDE_ARITIES))
    makes = {
        "mixad": partial(mixad, products=products, strategy="auto"),
        "mixad forward": partial(mixad, products=products),
        "JAX jit": jax_jit,
        "copy": copy,
    }
    contenders, derived, comparisons = {}, {}, []
    for name, make in makes.items():
        for n in WIDE_ARITIES:
            key = f"{name}, N = {n}"
            contenders[key] = Contender(
                partial(make, p, n), () if name == "copy" else p.expected(n)
            )
            derived[f"{key}, per input"] = partial(per_input, name=key, n=n)
            if n != WIDE_BASE:
                base = f"N = {WIDE_BASE}, per input"
                target = TARGETS[base] if name == "mixad" else None
                comparisons.append(Comparison(f"{key}, per input", f"{name}, {base}", target))
    for n in WIDE_ARITIES:
        comparisons.append(Comparison(f"mixad, N = {n}", f"mixad forward, N = {n}"))
    title = f"many inputs, n = {size:,}"
    return Case("arity", title, contenders, comparisons, TOLERANCE, derived, keeps=(0,))


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield one case per size: every arity of every implementation in the same rounds."""
    with tempfile.TemporaryDirectory() as folder:
        yield wide_case(min(WIDE_SIZE, *sizes), seed, written(Path(folder)))
    for size in sizes:
        p = problem(size, seed)
        expected = {n: p.expected(n) for n in ARITIES}
        contenders, derived, comparisons = {}, {}, []
        for name, make in IMPLEMENTATIONS.items():
            for n in ARITIES:
                key = f"{name}, N = {n}"
                contenders[key] = Contender(
                    partial(make, p, n), () if make is copy else expected[n]
                )
                gigabytes = p.bytes_moved(n) / GIGABYTE
                derived[f"{key}, per GB"] = partial(per_gigabyte, name=key, gigabytes=gigabytes)
                if n != BASE:
                    target = TARGETS[f"N = {BASE}"] if make is mixad else None
                    base = f"{name}, N = {BASE}, per GB"
                    comparisons.append(Comparison(f"{key}, per GB", base, target))
        for n in ARITIES:
            comparisons += [
                Comparison(f"mixad forward, N = {n}", f"{name}, N = {n}")
                for name, make in IMPLEMENTATIONS.items()
                if make is not mixad
            ]
        yield Case(
            "arity", f"n = {size:,}", contenders, comparisons, TOLERANCE, derived, keeps=(0,)
        )
