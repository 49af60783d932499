"""Kernels on the emulator under ASan and UBSan: run by test_sanitisers in a process of its own."""

from __future__ import annotations

import itertools

import numpy as np
from cuda_emulator import CAPABILITY, EmulatedDriver

from mixad.backends import registry
from mixad.backends.cuda import CudaBackend
from mixad.backends.execute import Kernel
from mixad.backends.hookspecs import API_VERSION, BackendSpec, hookimpl
from mixad.kernel.spec import OutputRequest, SubBox
from mixad.scalar.build import Builder
from mixad.scalar.ir import ArrayType
from mixad.scalar.types import F16, F32, F64, I32, I64

FLAGS = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
BACKEND = CudaBackend("sanitised", EmulatedDriver(flags=FLAGS))


class Plugin:
    @hookimpl
    def mixad_backends(self):
        return [BackendSpec("sanitised", API_VERSION, CAPABILITY, lambda: BACKEND, "")]


def product(type):
    b = Builder("product")
    return b.finish([b.op("mul", b.param("x", type), b.param("y", type))])


def added():
    b = Builder("added")
    x, at = b.param("x", F64), b.param("at", I64)
    array = b.accumulator("array", ArrayType(F64, 1))
    b.update(array, at, value=x)
    return b.finish([array])


def launches():
    """Yield what a launch wrote and should have: sums of every pattern and at indices."""
    rng = np.random.default_rng(0)
    for type, columns in itertools.product((F16, F32, F64), (64, 67, 2500)):
        x, y = (rng.integers(-4, 5, s).astype(type.dtype) for s in ((21, columns), (columns,)))
        results = [None, (1, columns), (21, 1), (1, 1)]
        requests = tuple(OutputRequest(0, 0, r) for r in results)
        outputs = Kernel((product(type),), requests)((x, y), "sanitised")
        whole = x.astype("f8") * y
        wanted = [whole, whole.sum(0), whole.sum(1), whole.sum()]
        yield from zip(outputs, wanted, strict=True)
    part = SubBox((30, 80), (2, 5))
    x = rng.integers(-4, 5, (21, 64)).astype("f4")
    (output,) = Kernel((product(F32),), (OutputRequest(0, 0, part=part),))((x, x), "sanitised")
    yield output[2:23, 5:69], x * x
    for count, columns in itertools.product((3, 40), (64, 67)):
        x = rng.integers(-4, 5, (21, columns)).astype("f4")
        request = OutputRequest(0, 0, beside=((0, 0),) * (count - 1))
        (output,) = Kernel((product(F32),), (request,))((x, x), "sanitised")
        yield output, np.repeat(x * x, count)
    for count in (1, 1000, 4096, 5000):
        x, at = rng.integers(-4, 5, (7, 67)).astype("f8"), rng.integers(-count, count, (7, 67))
        (output,) = Kernel((added(),), (OutputRequest(0, 0, (count,)),))((x, at), "sanitised")
        whole = np.zeros(count)
        np.add.at(whole, at, x)
        yield output, whole
    extremes = np.asarray([-(1 << 31), -1, 0, 1, (1 << 31) - 1], "i4")
    pairs = [np.ascontiguousarray(p) for p in np.array(list(itertools.product(*2 * [extremes]))).T]
    (output,) = Kernel((product(I32),), (OutputRequest(0, 0),))(tuple(pairs), "sanitised")
    with np.errstate(over="ignore"):
        yield output, pairs[0] * pairs[1]


def main() -> None:
    source = registry.PluginSource("sanitised", "tests", Plugin)
    own = registry.Registry([*registry.installed_plugins(), source])
    registry.default_registry = lambda: own
    count = 0
    for output, wanted in launches():
        np.testing.assert_array_equal(np.asarray(output, "f8").ravel(), np.ravel(wanted))
        count += 1
    print(f"{count} results are right")


if __name__ == "__main__":
    main()
