"""The table of names: each library has the function, under that name, that we have under ours."""

import math
import types

import numpy as np
import pytest

from mixad import special
from mixad.namespace.names import FUNCTIONS
from mixad.scalar import interpret
from mixad.scalar.names import LIBRARIES, OUR_NAMES, names_in, our_names
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import BOOL, F64, I64

MODULES = {"python": "math", "numpy": "numpy", "scipy": "scipy.special"}
POINTS = {"acosh": (1.5,), "atan2": (0.3, -0.4)}
WHOLE = ("and", "or", "xor", "not", "shl", "shr")


def of_ours(ours: str) -> float:
    """Return what we have for a function at a point."""
    point = point_of(ours)
    if hasattr(special, ours):
        return getattr(special, ours)(*point)
    type_ = BOOL if BY_NAME[ours].result == "bool" else I64 if ours in WHOLE else F64
    given = tuple((np.int64 if ours in WHOLE else np.float64)(x) for x in point)
    return interpret.apply(ours, given, type_).item()


def point_of(ours: str) -> tuple[float, ...]:
    arity = BY_NAME[ours].arity if ours in BY_NAME else 1
    return (5, 2)[:arity] if ours in WHOLE else POINTS.get(ours, (0.7, 0.2)[:arity])


@pytest.mark.rows(
    ("library", "name"),
    lambda: [(each, name) for each in MODULES for name in our_names(each)],
)
def test_functions_are_called_in_libraries_as_the_table_says(library: str, name: str) -> None:
    module: types.ModuleType = pytest.importorskip(MODULES[library])
    ours = our_names(library)[name]
    found = getattr(module, name)(*point_of(ours))
    assert math.isclose(found, of_ours(ours), rel_tol=1e-12)


@pytest.mark.torch
def test_torch_calls_functions_as_the_table_says() -> None:
    torch = pytest.importorskip("torch")
    places = (torch, torch.special, torch.nn.functional, torch.Tensor)
    for name, ours in our_names("torch").items():
        function = next(getattr(place, name) for place in places if hasattr(place, name))
        given = [torch.tensor(x, dtype=None if ours in WHOLE else torch.float64)
                 for x in point_of(ours)]  # fmt: skip
        result = function(*given)
        result = torch.tensor(result) if isinstance(result, bool) else result  # torch.equal
        assert math.isclose(result.item(), of_ours(ours), rel_tol=1e-6), name


def test_the_standard_has_the_names_that_the_table_says() -> None:
    assert set(our_names("standard")) <= FUNCTIONS


def test_a_name_means_one_function_in_all_libraries() -> None:
    for library in LIBRARIES:
        for name, ours in our_names(library).items():
            assert OUR_NAMES.get(name, name) == ours
            assert name in names_in(library, ours)
    assert names_in("numpy", "tan") == ("tan",)  # not in the table
