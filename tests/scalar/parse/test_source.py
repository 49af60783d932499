"""Finding a function's source, and refusing what is not what runs."""

import ast
import functools
import importlib.util
import linecache
import warnings

import pytest
from parse_compiled import from_source, parsed, run

from mixad.errors import KernelSyntaxError
from mixad.scalar.parse import code, read_function

PAIR = (lambda x: x + 1, lambda x: x + 2)
NESTED = lambda x: (lambda y: y * 2)(x) + 1  # noqa: E731


def passthrough(function):
    @functools.wraps(function)
    def wrapper(x):
        return function(x) + 100

    return wrapper


@passthrough
def decorated(x):
    return x


def factory():
    def inner(x):
        return x * 3

    return inner


@pytest.fixture
def module_file(tmp_path):
    def load(text, name="kernels"):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module, path

    return load


def test_lambdas_on_one_line_are_told_apart():
    assert [run(f, 1.0) for f in PAIR] == [2.0, 3.0]
    first, second = (lambda x: x - 1), (lambda x: (lambda y: x - y)(2))
    assert run(first, 1.0) == 0.0
    assert run(second, 1.0) == -1.0


def test_lambdas_that_return_constants_are_told_apart():
    functions = [lambda x: 2, lambda x: 50, lambda x, y: 2, lambda x=(lambda: 7): 2.0, lambda x: 2]
    found = [read_function(f) for f in (*functions, functions[3].__defaults__[0])]
    assert [f.info.node.body.value for f in found] == [2, 50, 2, 2.0, 2, 7]
    assert [f.parameters for f in found] == [("x",), ("x",), ("x", "y"), ("x",), ("x",), ()]


def test_lambda_in_lambda():
    assert run(NESTED, 2.0) == 5.0


def test_lambdas_with_equal_code_but_other_constants():
    functions = [lambda x: x + 1.0, lambda x: x + 1, lambda x: x + True, lambda x: x - 0.0]
    assert [run(f, 1.0) for f in functions] == [2.0, 2.0, 2.0, 1.0]


def test_nested_functions():
    assert run(factory(), 2.0) == 6.0


def test_a_function_that_wraps_another_is_compiled_as_it_is():
    assert run(decorated, 1.0) == decorated(1.0) == 101.0


def test_unicode_columns_are_characters():
    f = from_source("def f(x):\n    é = 1.0; return é @ x\n")
    with pytest.raises(KernelSyntaxError) as caught:
        parsed(f)
    location = caught.value.location
    assert location.text[location.column : location.end_column] == "é @ x"


def test_edited_file_is_refused(module_file):
    module, path = module_file("def f(x):\n    return x + 1.0\n")
    path.write_text("def f(x):\n    return x + 1.5\n")
    with pytest.raises(KernelSyntaxError, match="edited since"):
        read_function(module.f)


@pytest.mark.rows(
    "edited",
    [
        "def f(x):\n    return x + 1\n",
        "def f(x):\n    return 1.0 + x\n",
        "def f(x, y=1):\n    return x + 1.0\n",
        "def f(y):\n    return y + 1.0\n",
        "def f(x):\n    return x + one\n",
        "def g(x):\n    return x + 1.0\n",
        "def f(x):\n    return x +\n",
        "",
    ],
)
def test_any_edit_of_the_function_is_refused(module_file, edited):
    module, path = module_file("def f(x):\n    return x + 1.0\n")
    path.write_text(edited)
    with pytest.raises(KernelSyntaxError):
        read_function(module.f)


def test_a_function_that_moved_is_found(module_file):
    text = "def f(x):\n    return x + 1.0\n"
    module, path = module_file(text)
    path.write_text("# a comment\n\n\nK = 1\n" + text)
    assert run(module.f, 1.0) == 2.0


SURROUNDED = {
    "alone": "def f(x):\n    return x + 1.0\n",
    "between statements": "K = (1,\n)\ndef f(x):\n\n# more\n    return x + 1.0\nL = 2\n",
    "decorated": "from functools import cache\n@cache\n@cache\ndef f(x):\n    return x + 1.0\n",
    "lambda of several lines": "f = (\n    lambda x:\n    x + 1.0\n)\nK = 1\n",
    "nested": "def g():\n    def f(x):\n        return x + 1.0\n    return f\nf = g()\n",
    "in a class": "class A:\n    @staticmethod\n    def f(x):\n        return x + 1.0\nf = A.f\n",
    "after a text": 'K = """\ndef f(x):\n"""\ndef f(x):\n    return x + 1.0\n',
}
BESIDE = {  # where the lines nearby are no statement, so that the whole file is parsed
    "else": "if 0:\n    pass\nelse:\n    def f(x):\n        return x + 1.0\n",
    "text that is no code": 'def f(x):\n    """Of\nmany.\n"""\n    return x + 1.0\n',
    "text like code": 'def g():\n    K = """\nL = 1\n"""\n    return lambda x: x + 1.0\nf = g()\n',
}


@pytest.mark.rows("text", [*SURROUNDED.values(), *BESIDE.values()])
def test_functions_are_found_whatever_is_around_them(module_file, text):
    assert run(module_file(text)[0].f, 2.0) == 3.0


@pytest.mark.parametrize("text", SURROUNDED.values(), ids=SURROUNDED)
def test_a_long_file_is_not_parsed_for_one_function(module_file, monkeypatch, text):
    module, _ = module_file(text)
    monkeypatch.setattr(code, "_found_in_file", None)
    assert read_function(module.f).parameters == ("x",)


def test_lines_are_counted_as_python_does(module_file):
    module, _ = module_file('K = "\x0c \u2028"\n\x0c\ndef f(x):\n    return x @ 1.0\n')
    with pytest.raises(KernelSyntaxError) as caught:
        parsed(module.f)
    assert (caught.value.location.line, caught.value.location.text) == (4, "    return x @ 1.0")


def test_zero_and_minus_zero_are_different_sources(module_file):
    module, path = module_file("def f(x):\n    return x * (0.0, 1.0)\n")
    path.write_text("def f(x):\n    return x * (-0.0, 1.0)\n")
    with pytest.raises(KernelSyntaxError, match="edited since"):
        read_function(module.f)


def test_future_annotations_do_not_disturb(module_file):
    text = "from __future__ import annotations\n\ndef f(x: float) -> float:\n    return x * 2\n"
    assert run(module_file(text)[0].f, 2.0) == 4.0


TEXTS_OF_WHICH_PYTHON_WARNS = [
    'def f(x):\n    "of \\sigma"\n    return 2 * x\n',
    "def f(x):\n    return x * ~True\n",
    "def f(x):\n    return x if 1 is 1 else 0 * x\n",
    "f = lambda x: x * 2if x else x\n",
    'def f(x):\n    return 2 * x\n\n\nunrelated = "\\d"\n',
]


@pytest.mark.parametrize("text", TEXTS_OF_WHICH_PYTHON_WARNS)
def test_python_warns_of_a_text_once(module_file, text):
    """Not again when it is read, nor is it an error then: in this suite all warnings are."""
    with warnings.catch_warnings(action="ignore"):
        module, path = module_file(text)
    found = code.find_function(module.f.__code__)
    assert found.text.filename == str(path)


def test_notebook_cells_are_found():
    text = "k = 3.0\ndef f(x):\n    return x * k\n"
    name = "<ipython-input-1-abc>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space = {}
    exec(compile(ast.parse(text), name, "exec"), space)
    assert run(space["f"], 2.0) == 6.0


def test_without_source_it_is_refused():
    space = {}
    exec("def f(x):\n    return x\n", space)
    with pytest.raises(KernelSyntaxError, match="not available"):
        read_function(space["f"])


def test_class_private_names_and_super_cells_do_not_disturb(module_file):
    text = (
        "class A:\n    __k = 2.0\n    def f(self, x):\n        return self.__k * x\n"
        "class _B(A):\n    __k = 3.0\n    def g(self, x):\n        return self.__k * self.f(x)\n"
    )
    module, _ = module_file(text)
    assert run(module._B().g, 1.0) == 6.0


def test_binding_follows_python():
    def f(x, y=2.0, *, z=3.0):
        return x + y + z

    source = read_function(f)
    assert source.bind((1.0,), {}) == (1.0, 2.0, 3.0)
    assert source.bind((1.0,), {"z": 4.0, "y": 5.0}) == (1.0, 5.0, 4.0)
    with pytest.raises(TypeError):
        source.bind((), {})
    with pytest.raises(TypeError):
        source.bind((1.0,), {"w": 1.0})


def test_source_is_read_once():
    assert read_function(factory()).info is read_function(factory()).info


def test_assert_that_pytest_rewrites_is_named():
    def f(x):
        assert x > 0
        return x

    with pytest.raises(KernelSyntaxError, match="assert"):
        read_function(f)
