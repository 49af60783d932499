"""Environment variables: defaults, values, refusals that name the variable, and their table."""

import os
import sys
from pathlib import Path

import pytest

from mixad import config
from mixad.errors import ConfigurationError


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        (config.NUM_THREADS, "1", 1),
        (config.NUM_THREADS, " 12 ", 12),
        (config.POOL_BYTES, "0", 0),
        (config.POOL_BYTES, "4096", 4096),
        (config.POOL_BYTES, " 3k", 3 << 10),
        (config.POOL_BYTES, "256M", 256 << 20),
        (config.POOL_BYTES, "2G", 2 << 30),
        (config.CHECK, "FULL", "full"),
        (config.CHECK, "off", "off"),
        (config.TRACEBACK, "Full", "full"),
        (config.BACKEND_BLOCK, "cupy, torch", frozenset({"cupy", "torch"})),
        (config.BACKEND_ALLOW, "cpu", frozenset({"cpu"})),
    ],
)
def test_a_value_is_read_from_the_environment_now(monkeypatch, variable, text, value):
    monkeypatch.setenv(variable.name, text)
    assert variable.is_set()
    assert variable.read() == value


@pytest.mark.rows("variable", config.VARIABLES, ids=lambda variable: variable.name)
@pytest.mark.rows("text", [None, "", "  "])
def test_unset_and_empty_give_the_default(variable, text):
    environ = {} if text is None else {variable.name: text}
    assert not variable.is_set(environ)
    assert variable.read(environ) == variable.default()


@pytest.mark.rows(
    ("variable", "text"),
    [
        (config.NUM_THREADS, "0"),
        (config.NUM_THREADS, "-2"),
        (config.NUM_THREADS, "two"),
        (config.NUM_THREADS, "1.5"),
        (config.NUM_THREADS, "4097"),
        (config.POOL_BYTES, "M"),
        (config.POOL_BYTES, "-1"),
        (config.POOL_BYTES, "1.5G"),
        (config.POOL_BYTES, "1e6"),
        (config.POOL_BYTES, "many"),
        (config.CHECK, "yes"),
        (config.TRACEBACK, "long"),
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


@pytest.mark.skipif(sys.platform == "win32", reason="homes are guessed from each other there")
def test_the_home_of_nobody_is_refused():
    with pytest.raises(ConfigurationError, match="MIXAD_CACHE_DIR='~nobody-of-this-name/kernels'"):
        config.CACHE_DIR.read({"MIXAD_CACHE_DIR": "~nobody-of-this-name/kernels"})


@pytest.mark.skipif(sys.platform == "win32", reason="a user always has a home there")
@pytest.mark.parametrize("refuses", [True, False])  # as platformdirs does, and as it did
def test_a_user_without_a_home_has_a_cache_all_the_same(monkeypatch, refuses):
    def cache_path(*args, **kwargs):
        if refuses:
            raise RuntimeError("could not determine the home directory")
        return Path("~nobody-of-this-name/.cache/mixad")

    monkeypatch.setattr(config.platformdirs, "user_cache_path", cache_path)
    folder = config.CACHE_DIR.read({})
    assert folder.is_absolute()
    assert folder.name == f"mixad-{os.getuid()}"


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
