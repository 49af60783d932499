"""The page of reference describes every name that users and writers of backends import."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import mixad
from mixad.backends import hookspecs, protocols

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"
if not PAGE.is_file():
    pytest.skip("the documentation is in the repository only", allow_module_level=True)
DIRECTIVES = re.findall(
    r"^\.\. auto(\w+):: ([\w.]+)\n(?: +:members:(.*)\n)?", PAGE.read_text("utf-8"), re.MULTILINE
)
MODULES = {"errors", "pytree", "scipy", "special"}  # with sections of their own


def described(name):
    """Return the members that the page lists of a class or a module."""
    (members,) = [m for _, found, m in DIRECTIVES if found.rpartition(".")[2] == name]
    return {member.strip() for member in members.split(",") if member.strip()}


def public_methods(thing):
    return {name for name in vars(thing) if not name.startswith("_")}


def test_every_name_of_mixad_is_described():
    found = {name.rpartition(".")[2] for _, name, _ in DIRECTIVES}
    assert {n for n in mixad.__all__ if not n.startswith("_")} - found - MODULES == set()


def test_every_method_of_a_kernel_is_described():
    assert described("BroadcastFunction") == {"__call__", *public_methods(mixad.BroadcastFunction)}


def test_every_function_of_containers_is_described():
    own = {n for n, f in inspect.getmembers(mixad.pytree, inspect.isfunction) if n[0] != "_"}
    here = {n for n in own if getattr(mixad.pytree, n).__module__ == "mixad.pytree"}
    assert here <= described("pytree")


@pytest.mark.parametrize("module", [hookspecs, protocols], ids=lambda module: module.__name__)
def test_every_protocol_and_record_of_hooks_is_described(module):
    of_it = {
        name
        for name, thing in vars(module).items()
        if getattr(thing, "__module__", "") == module.__name__ and not name.startswith("_")
    }
    assert of_it == described(module.__name__.rpartition(".")[2])


def test_writers_of_plugins_import_everything_from_one_module():
    assert set(protocols.__all__) < set(hookspecs.__all__)


def test_every_tool_for_tests_is_described():
    testing = importlib.import_module("mixad.testing")
    constants = {name for name in testing.__all__ if name.isupper()}
    assert described("testing") == set(testing.__all__) - constants
    assert constants <= {name.rpartition(".")[2] for _, name, _ in DIRECTIVES}
