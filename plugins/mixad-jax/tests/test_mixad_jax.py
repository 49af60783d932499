"""The plugin registers through its entry point, imports no JAX, and says why it refuses."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from mixad.backends import integrations
from mixad.backends.registry import Registry, installed_plugins


@pytest.fixture
def announced():
    (found,) = Registry([s for s in installed_plugins() if s.name == "jax"]).integrations
    return found


def test_the_entry_point_registers_the_integration(announced):
    assert (announced.spec.name, announced.spec.array_module) == ("jax", "jax")


def test_registering_imports_no_jax():
    code = "import sys, mixad_jax; mixad_jax.mixad_integrations(); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_old_jax_is_named(announced, monkeypatch):
    old = SimpleNamespace(__version_info__=(0, 9, 1), __version__="0.9.1")
    monkeypatch.setitem(sys.modules, "jax", old)
    with pytest.warns(RuntimeWarning, match=r"'jax' cannot be used: .*needs JAX 0\.10.*0\.9\.1"):
        integrations._load(announced)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["import jax, mixad", "import mixad, jax"])
def test_it_is_loaded_when_jax_is_there(tmp_path, order):
    pytest.importorskip("jax")
    path = tmp_path / "program.py"
    path.write_text(
        f"{order}\n"
        "product = mixad.broadcast(lambda x, y: x * y)\n"
        "assert jax.jit(jax.grad(product))(2.0, 3.0) == 3.0\n"
    )
    subprocess.run([sys.executable, "-W", "error", path], check=True)
