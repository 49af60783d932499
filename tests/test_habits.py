"""What CONTRIBUTING, the workflows, the hooks and the metadata say is so."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

import mixad
from tools import check_links

ROOT = Path(__file__).parent.parent
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
CI = (ROOT / ".ci" / "run").read_text("utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
DISTRIBUTIONS = [ROOT, *sorted(path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml"))]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
if not (ROOT / "mixad").is_dir():
    pytest.skip("the sources are not here: these tests read them", allow_module_level=True)
FOLDERS = ("mixad/", "tests/", "tools/", "docs/", "plugins/", "benchmarks/", ".github/", ".ci/")


def commands():
    blocks = re.findall(r"^```sh\n(.*?)^```$", CONTRIBUTING, re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


def without_environment(command):
    """Return the command as it is written where the environment is active, as in .ci/run."""
    return command.replace(".venv/bin/", "")


def names_in_backticks():
    return {name.split(" ")[0] for name in re.findall(r"`([^`\n]+)`", CONTRIBUTING)}


def test_the_files_that_contributing_names_are_there():
    named = {name for name in names_in_backticks() if name.startswith(FOLDERS)}
    assert len(named) > 20
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_the_names_that_contributing_takes_from_files_are_in_them():
    for file, name in [
        ("mixad/scalar/interpret.py", "FUNCTIONS"),
        ("mixad/special/table.py", 'tanh = of_op("tanh")'),
        ("mixad/tape/node.py", "class Rule:"),
        ("mixad/tape/values_rule.py", "class ValuesRule:"),
        ("mixad/backends/hookspecs.py", "def mixad_backends("),
        ("mixad/backends/protocols.py", "def emit("),
        ("mixad/backends/protocols.py", "def compile("),
        ("mixad/backends/protocols.py", "def bind("),
        ("mixad/backends/protocols.py", "def launch("),
        ("tests/namespace/derivatives.py", "def check("),
    ]:
        assert name in (ROOT / file).read_text("utf-8")


def test_the_layers_are_those_that_import_linter_holds():
    said = "scalar < kernel < emit < backends < tape < call < namespace < broadcast < transforms"
    assert f"`{said}`" in CONTRIBUTING
    contract = PYPROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    position = {
        name: at
        for at, layer in enumerate(reversed(contract))
        for name in re.findall(r"\w+", layer)
    }
    layers = said.split(" < ")
    assert sorted(layers, key=position.__getitem__) == layers


def test_the_markers_are_those_of_pytest():
    table = CONTRIBUTING.partition("## Markers of tests")[2]
    configured = PYPROJECT["tool"]["pytest"]["ini_options"]["markers"]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == {
        marker.split(":")[0] for marker in configured
    }


def test_extras_that_contributing_installs_exist():
    extras = set(re.findall(r'"\.\[([\w-]+)\]"', CONTRIBUTING))
    assert extras == {"test", "test-torch", "test-jax", "test-cuda", "bench", "docs"}
    assert extras <= set(PYPROJECT["project"]["optional-dependencies"])


@pytest.mark.parametrize("tool", ["ruff check", "ruff format", "mypy", "lint-imports", "sphinx"])
def test_what_is_run_before_a_commit_is_what_ci_runs(tool):
    assert any(tool in command for command in commands())
    assert re.search(rf"^ +(python -m )?{tool}\b", CI, re.MULTILINE)


def test_the_documentation_is_built_and_checked_as_in_ci():
    documentation = [c for c in map(without_environment, commands()) if "docs/_build" in c]
    assert len(documentation) == 2
    for command in documentation:
        start = command.partition("docs/_build")[0]
        assert start in CI


def test_commands_name_modules_and_files_that_exist():
    for command in map(without_environment, commands()):
        words = shlex.split(command)
        for word in words[1:]:
            if word.startswith(FOLDERS) and not word.startswith("docs/_build"):
                assert (ROOT / word).exists(), command


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_nothing_but_ci(path):
    jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"].values()
    ran = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert set(ran) <= {".ci/run", ".ci/run quick"}
    assert all(any("run" in step for step in job["steps"]) for job in jobs)
    used = {
        step["uses"].partition("@")[0] for job in jobs for step in job["steps"] if "uses" in step
    }
    assert used <= {"actions/checkout", "actions/setup-python"}


def test_there_are_workflows_and_forms():
    assert WORKFLOWS
    assert len(FORMS) > 2


@pytest.mark.parametrize(
    "path", [path for path in FORMS if path.name != "config.yml"], ids=lambda path: path.name
)
def test_a_form_for_issues_has_what_such_forms_need(path):
    form = yaml.safe_load(path.read_text("utf-8"))
    assert form["name"]
    assert form["description"]
    assert {part["type"] for part in form["body"]} <= {"textarea", "input", "dropdown", "markdown"}
    assert all(part["attributes"]["label"] for part in form["body"])
    identifiers = [part["id"] for part in form["body"]]
    assert len(identifiers) == len(set(identifiers))
    assert "doctor" in identifiers


def test_the_hooks_before_a_commit_run_tools_of_ci():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0][
        "hooks"
    ]
    tools = {without_environment(hook["entry"]).removesuffix(" --force-exclude") for hook in hooks}
    assert tools == {"ruff check", "ruff format --check", "mypy"}
    for tool in tools:
        assert re.search(rf"^ +{tool}( \.)?$", CI, re.MULTILINE)


def test_the_citation_names_the_licence_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["license"] == PYPROJECT["project"]["license"]
    assert citation["version"] == mixad.__version__
    (paper,) = citation["references"]
    assert paper["doi"] == "10.48550/arXiv.1810.08297"


def test_the_changelog_has_a_section_for_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    wanted = "Unreleased" if ".dev" in mixad.__version__ else mixad.__version__
    assert re.search(rf"^## \[?{re.escape(wanted)}\b", changelog, re.MULTILINE)


@pytest.mark.parametrize("folder", DISTRIBUTIONS, ids=lambda folder: folder.name)
def test_a_distribution_has_its_licence_and_says_that_it_is_typed(folder):
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["license"] == "BSD-3-Clause"
    assert project["license-files"] == ["LICENSE"]
    licence = (folder / "LICENSE").read_text("utf-8")
    assert licence == (ROOT / "LICENSE").read_text("utf-8")
    assert licence.startswith("BSD 3-Clause License")
    assert (folder / project["name"].replace("-", "_") / "py.typed").is_file()


def test_links_between_pages_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "_modules").mkdir()
    (tmp_path / "_modules" / "source.html").write_text('<a href="gone.html">')
    (tmp_path / "one.html").write_text(
        '<p id="here"><a href="#here"><a href="two.html#there"><a href="https://example.org/gone">'
        '<a href="two.html#%C3%A9"><img src="picture.png"><a href="_modules/source.html">'
        '<a href="#gone"><a href="two.html#gone"><a href="three.html"><img src="gone.png">'
    )
    (tmp_path / "two.html").write_text('<a name="there"></a><h1 id="é">')
    (tmp_path / "picture.png").touch()
    gone = ["#gone", "gone.png", "three.html", "two.html#gone"]
    assert check_links.broken(tmp_path) == [f"one.html: {link}" for link in gone]


def test_documentation_without_pages_is_an_error(tmp_path):
    with pytest.raises(SystemExit, match="has no HTML pages"):
        check_links.main(str(tmp_path))
