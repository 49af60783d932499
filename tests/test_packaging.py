"""What a user meets before any code runs: the README, the requirements, the plugins, the import."""

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import mixad
from mixad.backends.hookspecs import ENTRY_POINT_GROUP
from mixad.backends.registry import PluginSource, Registry

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PLUGINS = sorted((ROOT / "plugins").glob("*/pyproject.toml"))

INSTALL = (
    "python3 -m venv .venv && .venv/bin/python -m pip install -e . "
    "&& .venv/bin/python -m mixad demo"
)
TEST = '.venv/bin/python -m pip install -e ".[test]" && .venv/bin/python -m pytest'
MAKE_ENVIRONMENT = "python3 -m venv .venv && "


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_readme_has_the_two_commands_and_each_works_alone():
    assert blocks("sh") == [f"{INSTALL}\n", f"{MAKE_ENVIRONMENT}{TEST}\n"]


def test_the_windows_commands_say_the_same():
    def translated(command):
        return command.replace("python3 ", "py ").replace(".venv/bin/", ".venv\\Scripts\\")

    assert blocks("powershell") == [translated(command) for command in blocks("sh")]


def test_the_first_example_is_python_and_uses_what_it_imports():
    tree = ast.parse(blocks("python")[0])
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert {"mixad", "np", "sigmoid", "tanh"} <= used


def test_ci_reads_the_commands_from_the_readme():
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert "readme_command 1" in script
    assert "readme_command 2" in script
    shown = subprocess.run(
        [sys.executable, ROOT / ".ci/readme.py", ROOT / "README.md", "sh", "2"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == blocks("sh")[1]


def test_ci_runs_the_tests_on_the_pythons_that_the_classifiers_name():
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    versions = re.search(r'^pythons="(.*)"', script, re.MULTILINE)[1].split()
    named = re.findall(
        r"^Programming Language :: Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.M
    )
    assert versions == named
    assert PROJECT["requires-python"] == f">={versions[0]}"


def test_a_missing_block_is_an_error_for_ci():
    command = [sys.executable, ROOT / ".ci/readme.py", ROOT / "README.md", "sh", "3"]
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode != 0
    assert "2 blocks of sh" in failed.stderr


def requirements(group=None):
    texts = PROJECT["dependencies"] if group is None else PROJECT["optional-dependencies"][group]
    return [Requirement(text) for text in texts]


def test_the_runtime_requirements_are_five_with_lower_bounds_only():
    names = {requirement.name for requirement in requirements()}
    assert names == {"numpy", "array-api-compat", "pluggy", "llvmlite", "platformdirs"}
    assert [{s.operator for s in r.specifier} for r in requirements()] == [{">="}] * 5


def test_the_test_requirements_have_no_torch():
    assert "torch" not in {requirement.name for requirement in requirements("test")}
    assert "torch" in {requirement.name for requirement in requirements("test-torch")}


@pytest.mark.rows("group", [None, *PROJECT["optional-dependencies"]])
def test_what_ci_tests_is_pinned_and_within_the_bounds(group):
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    versions = {canonicalize_name(pin.name): str(pin.specifier) for pin in pins}
    for requirement in requirements(group):
        if requirement.name == "mixad":
            continue
        pin = versions[canonicalize_name(requirement.name)]
        assert re.fullmatch(r"==[\d.]+", pin)
        assert requirement.specifier.contains(pin.removeprefix("=="))


def test_one_version_everywhere():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {mixad.__version__}\n" in citation
    for path in PLUGINS:
        assert tomllib.loads(path.read_text("utf-8"))["project"]["version"] == mixad.__version__


def test_there_are_plugins():
    assert {path.parent.name for path in PLUGINS} >= {"mixad-cupy", "mixad-torch", "mixad-jax"}


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: path.parent.name)
def test_a_plugin_registers_what_its_entry_points_name(path, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)
    announced = tomllib.loads(path.read_text("utf-8"))["project"]["entry-points"]
    assert set(announced) == {ENTRY_POINT_GROUP}
    for name, module in announced[ENTRY_POINT_GROUP].items():
        source = PluginSource(name, path.parent.name, lambda m=module: importlib.import_module(m))
        registry = Registry([source])
        assert registry.failures == ()
        announced = [*registry.specs, *(each.spec for each in registry.integrations)]
        assert name in {spec.name for spec in announced}


@pytest.mark.slow
def test_importing_mixad_imports_no_other_array_library():
    heavy = "{'torch', 'cupy', 'jax', 'numba', 'array_api_strict', 'scipy'}"
    code = f"import sys, mixad; found = {heavy} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.slow
def test_importing_mixad_imports_no_part_that_an_ordinary_first_call_does_not_need():
    late = {
        "mixad.backends.cuda",
        "mixad.backends.reference.backend",
        "mixad.cli",
        "mixad.emit.array_run",
        "mixad.emit.arrays",
        "mixad.emit.llvm.kernel",
        "mixad.kernel.lower",
        "mixad.scalar.as_python",
        "mixad.scalar.generate",
        "mixad.testing",
    }
    assert all(importlib.util.find_spec(name) for name in late)  # a name that moved hides nothing
    code = f"import sys, mixad; found = {late} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["special", "pytree"])
def test_importing_mixad_gives_the_modules_that_its_messages_name(module):
    code = f"import mixad; mixad.{module}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.slow
def test_importing_mixad_runs_no_plugin():
    code = (
        "import mixad.backends.registry as r, mixad; "
        "assert r.default_registry.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def committed_files():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.decode().splitlines()]


def test_no_committed_file_names_a_machine_or_a_package_index():
    # Spelt in parts, so that this file does not contain what it looks for.
    private = ["/" + "work/", "/" + "root/", "/" + "opt/", "pypi" + ".org", "python" + "hosted.org"]
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in committed_files()
        if path.is_file()
        for text in private
        if text in path.read_text("utf-8", errors="replace")
    ]
    assert found == []


def test_the_ci_script_is_executable():
    listed = subprocess.run(
        ["git", "ls-files", "--stage", ".ci/run"], cwd=ROOT, capture_output=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    assert listed.stdout.startswith(b"100755")


def test_numbers_of_examples_are_named_constants() -> None:
    """So that how much is tried is read at the head of a file."""
    texts = {path: path.read_text("utf-8") for path in sorted((ROOT / "tests").rglob("*.py"))}
    written = [
        f"{path.relative_to(ROOT)}:{node.value.lineno}"
        for path, text in texts.items()
        if re.search(r"max_examples=\s*\d", text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.keyword)
        and node.arg == "max_examples"
        and isinstance(node.value, ast.Constant)
    ]
    assert written == []
