"""Reductions, scans and their pullbacks as CUDA C++, run by the emulator, beside the CPU's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cuda_emulator import CAPABILITY, emulated

import mixad
from mixad.backends.arrays import layout_of
from mixad.backends.checks import check_writes
from mixad.constructs import blocks
from mixad.errors import BackendError
from mixad.kernel.plan import plan
from mixad.kernel.spec import OutputRequest
from mixad.kernel.tiling import Tiling
from mixad.scalar.build import Builder
from mixad.scalar.ir import ArrayType
from mixad.scalar.types import F64, I64

BACKEND = emulated()
NO_CACHE_LIMIT = 1 << 40


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernels of constructs be launched by the emulator."""

    def kernel_for(passes: Any, requests: Any) -> Any:
        def launch(values: Any) -> Any:
            kinds = [p.kind for p in passes[0].params]
            layouts = [
                None if kind == "uniform" else layout_of(value)
                for kind, value in zip(kinds, values, strict=True)
            ]
            lanes = [v.shape for v, kind in zip(values, kinds, strict=True) if kind == "lane"]
            shape, tiling = np.broadcast_shapes(*lanes), Tiling()
            found = plan(passes, requests, layouts, shape, NO_CACHE_LIMIT, tiling=tiling)
            return BACKEND.launch(BACKEND.bind(BACKEND.compile(found.spec), found), values)

        return launch

    monkeypatch.setattr(blocks, "kernel_for", kernel_for)


def affine(f: Any, g: Any) -> Any:
    return g[0] + g[1] * f[0], f[1] * g[1]


def largest(p: Any, q: Any) -> Any:
    if q[0] > p[0]:
        return q
    return p


def outputs(xs: Any, op: Any) -> list[Any]:
    """Return what a reduction and a scan give, and the cotangents of elements."""
    found = []
    for combine in (mixad.reduce, mixad.associative_scan):
        value, pull = mixad.vjp(lambda *xs, combine=combine: combine(op, xs), *xs)
        ones = [np.cos(np.arange(y.size)).reshape(y.shape).astype(y.dtype) for y in value]
        found += [*value, *pull(tuple(ones))]
    return found


@pytest.mark.slow  # what is compiled by g++
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("shape", [(130,), (3, 250), (121, 20)])
def test_affine_maps(dtype: str, shape: tuple[int, ...], request: pytest.FixtureRequest) -> None:
    rng = np.random.default_rng(0)
    xs = rng.normal(size=shape).astype(dtype), rng.uniform(0.8, 1.1, shape).astype(dtype)
    expected = outputs(xs, affine)
    request.getfixturevalue("on_device")
    for got, wanted in zip(outputs(xs, affine), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12 if dtype == "f8" else 1e-4)


def test_extremes_at_indices_are_refused_by_backends_that_only_write() -> None:
    b = Builder("extremes")
    x, at = b.param("x", F64), b.param("at", I64)
    array = b.accumulator("dest", ArrayType(F64, 1), "min")
    b.update(array, at, value=x)
    program, requests = b.finish([array]), (OutputRequest(0, 0, (3,)),)
    older = replace(CAPABILITY, accumulates=frozenset({"write"}))
    with pytest.raises(BackendError, match="'older' does not combine elements by an operator"):
        check_writes("older", older, (program,), requests, {})


@pytest.mark.slow
def test_branches_and_whole_numbers(request: pytest.FixtureRequest) -> None:
    x, at = np.sin(np.arange(300.0)), np.arange(300)

    def found() -> tuple[Any, Any]:
        value = mixad.associative_scan(largest, (x, at))
        return *value, mixad.grad(lambda x: mixad.associative_scan(largest, (x, at))[0].sum())(x)

    expected = found()
    request.getfixturevalue("on_device")
    for got, wanted in zip(found(), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
