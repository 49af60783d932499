"""The parameters of torch's functions are those of its operators' schemas, by place and by name.

Many of its functions are the standard's here: that their names and places agree is not a matter of
course.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import math
from typing import Any

import pytest

from mixad.namespace.spelling import Binding

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]

BY_OTHER_TYPES = {
    ("eq", "b"), ("ne", "b"),  # of lists
    ("repeat_interleave", "repeats"),  # the only argument, of integers
    ("max", "other"), ("min", "other"),  # a tensor in the place of dim
    ("var", "unbiased"), ("std", "unbiased"), ("var_mean", "unbiased"), ("std_mean", "unbiased"),
}  # fmt: skip
"""In the place of another parameter: their type says which one it is."""

NOT_TAKEN_BY_PLACE = {("add", "alpha"), ("sub", "alpha"), ("subtract", "alpha")}
"""After a number, which torch calls deprecated."""

OF_OTHERS = {("celu", "inplace"), ("selu", "inplace")}
"""Of the functions of these names in ``torch.nn.functional``."""

ADDED = {"requires_grad"}
"""What torch's functions take that make tensors, and their schemas do not say."""

RESULTS = {"max", "max_values", "min_indices", "values", "indices", "eigvals", "eigvecs"}
"""What gets results: a tracer's are returned."""

METHODS = {"__floordiv__", "astype"}


def public(name: str) -> Any:
    """Return torch's function that the table has under a name; None for methods."""
    import torch

    for part in ("linalg", "fft", "special"):
        if name.startswith(f"{part}_"):
            return getattr(getattr(torch, part), name.removeprefix(f"{part}_"), None)
    return functools.reduce(lambda found, each: getattr(found, each, None), name.split("."), torch)


def forms(name: str) -> list[tuple[list[str], list[str]]]:
    """Return what comes by place, and what by name only, in each way that torch has."""
    import torch

    function = public(name)
    if inspect.isfunction(function):
        own = inspect.signature(function).parameters.values()
        by_name = [p.name for p in own if p.kind is p.KEYWORD_ONLY]
        return [([p.name for p in own if p.name not in by_name], by_name)]
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name.rpartition('.')[2]}")
    found = []
    for schema in schemas:
        arguments = schema.arguments
        is_of_lists = "List" in str(arguments[0].type) and arguments[0].name == "self"
        if any("Tensor" in str(a.type) for a in arguments) and not is_of_lists:
            given = [a for a in arguments if not a.is_out]
            names = [("input" if a.name == "self" else a.name, a.kwarg_only) for a in given]
            found.append(([n for n, last in names if not last], [n for n, last in names if last]))
    return found


@pytest.mark.slow
def test_torchs_parameters_are_those_of_its_schemas() -> None:
    """By place and by name they mean one argument here; no others are said to be there."""
    from mixad.namespace.torch_spellings import TORCH

    names = [n for n, found in TORCH.functions.items() if found.parameters and n not in METHODS]
    different = [each for name in names for each in differences(name, TORCH)]
    assert not different
    assert len(names) > 300


def differences(name: str, spelling: Any) -> list[tuple[Any, ...]]:
    found, ways = spelling.functions[name], forms(name)
    binding = Binding.of(spelling, found, name)
    known = {n for way in ways for names in way for n in names}
    different: list[tuple[Any, ...]] = [
        (name, "has not", n) for n in {*found.parameters} - known - ADDED
    ]
    for by_place, by_name in ways:
        for place, parameter in enumerate(by_place):
            here = binding.places[place][1] if place < len(binding.places) else "nothing"
            if here != binding.names.get(parameter):
                different.append((name, parameter, place, here))
        lacks = {*by_name} - {*found.parameters} - RESULTS
        different += [(name, "lacks", parameter) for parameter in lacks]
    listed = BY_OTHER_TYPES | NOT_TAKEN_BY_PLACE
    return [d for d in different if d[:2] not in listed and (d[0], d[-1]) not in OF_OTHERS]


def test_what_torch_calls_its_own_way_is_computed() -> None:
    import torch

    import mixad

    x, y = torch.tensor([[0.5, -1.0, 2.0]]), torch.tensor([[2.0, 3.0, 4.0]])
    calls = [
        lambda x: torch.swapaxes(x, axis0=0, axis1=1),
        lambda x: torch.swapdims(x, dim0=0, dim1=1),
        lambda x: torch.tensor_split(x, sections=2, dim=1)[0],
        lambda x: torch.tensor_split(x, indices=(1,), dim=1)[1],
        lambda x: torch.nn.functional.relu6(x * 4),
    ]
    for call in calls:
        given = x.clone().requires_grad_()
        want = call(given)
        (slope,) = torch.autograd.grad(want.sum(), given)
        value, gradient = mixad.value_and_grad(lambda x, call=call: call(x).sum())(x)
        torch.testing.assert_close((value, gradient), (want.sum().detach(), slope))
    steps = mixad.vjp(lambda x: torch.heaviside(x, values=y), x)[0]
    torch.testing.assert_close(steps, torch.heaviside(x, values=y))


@pytest.mark.slow
def test_values_at_nan_and_at_zeros_of_either_sign_are_torchs() -> None:
    import torch

    import mixad
    from mixad.namespace.torch_spellings import TORCH

    x = torch.tensor([math.nan, 0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.0], dtype=torch.float64)
    different, count = [], 0
    for name, found in TORCH.functions.items():
        function = public(name)
        if found.parameters != ("input",) or function is None or "linalg" in name:
            continue
        try:
            want = function(x)
        except RuntimeError:  # of matrices, of complex numbers
            continue
        seen: list[Any] = []

        def loss(x: Any, function: Any = function, seen: list[Any] = seen) -> Any:
            seen.append(mixad.stop_gradient(function(x)))
            return x.sum()

        mixad.grad(loss)(x)
        count += 1
        if not torch.allclose(torch.as_tensor(seen[0]), want, equal_nan=True):
            different.append((name, seen[0], want))
    assert not different
    assert count > 80


def test_functions_of_two_at_nan_are_torchs() -> None:
    import torch

    import mixad

    x = torch.tensor([math.nan, -0.0, 1.5, -1.5], dtype=torch.float64)
    found = mixad.vjp(lambda x: torch.heaviside(x, 0 * x + 0.5), x)[0]
    torch.testing.assert_close(found, torch.heaviside(x, 0 * x + 0.5))
    found = mixad.vjp(lambda x: torch.diff(x, 0, prepend=x[:1]), x)[0]
    torch.testing.assert_close(found, x, equal_nan=True)
