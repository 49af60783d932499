"""Functions go to other processes by name where it can be imported, else by value."""

import ast
import gc
import os
import pickle
import subprocess
import sys
import threading
import types
import xml.dom
import xml.sax
from pathlib import Path

import cloudpickle
import numpy as np
import pickled_program
import pytest

import mixad
from mixad.errors import KernelSyntaxError, KernelTypeError, TracerError
from mixad.scalar.parse import code

ROOT = Path(mixad.__file__).parents[1]
TEXT = Path(pickled_program.__file__).read_text()
X = pickled_program.X


@pytest.fixture
def main(tmp_path, monkeypatch):
    """Return a function that runs a text as the main program, a file that may be removed."""

    def run(text):
        path = tmp_path / "program.py"
        path.write_text(text)
        module = types.ModuleType("__main__")
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, "__main__", module)
        exec(compile(text, str(path), "exec"), vars(module))
        return module

    return run


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_functions_of_a_main_program_are_rebuilt(main, pickler):
    program = main(TEXT)
    rebuilt = {name: pickle.loads(pickler.dumps(f)) for name, (f, _) in program.ROWS.items()}
    functions = {name: f for name, (f, _) in program.ROWS.items()}
    assert [name for name, f in functions.items() if rebuilt[name] is f] == []
    assert {n: type(f) for n, f in rebuilt.items()} == {n: type(f) for n, f in functions.items()}
    np.testing.assert_array_equal(rebuilt["custom_vjp"](X), X)


@pytest.mark.slow
@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_functions_of_a_main_program_by_value(main, pickler):
    program = main(TEXT)
    sent = [pickler.dumps(f) for f, _ in program.ROWS.values()]
    Path(program.__file__).unlink()
    left = iter(sent)
    assert program.wrong(lambda f: pickle.loads(next(left))(X)) == {}


@pytest.mark.parametrize("row", ["a bound method", "one of a captured object"])
def test_objects_of_classes_of_a_main_program_need_it_where_plain_pickles_go(
    main, row, monkeypatch
):
    """As Python's own objects do: workers of `multiprocessing` have it, other programs do not."""
    function, expected = main(TEXT).ROWS[row]
    by_name, by_value = pickle.dumps(function), cloudpickle.dumps(function)
    np.testing.assert_allclose(pickle.loads(by_name)(X), expected(X))
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    with pytest.raises(AttributeError, match="Can't get attribute 'Spring'"):
        pickle.loads(by_name)
    np.testing.assert_allclose(pickle.loads(by_value)(X), expected(X))
    page = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
    assert "`AttributeError: Can't get attribute 'Spring'`" in page


def test_functions_of_a_module_by_name():
    of = pickled_program
    by_name = (of.calls_helper, of.root, of.power, of.halved, of.doubled, of.Spring.force)
    assert [f for f in by_name if pickle.loads(pickle.dumps(f)) is not f] == []
    method = pickle.loads(pickle.dumps(pickled_program.spring.force))
    np.testing.assert_array_equal(method(X), 4 * X)


def test_a_name_that_another_function_has_now_is_not_used(monkeypatch):
    kernel = pickled_program.calls_helper
    monkeypatch.setattr(pickled_program, "calls_helper", pickled_program.in_lambda)
    again = pickle.loads(pickle.dumps(kernel))
    np.testing.assert_allclose(again(X), (3 * X + np.pi) ** 2)


def test_a_module_that_cloudpickle_is_told_of_by_value():
    cloudpickle.register_pickle_by_value(pickled_program)
    try:
        again = pickle.loads(pickle.dumps(pickled_program.calls_helper))
    finally:
        cloudpickle.unregister_pickle_by_value(pickled_program)
    assert again is not pickled_program.calls_helper
    np.testing.assert_allclose(again(X), (3 * X + np.pi) ** 2)


def test_functions_in_one_pickle_are_one(main):
    program = main(TEXT)
    a, b, objects = pickle.loads(
        pickle.dumps((program.in_lambda, program.in_lambda, [program.spring, program.spring.own]))
    )
    assert a is b
    assert objects[0].own.__wrapped__.__self__ is objects[0]


REFUSED = """\
import mixad

@mixad.broadcast
def shifted(x):
    y = x + 1.0
    return y.sideways
"""


def test_errors_show_the_line_that_was_sent_whatever_the_file_holds_there(main, tmp_path):
    sent = pickle.dumps(main(REFUSED).shifted)
    for text in ("# another program", REFUSED.replace("sideways", "upside_down")):
        (tmp_path / "program.py").write_text(text)
        with pytest.raises(KernelTypeError) as caught:
            pickle.loads(sent)(X)
        assert caught.value.location.filename == str(tmp_path / "program.py")
        assert (caught.value.location.line, caught.value.location.text) == (
            6,
            "    return y.sideways",
        )


def test_a_file_that_was_edited_since_import_is_refused_in_a_pickle_too(tmp_path):
    """What the parser has read is sent as it was; what it has not is compared."""
    text = "def helper(x):\n    return x * 2.0\n"
    (tmp_path / "edited.py").write_text(text)
    names = {}
    exec(compile(text, str(tmp_path / "edited.py"), "exec"), names)
    helper = names["helper"]
    (tmp_path / "edited.py").write_text(text.replace("2.0", "3.0"))
    with pytest.raises(KernelSyntaxError, match="edited since"):
        mixad.broadcast(helper)
    (tmp_path / "edited.py").write_text(text)
    kernel = mixad.broadcast(helper)
    (tmp_path / "edited.py").write_text(text.replace("2.0", "3.0"))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(kernel))(X), 2 * X)


def test_nothing_of_the_text_runs_where_it_is_unpickled(main):
    text = (
        "import mixad\nran = []\nkernel = (ran.append(1), mixad.broadcast(lambda x: x + 1.0))[1]\n"
    )
    program = main(text)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(program.kernel))(X), X + 1)
    assert program.ran == [1]


class Holder:
    def __init__(self, value):
        self.value = value


def test_what_cannot_be_pickled_is_named():
    lock, holder = threading.Lock(), Holder([threading.Lock()])
    functions = {
        "'lock'": mixad.checkpoint(lambda x: x * lock.locked()),
        "'holder'": mixad.broadcast(lambda x: x * holder.factor),
        "'shift'": mixad.grad(lambda x, shift=lock: x),
        "'at'": mixad.value_and_grad(lambda x, *, at=lock: x),
    }
    for name, function in functions.items():
        with pytest.raises(KernelTypeError, match=f"<lambda> cannot be pickled: {name}, .*lock"):
            pickle.dumps(function)


def test_a_traced_value_that_is_captured_is_named():
    def f(x):
        pickle.dumps(mixad.broadcast(lambda y: x * y))
        return x.sum()

    with pytest.raises(TracerError, match="<lambda>: 'x', a value from outside"):
        mixad.grad(f)(X)


def test_what_is_sent_again_and_again_is_compiled_once(main):
    sent = pickle.dumps(main(TEXT).calls_helper)
    first, second = pickle.loads(sent), pickle.loads(sent)
    assert first.__wrapped__.__code__ is second.__wrapped__.__code__


def test_code_that_cloudpickle_makes_without_its_file_has_its_text(main):
    """As from 3.1.3 on: of methods of a class that it rebuilds."""
    received = pickle.loads(pickle.dumps(main(TEXT).in_lambda)).__wrapped__
    code = received.__code__.replace(co_filename="<dynamic-code>")
    again = types.FunctionType(code, received.__globals__)
    np.testing.assert_array_equal(mixad.broadcast(again)(X), 3.0 * X)


def test_a_list_that_two_functions_share_is_one_in_their_pickle(main):
    text = "import mixad\nfs = [lambda x: x, 1]\na = mixad.grad(lambda x: fs[0](x).sum())\n"
    program = main(text + "b = mixad.grad(lambda x: 2.0 * fs[0](x).sum())\n")
    a, b = pickle.loads(pickle.dumps([program.a, program.b]))
    lists = [f.__wrapped__.__globals__["fs"] for f in (a, b)]
    assert type(lists[0]) is list
    assert lists[0] is lists[1]
    lists[0][0] = lambda x: 3.0 * x
    np.testing.assert_array_equal(b(X), [6.0] * 4)


def test_modules_that_functions_read_of_a_package_are_imported_for_each(main, monkeypatch):
    """A pickle has the list with the package once, whichever of the functions reads what."""
    program = main(TEXT)
    functions = [mixad.grad(program.with_dom), mixad.grad(program.with_sax)]
    for pair in (functions, functions[::-1]):
        sent = pickle.dumps(pair)
        with monkeypatch.context() as elsewhere:
            for name in ("dom", "sax"):
                elsewhere.delattr(xml, name)
                elsewhere.delitem(sys.modules, f"xml.{name}")
            for function in pickle.loads(sent):
                np.testing.assert_array_equal(function(X), 7.0 + 0 * X)


def test_texts_that_came_are_forgotten_with_their_functions_and_found_at_once(main, monkeypatch):
    texts = [f"import mixad\nk = mixad.broadcast(lambda x: x * {n}.0)\n" for n in range(50)]
    sent = [pickle.dumps(main(text).k) for text in texts]
    code.compile_sent.cache_clear()
    gc.collect()
    before, parsed = len(code._RECEIVED), []
    parse = ast.parse
    monkeypatch.setattr(code.ast, "parse", lambda text: parsed.append(text) or parse(text))
    kernels = [pickle.loads(each) for each in sent]
    assert len(parsed) == len(kernels)  # of the same file, each with its own text
    np.testing.assert_array_equal(kernels[7](X), X * 7)
    assert len(code._RECEIVED) == before + 100  # by its file, and as cloudpickle makes it
    del kernels
    code.compile_sent.cache_clear()
    gc.collect()
    assert len(code._RECEIVED) == before


# -- other processes ---------------------------------------------------------------------------

RECEIVER = """
import pickle, sys
import numpy as np
sent, X = pickle.load(sys.stdin.buffer)
results = {name: pickle.loads(function)(X) for name, function in sent.items()}
sys.stdout.buffer.write(pickle.dumps(results))
"""


def run(arguments, tmp_path, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=elsewhere, env=environment, capture_output=True,
        timeout=300, check=False, **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done.stdout


@pytest.mark.slow
def test_functions_by_value_in_a_process_that_has_nothing_of_the_program(main, tmp_path):
    program = main(TEXT)
    sent = {name: cloudpickle.dumps(f) for name, (f, _) in program.ROWS.items()}
    got = run(["-c", RECEIVER], tmp_path, input=pickle.dumps((sent, X)))
    results = iter(pickle.loads(got).values())
    assert program.wrong(lambda f: next(results)) == {}


POOLS = {
    "multiprocessing": """
    import multiprocessing
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        failures = wrong(lambda f: pool.apply(f, (X,)))
    """,
    "joblib": """
    import joblib
    with joblib.Parallel(n_jobs=2) as pool:
        failures = wrong(lambda f: pool([joblib.delayed(f)(X), joblib.delayed(f)(X)])[1])
    """,
    "distributed": """
    import distributed
    with (distributed.LocalCluster(n_workers=1, processes=True, dashboard_address=None) as cluster,
          distributed.Client(cluster) as client):
        failures = wrong(lambda f: client.submit(f, X).result(60))
    """,
}


def with_pool(name):
    body = POOLS[name].replace("\n    ", "\n")
    indented = body.replace("\n", "\n    ")
    return f"{TEXT}\n\nif __name__ == '__main__':{indented}\n    print(failures)\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLS)
def test_functions_of_a_program_in_workers(name, tmp_path):
    if name != "multiprocessing":
        pytest.importorskip(name)
    path = tmp_path / "program.py"
    path.write_text(with_pool(name))
    assert run([str(path)], tmp_path).decode().splitlines()[-1] == "{}"


@pytest.mark.slow
def test_functions_of_a_notebook_in_workers(tmp_path, monkeypatch):
    for package in ("joblib", "distributed", "nbclient", "ipykernel"):
        pytest.importorskip(package)
    import nbclient
    import nbformat

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pools = [POOLS[name].replace("\n    ", "\n") for name in ("joblib", "distributed")]
    texts = [TEXT, *(f"{pool}\nfailures" for pool in pools)]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, texts)))
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    for cell in notebook.cells[1:]:
        assert cell.outputs[-1]["data"]["text/plain"] == "{}"
