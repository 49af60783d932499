"""Programs in other systems, of docs/coming-from.md and others, where these are there."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import mixad

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "coming-from.md").read_text("utf-8")
SYSTEMS = {
    "JAX": find_spec("jax"),
    "PyTorch": find_spec("torch"),
    "autograd": find_spec("autograd"),
    "Numba": find_spec("numba"),
    "Warp": find_spec("warp"),
    "Dr.Jit": find_spec("drjit"),
}
SHOW = """
import json
import numpy
print(json.dumps([numpy.asarray(x.detach() if hasattr(x, "detach") else x).tolist()
                  for x in (E, slope)]))
"""


def programs(system, page=PAGE, level="##"):
    """Return the programs under the heading of a system that are not run when the page is built."""
    section = page.partition(f"\n{level} {system}\n")[2].partition(f"\n{level} ")[0]
    return re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def run(program, folder):
    """Return E and its slope, as a program of its own computes them."""
    file = folder / "program.py"
    file.write_text(program + SHOW)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True)
    return np.array(json.loads(done.stdout.splitlines()[-1]))


def exact():
    """Return E by bisection, and its slope by the implicit function theorem."""
    mean, e = np.linspace(0.1, 3.0, 5), 0.3
    low, high = np.zeros(5), np.full(5, np.pi)
    for _ in range(60):
        middle = 0.5 * (low + high)
        is_high = middle - e * np.sin(middle) > mean
        low, high = np.where(is_high, low, middle), np.where(is_high, middle, high)
    return np.array([low, np.sin(low) / (1.0 - e * np.cos(low))])


def test_every_system_has_a_program():
    assert {system: len(programs(system)) for system in SYSTEMS} == {
        **dict.fromkeys(SYSTEMS, 1), "PyTorch": 2,
    }  # fmt: skip


def test_differences_in_numpy_have_fewer_digits(tmp_path):
    (program,) = programs("NumPy")
    E, slope = run(program, tmp_path)
    np.testing.assert_allclose(E, exact()[0], rtol=1e-12)
    assert 1e-12 < abs(slope / exact()[1] - 1.0).max() < 1e-9


def product_of_vectors(v, w):
    return v[0] * w[0] + v[1] * w[1] + v[2] * w[2]


def product_with_matrix(A, v):
    return [product_of_vectors(A[0], v), product_of_vectors(A[1], v), product_of_vectors(A[2], v)]


@pytest.mark.parametrize(
    ("signature", "function", "cores"),
    [
        ("(n),(n)->()", product_of_vectors, ((3,), (3,))),
        ("(3,3),(3)->(3)", product_with_matrix, ((3, 3), (3,))),
    ],
)
def test_signatures_of_the_page_are_taken(signature, function, cores):
    assert f'signature="{signature}"' in PAGE
    rng = np.random.default_rng(0)
    first, second = (rng.random((4, *core)) for core in cores)
    found = mixad.broadcast(function, signature=signature)(first, second)
    expected = np.einsum("k...i,ki->k...", first, second)
    np.testing.assert_allclose(found, expected, rtol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize(
    "system",
    [
        pytest.param(
            system, marks=pytest.mark.skipif(not spec, reason=f"{system} is not installed")
        )
        for system, spec in SYSTEMS.items()
    ],
)
def test_each_program_gives_the_same_results(system, tmp_path):
    for program in programs(system):
        np.testing.assert_allclose(run(program, tmp_path), exact(), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.skipif(not SYSTEMS["Warp"], reason="Warp is not installed")
def test_what_is_said_of_loops_in_warp(tmp_path):
    (program,) = programs("Warp")
    start, rest = program.split("    for _ in range(8):")
    body, end = rest.partition("\n")[2].split("    E[k] = x\n")
    step = body.strip().removeprefix("x = x - ")
    loop = "    step = wp.float64(1.0)\n    while wp.abs(step) > wp.float64(1e-10):\n"
    loop += f"        step = {step}\n        x = x - step\n"
    E, slope = run(f"{start}{loop}    E[k] = x\n{end}", tmp_path)
    np.testing.assert_allclose(E, exact()[0], rtol=1e-12)
    assert slope[1] == pytest.approx(0.974, abs=5e-4)
    assert exact()[1][1] == pytest.approx(1.030, abs=5e-4)


@pytest.mark.slow
@pytest.mark.skipif(not SYSTEMS["JAX"], reason="JAX is not installed")
def test_what_is_said_of_reverse_mode_in_jax(tmp_path):
    (program,) = programs("JAX")
    wanted = "Reverse-mode differentiation does not work for lax.while_loop"
    assert wanted in PAGE
    program += "jax.grad(lambda e: jax.vmap(anomaly)(mean, e).sum())(e)\n"
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run(program, tmp_path)
    assert wanted in failed.value.stderr


@pytest.mark.skipif(not SYSTEMS["Dr.Jit"], reason="Dr.Jit is not installed")
def test_what_is_said_of_reverse_mode_in_drjit(tmp_path):
    (program,) = programs("Dr.Jit")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run(program.partition("dr.set_grad")[0] + "dr.backward(dr.sum(E))\n", tmp_path)
    assert "max_iterations" in failed.value.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heading", "place", "needed"),
    [
        ("PyTorch", 0, ["torch"]),
        ("PyTorch", 1, ["torch", "mixad_torch"]),
        ("PyTorch", 2, ["torch", "mixad_torch"]),
        ("JAX", 0, ["jax"]),
    ],
)
def test_the_programs_of_the_page_on_arrays_run(heading, place, needed, tmp_path):
    for package in needed:
        pytest.importorskip(package)
    page = (ROOT / "docs" / "arrays.md").read_text("utf-8")
    found = programs(heading, page, "###")
    assert len(found) == {"PyTorch": 3, "JAX": 1}[heading]
    (tmp_path / "program.py").write_text(found[place])
    subprocess.run([sys.executable, tmp_path / "program.py"], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("heading", [
    "Kernels in JAX's transforms", "On several devices", "Functions of JAX in mixad's transforms"
])  # fmt: skip
def test_the_programs_of_the_page_on_jax_run(heading, tmp_path):
    pytest.importorskip("jax", minversion="0.10")
    pytest.importorskip("mixad_jax")
    (program,) = programs(heading, (ROOT / "docs" / "jax.md").read_text("utf-8"))
    (tmp_path / "program.py").write_text(program)
    subprocess.run([sys.executable, tmp_path / "program.py"], check=True)


def test_names_of_mixad_in_the_page_exist():
    names = set(re.findall(r"\bmixad\.(\w+)", PAGE))
    assert len(names) >= 10
    assert sorted(name for name in names if not hasattr(mixad, name)) == []
