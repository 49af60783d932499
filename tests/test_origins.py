"""Equal functions on other lines: each has errors of its own, at whatever line they differ."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import mixad

FIRST = "import numpy as np\nT = np.ones(3)\ndef pick(i):\n    return T[i] * 2.0  # first\n"
LOWER = "import numpy as np\n\n\n\nT = np.ones(3)\ndef pick(i):\n    return T[i] * 2.0  # second\n"
BESIDE = FIRST.replace("T[i] * 2.0  # first", "(T[i] * 2.0)  # second")


@pytest.fixture
def module(tmp_path):
    def load(name, text):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
        return found

    return load


def called(kernel, i, x):
    return kernel(i)


def differentiated(kernel, i, x):
    return mixad.grad(lambda x: (kernel(i) * x * x).sum())(x)


def through(pick):
    """Return a kernel whose first line is here, whichever function it calls."""
    return mixad.broadcast(lambda i: pick(i + 1 - 1))


@pytest.mark.rows("second", [LOWER, BESIDE], ids=["another line", "another column"])
@pytest.mark.rows("make", [mixad.broadcast, through], ids=["itself", "through a helper"])
@pytest.mark.rows("use", [called, differentiated], ids=lambda f: f.__name__)
def test_an_error_is_of_the_function_that_was_called(module, use, make, second):
    modules = [module("one", FIRST), module("other", second)]
    x = np.asarray([2.0, 3.0])
    for m in modules:
        use(make(m.pick), np.asarray([0, 1]), x)
    for m, mark in zip(modules, ("first", "second"), strict=True):
        with pytest.raises(IndexError) as caught:
            use(make(m.pick), np.asarray([0, 9]), x)
        lines = Path(m.__file__).read_text().splitlines()
        number, line = next((n, t) for n, t in enumerate(lines, 1) if mark in t)
        place = f'File "{m.__file__}", line {number}, column {line.index("T[i]") + 1}'
        assert place in str(caught.value)
