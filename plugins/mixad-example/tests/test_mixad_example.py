"""The example registers through its entry point, serves by name only, and its C says what it does.

What it computes is tested by ``pytest --pyargs mixad.conformance --mixad-backend=example``.
"""

import subprocess
import sys

import numpy as np
import pytest
from mixad_example import emit

import mixad
from mixad.backends import registry
from mixad.backends.registry import Registry, installed_plugins
from mixad.errors import BackendError, KernelIndexError
from mixad.scalar.ops import BY_NAME


@pytest.fixture
def alone():
    return Registry([source for source in installed_plugins() if source.name == "example"])


def test_the_entry_point_registers_the_backend(alone):
    assert [spec.name for spec in alone.specs] == ["example"]
    assert alone.failures == ()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_it_is_never_chosen_before_the_cpu_backend(dtype):
    assert registry.resolve("numpy", "cpu", frozenset({dtype})).name == "cpu"


def test_registering_starts_no_compiler_and_imports_no_emitter():
    code = "import sys, mixad_example; mixad_example.mixad_backends(); "
    code += "assert 'mixad_example.backend' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_compiler_is_named(alone, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackendError, match=r"no C compiler, `cc`, in the PATH; install gcc"):
        alone.backend("example")


def test_a_gradient_is_that_of_the_formula():
    x = np.linspace(-1.0, 2.0, 12).reshape(3, 4)
    y = np.array([0.5, 1.0, 2.0, 4.0])
    kernel = mixad.broadcast(lambda x, y: x * x / y if x > 0 else -x, backend="example")
    dx, dy = mixad.grad(lambda x, y: kernel(x, y).sum(), (0, 1))(x, y)
    np.testing.assert_allclose(dx, np.where(x > 0, 2 * x / y, -1.0), rtol=1e-15)
    np.testing.assert_allclose(dy, np.where(x > 0, -x * x / y**2, 0.0).sum(axis=0), rtol=1e-14)


def test_an_index_outside_names_the_line():
    table = np.arange(3.0)

    @mixad.broadcast(backend="example")
    def entry(k):
        return table[k]

    np.testing.assert_array_equal(entry(np.array([0, -1])), [0.0, 2.0])
    with pytest.raises(KernelIndexError, match=r"return table\[k\]"):
        entry(np.array([0, 3]))


@mixad.broadcast(backend="example")
def halved(x):
    return 0.5 * x if x > 0.0 else x


C = """\
int64_t kernel(int64_t count, void **given, int64_t **extents, void **out) {
  for (int64_t i = 0; i < count; i++) {
    {
      const double v0 = ((const double *)given[0])[i];
      const double v1 = ((const double *)given[1])[i];
      bool v2 = (bool)(v0 > ((double)0x0.0p+0));
      double v4;
      double v5;
      if (v2) {
        double v3 = (double)(((double)0x1.0000000000000p-1) * v0);
        v4 = v3;
        v5 = ((double)0x1.0000000000000p-1);
      } else {
        v4 = v0;
        v5 = ((double)0x1.0000000000000p+0);
      }
      bool v6 = (bool)(v1 != ((double)0x0.0p+0));
      bool v7 = (bool)(v5 != ((double)0x0.0p+0));
      bool v8 = (bool)(v6 & v7);
      double v9 = (double)(v1 * v5);
      double v10 = (double)(v8 ? v9 : ((double)0x0.0p+0));
      ((double *)out[0])[i] = v4;
      ((double *)out[1])[i] = v10;
    }
  }
  return 0;
}"""


def test_the_source_is_c():
    """Of the kernel for value and gradient: v1 is the cotangent, v5 the derivative."""
    assert C in halved.source(np.ones(3), stage="llvm")


def test_every_instruction_is_spelled():
    """Another one has no name in C: the compiler would take the text for a call of a function."""
    spelled = {"bitcast", "convert", *emit._COMMON}.union(*emit._OF_KIND.values())
    nameless = [op for op in BY_NAME.values() if op.lowering == "instruction" and op.c is None]
    assert len(nameless) > 20
    assert [op.name for op in nameless if op.name not in spelled] == []
