"""The registry with plugins made here: ranking, refusals, and that no plugin hurts the host."""

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import array_api_strict
import pytest

import mixad
from mixad import config
from mixad.backends import integrations, registry
from mixad.backends.hookspecs import (
    ANY,
    API_VERSION,
    BackendSpec,
    Capability,
    IntegrationSpec,
    hookimpl,
)
from mixad.backends.registry import PluginSource, Registry
from mixad.errors import BackendError, ConfigurationError

FLOATS = frozenset({"float32", "float64"})
FLOAT32, FLOAT64 = (frozenset({name}) for name in ("float32", "float64"))


class FakeBackend:
    def __init__(self, name):
        self.name = name

    def emit(self, *_):
        raise NotImplementedError

    compile = bind = launch = emit


class Plugin:
    """What an entry point names: here an object, usually a module."""

    def __init__(self, *specs):
        self.specs = specs

    @hookimpl
    def mixad_backends(self):
        return list(self.specs)


def spec(name, *, modules=(ANY,), devices=("cpu",), native=True, load=None, version=API_VERSION):
    return BackendSpec(
        name=name,
        api_version=version,
        capability=Capability(modules, devices, FLOATS, native),
        load=load or (lambda: FakeBackend(name)),
        install_hint=f"pip install {name}",
    )


def source(name, *specs, load=None):
    return PluginSource(name, f"dist-{name} 1.0", load or (lambda: Plugin(*specs)))


def refusing(reason, error=BackendError):
    def load():
        raise error(reason)

    return load


EXACT = spec("exact", modules=("numpy",), native=False)
NATIVE = spec("native")
INTERPRETED = spec("interpreted", native=False)
NATIVE_LATER = spec("native-later")


@pytest.mark.rows(
    ("better", "worse"), [(EXACT, NATIVE), (NATIVE, INTERPRETED), (NATIVE, NATIVE_LATER)]
)
@pytest.mark.rows("swap", [False, True])
def test_ranking_does_not_depend_on_the_order_of_installation(better, worse, swap):
    plugins = [source("a", better), source("b", worse)]
    registry = Registry(reversed(plugins) if swap else plugins)
    assert registry.resolve("numpy", "cpu", FLOAT32).name == better.name


def test_a_backend_asked_for_by_name_refuses_dtypes_that_it_does_not_declare():
    registry = Registry([source("a", NATIVE)])
    assert registry.backend("native", FLOATS).name == "native"
    with pytest.raises(BackendError, match="'native' does not compute in int8 and uint8: convert"):
        registry.backend("native", frozenset({"float32", "uint8", "int8"}))


def test_an_index_of_the_device_is_ignored():
    registry = Registry([source("a", spec("gpu", devices=("cuda",)))])
    assert registry.resolve("torch", "cuda:1", FLOAT32).name == "gpu"


@pytest.mark.parametrize(
    ("module", "device", "dtype"),
    [
        ("torch", "cpu", "float32"),
        ("numpy", "cuda", "float32"),
        ("numpy", "cpu", "complex64"),
    ],
)
def test_what_no_capability_covers_is_refused_naming_all_three(module, device, dtype):
    registry = Registry([source("a", EXACT)])
    with pytest.raises(BackendError, match=f"{dtype} arrays of {module} on {device}"):
        registry.resolve(module, device, frozenset({dtype}))


def test_nothing_is_loaded_before_it_is_needed_and_then_once():
    loads = []

    def load():
        loads.append(1)
        return FakeBackend("lazy")

    registry = Registry([source("a", spec("lazy", load=load))])
    assert loads == []
    first = registry.resolve("numpy", "cpu", FLOAT32)
    assert registry.resolve("numpy", "cpu", FLOAT64) is first
    assert registry.backend("lazy") is first
    assert loads == [1]


def test_threads_that_ask_together_share_one_backend():
    barrier = threading.Barrier(8)
    registry = Registry([source("a", NATIVE)])
    answers = []

    def ask():
        barrier.wait()
        answers.append(registry.resolve("numpy", "cpu", FLOAT32))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert len(set(map(id, answers))) == 1


@pytest.mark.parametrize("error", [ImportError, OSError, SyntaxError, SystemExit])
def test_a_plugin_that_fails_to_import_is_reported_and_the_others_serve(error):
    broken = source("broken", load=refusing("libwhatever.so is missing", error))
    registry = Registry([broken, source("good", NATIVE)])
    assert registry.resolve("numpy", "cpu", FLOAT32).name == "native"
    (failure,) = registry.failures
    assert failure.plugin == "broken"
    assert failure.origin == "dist-broken 1.0"
    assert "libwhatever.so is missing" in failure.reason
    assert isinstance(failure.exception, error)
    with pytest.raises(BackendError, match="libwhatever"):
        registry.backend("broken")


def test_a_hook_that_raises_is_reported():
    class Raises:
        @hookimpl
        def mixad_backends(self):
            raise ValueError("bad table")

    registry = Registry([source("a", load=Raises), source("good", NATIVE)])
    assert "ValueError: bad table" in registry.failures[0].reason
    assert [s.name for s in registry.specs] == ["native"]


def test_an_interrupt_is_not_swallowed():
    with pytest.raises(KeyboardInterrupt):
        Registry([source("a", load=refusing("", KeyboardInterrupt))])


def test_a_misspelt_hook_is_reported():
    class Misspelt:
        @hookimpl
        def mixad_backend(self):
            return []

    registry = Registry([source("a", load=Misspelt)])
    assert "mixad_backend" in registry.failures[0].reason


def test_a_module_without_the_hook_is_reported():
    registry = Registry([source("a", load=object)])
    assert "hookimpl" in registry.failures[0].reason


def test_something_other_than_a_spec_is_reported():
    registry = Registry([source("a", "cpu")])
    assert "returned a str" in registry.failures[0].reason


@pytest.mark.parametrize(
    ("version", "who"), [(API_VERSION - 1, "the plugin"), (API_VERSION + 1, "mixad")]
)
def test_another_api_version_is_refused_saying_what_to_upgrade(version, who):
    registry = Registry([source("a", spec("old", version=version))])
    assert registry.specs == ()
    assert f"upgrade {who}" in registry.failures[0].reason


def test_the_second_backend_of_a_name_is_refused_naming_the_first():
    registry = Registry([source("a", NATIVE), source("b", NATIVE)])
    assert "dist-a 1.0" in registry.failures[0].reason
    assert registry.failures[0].plugin == "b"


def test_where_the_best_cannot_serve_the_next_does_with_a_warning():
    broken = spec("best", modules=("numpy",), load=refusing("no device"))
    registry = Registry([source("a", broken), source("b", NATIVE)])
    with pytest.warns(RuntimeWarning, match=r"'native', because .*no device; pip install best"):
        chosen = registry.resolve("numpy", "cpu", FLOAT32)
    assert chosen.name == "native"
    assert registry.resolve("numpy", "cpu", FLOAT32) is chosen  # and warns no more
    assert registry.resolve("numpy", "cpu", frozenset(["float64"])).name == "native"


def test_warnings_point_at_the_line_outside_mixad():
    broken = spec("best", modules=("numpy",), load=refusing("no device"))
    registry = Registry([source("a", broken), source("b", NATIVE)])
    with pytest.warns(RuntimeWarning) as found:
        registry.resolve("numpy", "cpu", FLOAT32)
    assert found[0].filename == __file__


def test_where_nothing_can_serve_every_reason_is_given():
    first = spec("first", load=refusing("no driver"))
    second = spec("second", load=refusing("libx", OSError))
    registry = Registry([source("a", first), source("b", second)])
    with pytest.raises(BackendError, match=r"no driver[\s\S]*OSError: libx"):
        registry.resolve("numpy", "cpu", FLOAT32)


def test_a_factory_that_failed_is_not_tried_again_and_its_cause_is_kept():
    tries = []

    def load():
        tries.append(1)
        raise OSError("libx")

    registry = Registry([source("a", spec("x", load=load))])
    for _ in range(2):
        with pytest.raises(BackendError, match="libx") as caught:
            registry.backend("x")
        assert isinstance(caught.value.__cause__, OSError)
    assert tries == [1]


def test_a_blocked_plugin_is_not_imported():
    imported = []
    registry = Registry(
        [source("heavy", load=lambda: imported.append(1)), source("good", NATIVE)],
        block=frozenset({"heavy"}),
    )
    assert imported == []
    assert "MIXAD_BACKEND_BLOCK" in registry.failures[0].reason
    with pytest.raises(BackendError, match="blocked"):
        registry.backend("heavy")


def test_a_blocked_backend_does_not_serve_and_the_next_does_without_a_warning():
    registry = Registry([source("p", EXACT, NATIVE)], block=frozenset({"exact"}))
    assert registry.resolve("numpy", "cpu", FLOAT32).name == "native"
    with pytest.raises(BackendError, match="MIXAD_BACKEND_BLOCK"):
        registry.backend("exact")


def test_only_allowed_backends_serve():
    registry = Registry([source("p", EXACT, NATIVE)], allow=frozenset({"native"}))
    assert registry.resolve("numpy", "cpu", FLOAT32).name == "native"
    with pytest.raises(BackendError, match="MIXAD_BACKEND_ALLOW"):
        registry.backend("exact")


def test_lists_that_leave_nothing_are_named_in_the_refusal():
    registry = Registry([source("p", EXACT)], allow=frozenset({"other"}))
    with pytest.raises(BackendError, match="'exact' is not allowed: add it to MIXAD_BACKEND_ALLOW"):
        registry.resolve("numpy", "cpu", FLOAT32)
    registry = Registry([source("p", EXACT, NATIVE)], block=frozenset({"exact", "native"}))
    with pytest.raises(BackendError, match=r"'exact' is blocked[\s\S]*'native' is blocked"):
        registry.resolve("numpy", "cpu", FLOAT32)


def test_what_the_user_has_set_wrong_is_told_wherever_it_is_read(offering):
    """By a plugin that is imported, a factory, the factory of an integration: each time."""
    wrong = refusing("MIXAD_X='-1'", ConfigurationError)
    with pytest.raises(ConfigurationError, match="MIXAD_X"):
        Registry([PluginSource("own", "dist-own 1.0", wrong)])
    registry = Registry([source("a", spec("best", load=wrong)), source("b", NATIVE)])
    for ask in [
        lambda: registry.backend("best"),
        lambda: registry.resolve("numpy", "cpu", FLOAT32),
    ]:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="MIXAD_X"):
                ask()
    assert [status.reason for status in registry.statuses()] == ["MIXAD_X='-1'", None]
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="MIXAD_X"):
            offering(integration(wrong))


_USE = """
import numpy as np, mixad

@mixad.broadcast
def double(x):
    return x + x

x = np.ones(300_000)
mixad.grad(lambda x: double(x).sum())(x)
mixad.fori_loop(0, 2, lambda i, y: y + i, 1.0)
double(x, x)  # an error, which has a traceback
"""


@pytest.mark.slow
@pytest.mark.parametrize("variable", config.VARIABLES, ids=lambda v: v.name)
def test_no_wrong_value_of_a_variable_is_passed_over(variable, tmp_path):
    """In a process of its own, at its first kernel or where an error passes."""
    wrong = {"MIXAD_CACHE_DIR": "~nobody-of-this-name/x"}.get(variable.name, "-1,")
    program = tmp_path / "user.py"
    program.write_text(_USE)
    folder = str(Path(mixad.__file__).parents[1])
    environment = {**os.environ, variable.name: wrong, "PYTHONPATH": folder}
    command = [sys.executable, "-W", "error", str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    told = done.stderr.splitlines()[-1]
    start = f"mixad.errors.ConfigurationError: environment variable {variable.name}={wrong!r}: "
    assert told.startswith(start), told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "value", "refusal"),
    [
        ("MIXAD_BACKEND_BLOCK", "cpu", "blocked: take it out of MIXAD_BACKEND_BLOCK"),
        ("MIXAD_BACKEND_ALLOW", "reference, dask", "not allowed: add it to MIXAD_BACKEND_ALLOW"),
    ],
)
def test_the_lists_are_read_from_the_environment(variable, value, refusal, tmp_path):
    """In a process of its own, on a call that names no backend and on one that does."""
    program = tmp_path / "user.py"
    program.write_text(
        "import numpy as np, mixad\n"
        "@mixad.broadcast\n"
        "def double(x):\n    return x + x\n"
        "assert double(np.ones(3)).tolist() == [2.0, 2.0, 2.0]\n"
        "print(double.explain(np.ones(3)).backend)\n"
        "try:\n    double.with_options(backend='cpu')(np.ones(3))\n"
        "except mixad.errors.BackendError as error:\n    print(error)\n"
    )
    folder = Path(mixad.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, variable: value, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    served, refused = done.stdout.splitlines()
    assert served != "cpu"  # but "reference", or what an installed plugin brought
    assert refusal in refused


def test_an_unknown_name_lists_the_known_ones():
    registry = Registry([source("p", EXACT, NATIVE)])
    with pytest.raises(BackendError, match="use one of exact, native"):
        registry.backend("nativ")


def test_statuses_tell_which_can_serve_and_why_not():
    broken = spec("broken", load=refusing("no device"))
    registry = Registry([source("p", broken, NATIVE)])
    reasons = {status.spec.name: status.reason for status in registry.statuses()}
    assert reasons["native"] is None
    assert "no device" in reasons["broken"]


# -- integrations ------------------------------------------------------------------------------


class Integrating:
    """A plugin that has integrations only."""

    def __init__(self, *specs):
        self.specs = specs

    @hookimpl
    def mixad_integrations(self):
        return list(self.specs)


class FakeIntegration:
    kinds = ()

    def is_tracing(self):
        return False

    def follows(self, values):
        return False

    def trace(self, number, args, kwargs):
        raise NotImplementedError

    call = trace


@pytest.fixture
def offering(monkeypatch):
    """Return what lets one integration be all that is installed, and loads what can be loaded."""

    def offer(*specs):
        own = Registry([PluginSource("own", "dist-own 1.0", lambda: Integrating(*specs))])
        monkeypatch.setattr(registry, "default_registry", lambda: own)
        monkeypatch.setattr(integrations, "are_any_installed", lambda: True)
        integrations.load_integrations()
        return own

    monkeypatch.setattr(integrations, "_met", set())
    before, integrations.LOADED[:] = integrations.LOADED[:], []
    yield offer
    integrations.LOADED[:] = before


def integration(load=FakeIntegration, module="numpy", version=API_VERSION):
    return IntegrationSpec("own", version, module, load)


def test_an_integration_is_loaded_once_where_its_library_is_imported(offering):
    loads = []
    offering(integration(lambda: loads.append(1) or FakeIntegration()))
    integrations.load_integrations()
    assert loads == [1]
    assert [type(known) for known in integrations.LOADED] == [FakeIntegration]


def test_an_integration_waits_for_its_library(offering):
    offering(integration(refusing("it is not asked"), module="a_library_nobody_imports"))
    assert integrations.LOADED == []


def test_an_integration_that_fails_is_told_and_hurts_nothing(offering):
    with pytest.warns(RuntimeWarning, match="'own' cannot be used: ImportError: no such thing"):
        offering(integration(refusing("no such thing", ImportError)))
    assert integrations.LOADED == []


def test_an_integration_of_another_version_is_refused(offering):
    own = offering(integration(version=API_VERSION + 1))
    assert own.integrations == ()
    assert "integration 'own' is written for plugin API" in own.failures[0].reason


# -- what plugins return that is something else --------------------------------------------------


class Whole:
    """What a factory returns where all is well."""

    name = "own"
    emit = compile = bind = launch = staticmethod(lambda *_: None)


def whole(**changes):
    return type("Changed", (Whole,), changes)()


WRONG_RETURNS = {
    "nothing": (lambda: None, "returned None"),
    "a class": (lambda: Whole.launch, "lacks emit, compile, bind, launch"),
    "a string": (lambda: "cpu", "returned a str, which lacks"),
    "no launch": (lambda: whole(launch=None), "which lacks launch"),
    "another's name": (lambda: whole(name="cpu"), "with the name 'cpu'"),
    "no description": (lambda: whole(describe={}), "describe = {}"),
    "a property that raises": (
        lambda: whole(launch=property(refusing_method)),
        "ZeroDivisionError: no launch",
    ),
}


def refusing_method(self):
    raise ZeroDivisionError("no launch")


@pytest.mark.parametrize("kind", WRONG_RETURNS)
def test_what_is_no_backend_is_refused_and_the_next_serves(kind):
    load, why = WRONG_RETURNS[kind]
    own = spec("own", modules=("numpy",), load=load)
    registry = Registry([source("p", own), source("b", NATIVE)])
    suggestion = r"[\s\S]*MIXAD_BACKEND_BLOCK=p"
    with pytest.raises(BackendError, match=rf"plugin 'p' \(dist-p 1\.0\)[\s\S]*{why}{suggestion}"):
        registry.backend("own")
    with pytest.warns(
        RuntimeWarning, match=f"served by the backend 'native'[^$]*{why}{suggestion}"
    ):
        assert registry.resolve("numpy", "cpu", FLOAT32).name == "native"
    (status,) = [s for s in registry.statuses() if s.spec.name == "own"]
    assert status.reason is not None


def test_a_backend_that_writes_parts_has_to_move_launches():
    writes = Capability((ANY,), ("cpu",), FLOATS, True, writes_parts=True)
    own = replace(spec("own", load=whole), capability=writes)
    with pytest.raises(BackendError, match="returned a Changed, which lacks moved of a backend"):
        Registry([source("p", own)]).backend("own")
    own = replace(own, load=lambda: whole(moved=len))
    assert Registry([source("p", own)]).backend("own").name == "own"


CAPABILITY = Capability((ANY,), ("cpu",), FLOATS, True)
WRONG_SPECS = {
    "name": {"name": None},
    "api_version": {"api_version": "1"},
    "load": {"load": "mixad_own:load"},
    "install_hint": {"install_hint": None},
    "capability": {"capability": None},
    "array_modules": {"capability": Capability("numpy", ("cpu",), FLOATS, True)},
    "devices": {"capability": Capability((ANY,), "cpu", FLOATS, True)},
    "dtypes": {"capability": Capability((ANY,), ("cpu",), ["float32"], True)},
    "native": {"capability": Capability((ANY,), ("cpu",), FLOATS, None)},
    "cache_bytes": {"capability": replace(CAPABILITY, cache_bytes="1 MiB")},
    "folds": {"capability": replace(CAPABILITY, folds="yes")},
    "writes_parts": {"capability": replace(CAPABILITY, writes_parts=None)},
    "stores_beside": {"capability": replace(CAPABILITY, stores_beside=1)},
    "accumulates": {"capability": replace(CAPABILITY, accumulates=True)},
}


def test_a_spec_with_a_wrong_field_is_refused_naming_the_field():
    for field, change in WRONG_SPECS.items():
        right = {"name": "own", "api_version": API_VERSION, "capability": CAPABILITY,
                     "load": Whole, "install_hint": ""}  # fmt: skip
        registry = Registry([source("p", BackendSpec(**right | change)), source("b", NATIVE)])
        assert registry.resolve("numpy", "cpu", FLOAT32).name == "native", field
        (failure,) = registry.failures
        assert f" {field} " in failure.reason, failure.reason
    wrong = IntegrationSpec("own", API_VERSION, None, FakeIntegration)
    registry = Registry([PluginSource("own", "dist", lambda: Integrating(wrong))])
    assert "array_module of type str" in registry.failures[0].reason


ANSWERS = {"None": None, "a number": 3, "a spec": NATIVE, "a function": len}


@pytest.mark.parametrize("hook", ["mixad_backends", "mixad_integrations"])
def test_a_hook_that_returns_no_list_is_refused_naming_it(hook):
    for kind, answer in ANSWERS.items():
        plugin = type("Answers", (), {hook: hookimpl(lambda self, answer=answer: answer)})
        registry = Registry([source("p", load=plugin), source("b", NATIVE)])
        assert registry.resolve("numpy", "cpu", FLOAT32).name == "native", kind
        assert f"{hook} returned" in registry.failures[0].reason, kind


WRONG_INTEGRATIONS = {
    "nothing": (lambda: None, "None, which lacks"),
    "no follows": (lambda: changed(follows=None), "which lacks follows"),
    "no kinds": (lambda: changed(kinds=None), "TypeError"),
    "names of kinds": (lambda: changed(kinds=("Tensor",)), "lacks types as kinds"),
    "an end of the process": (refusing("", SystemExit), "SystemExit"),
    "a question that raises": (lambda: changed(is_tracing=refusing_to_answer), "OSError: lost"),
}


def changed(**changes):
    return type("Changed", (FakeIntegration,), changes)()


def test_what_is_no_integration_is_told_and_hurts_nothing(offering, monkeypatch):
    for kind, (load, why) in WRONG_INTEGRATIONS.items():
        monkeypatch.setattr(integrations, "_met", set())
        with pytest.warns(RuntimeWarning, match=f"{why}[^$]*MIXAD_BACKEND_BLOCK=own"):
            offering(integration(load))
        assert integrations.LOADED == [], kind


def test_an_integration_that_fails_at_a_call_is_named(offering, monkeypatch):
    """Nothing serves instead: the library would not see the call."""
    strict = array_api_strict.asarray([1.0])
    half = mixad.broadcast(lambda x: 0.5 * x)
    offering(integration(lambda: changed(follows=refusing_to_answer)))
    with pytest.raises(BackendError, match=r"'follows' of the plugin 'own'[^$]*lost[^$]*BLOCK=own"):
        half(strict)
    integrations.LOADED.clear()
    monkeypatch.setattr(integrations, "_met", set())
    for wrong in (None, strict, (), (strict, strict)):
        monkeypatch.setattr(integrations, "_met", set())
        integrations.LOADED.clear()
        all_calls = {"follows": lambda *_: True, "call": lambda *_, wrong=wrong: wrong}
        offering(integration(lambda all_calls=all_calls: changed(**all_calls)))
        with pytest.raises(
            BackendError, match=r"'call' of the plugin 'own'[^$]*expected 1 in a tuple"
        ):
            half(strict)


def refusing_to_answer(*_):
    raise OSError("lost")
