"""Environment variables: defaults, values, refusals that name the variable, and their table."""

import os
from pathlib import Path

import pytest

from mixad import config
from mixad.errors import ConfigurationError


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        (config.NUM_THREADS, "1", 1),
        (config.NUM_THREADS, " 12 ", 12),
        (config.CHECK, "FULL", "full"),
        (config.CHECK, "off", "off"),
        (config.BACKEND_BLOCK, "cupy, torch", frozenset({"cupy", "torch"})),
        (config.BACKEND_ALLOW, "cpu", frozenset({"cpu"})),
    ],
)
def test_a_value_is_read_from_the_environment_now(monkeypatch, variable, text, value):
    monkeypatch.setenv(variable.name, text)
    assert variable.is_set()
    assert variable.read() == value


@pytest.mark.parametrize("variable", config.VARIABLES, ids=lambda variable: variable.name)
@pytest.mark.parametrize("text", [None, "", "  "])
def test_unset_and_empty_give_the_default(variable, text):
    environ = {} if text is None else {variable.name: text}
    assert not variable.is_set(environ)
    assert variable.read(environ) == variable.default()


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        (config.NUM_THREADS, "0"),
        (config.NUM_THREADS, "-2"),
        (config.NUM_THREADS, "two"),
        (config.NUM_THREADS, "1.5"),
        (config.CHECK, "yes"),
        (config.BACKEND_BLOCK, "cupy,,torch"),
        (config.BACKEND_ALLOW, ","),
    ],
)
def test_a_wrong_value_is_refused_naming_variable_value_and_what_is_expected(variable, text):
    with pytest.raises(ConfigurationError) as caught:
        variable.read({variable.name: text})
    message = str(caught.value)
    assert variable.name in message
    assert repr(text) in message
    assert variable.expects in message


def test_the_cache_folder_is_absolute_and_knows_the_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert config.CACHE_DIR.read({"MIXAD_CACHE_DIR": "~/kernels"}) == tmp_path / "kernels"
    assert config.CACHE_DIR.read({"MIXAD_CACHE_DIR": "kernels"}) == Path.cwd() / "kernels"


def test_the_default_number_of_threads_respects_affinity():
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system has no affinity")
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert config.NUM_THREADS.read({}) == 1
    finally:
        os.sched_setaffinity(0, before)


def test_the_table_is_complete_and_each_name_is_ours():
    defined = {v.name for v in vars(config).values() if isinstance(v, config.Variable)}
    assert defined == {variable.name for variable in config.VARIABLES}
    assert all(name.startswith("MIXAD_") for name in defined)


def test_no_other_module_reads_the_environment():
    package = Path(config.__file__).parent
    readers = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "os.environ" in path.read_text("utf-8") or "getenv" in path.read_text("utf-8")
    ]
    assert readers == ["config.py"]
