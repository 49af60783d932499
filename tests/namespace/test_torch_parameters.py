"""The parameters of torch's functions are those that torch documents, by place and by name.

Many of its functions are the standard's here: that their names and places agree is not a matter of
course.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import re
from typing import Any

import pytest

from mixad.errors import TracerError
from mixad.namespace.spelling import Variadic

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]

NOT_AS_DOCUMENTED = {
    ("pow", "self"): "a number, before an exponent that is a tensor",
    ("true_divide", "dividend"): "torch takes input=",
    ("true_divide", "divisor"): "torch takes other=",
    ("linalg_cholesky", "A"): "torch takes input=",
    ("repeat_interleave", "repeats"): "the only argument, of integers",
    ("max", "other"): "in the place of dim: a tensor is one, and an integer the other",
    ("min", "other"): "in the place of dim: a tensor is one, and an integer the other",
    ("tensor_split", "indices"): "in the place of sections, which may be a sequence",
}


def public(name: str) -> Any:
    """Return torch's function that the table has under a name; None for methods."""
    import torch

    for part in ("linalg", "fft", "special"):
        if name.startswith(f"{part}_"):
            return getattr(getattr(torch, part), name.removeprefix(f"{part}_"), None)
    return functools.reduce(lambda found, each: getattr(found, each, None), name.split("."), torch)


def documented(name: str) -> list[list[str]]:
    """Return the parameters that may come by place, in each way that torch documents."""
    function = public(name)
    short = re.sub(r"^(linalg|fft|special)_", "", name.rpartition(".")[2])
    pattern = rf"^ *(?:\.\. function:: )?(?:\w+\.)*{short}\(((?:[^()]|\([^()]*\))*)\) *->"
    texts = re.findall(pattern, function.__doc__ or "", re.MULTILINE)
    if texts or function is None or inspect.isbuiltin(function):
        return [_places(re.sub(r"\([^()]*\)|\[[^\]]*\]", "", text)) for text in texts]
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [[p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds]]


def _places(text: str) -> list[str]:
    before = re.split(r",?\s*\\?\*", text)[0]
    return [re.split("[=:]", each)[0].split()[-1] for each in before.split(",") if each.strip()]


def cases() -> list[tuple[str, int, str]]:
    from mixad.namespace.torch_spellings import TORCH

    return [
        (name, place, parameter)
        for name, found in TORCH.functions.items()
        if not isinstance(found, Variadic)
        for parameters in documented(name)
        for place, parameter in enumerate(parameters)
        if parameter != "out" and (name, parameter) not in NOT_AS_DOCUMENTED
    ]


def test_most_of_torchs_functions_say_what_they_take() -> None:
    found = {name for name, _, _ in cases()}
    assert len(found) > 250
    assert {"sum", "cumsum", "linalg_solve", "linalg_norm", "where", "fft_fftn", "cross"} <= found


def test_what_comes_by_place_is_what_comes_by_name_or_is_refused() -> None:
    from mixad.namespace.torch_spellings import TORCH

    different = []
    for name, place, parameter in cases():
        found = TORCH.functions[name]
        by_place = _own(found, TORCH, (None,) * place + (0.25,), {})
        by_name = _own(found, TORCH, (), {parameter: 0.25})
        if by_place != by_name:
            different.append((name, place, parameter, by_place, by_name))
    assert not different


def _own(found: Any, spelling: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return what an argument is called here; None if it is refused."""
    try:
        bound = spelling._bound("f()", found, args, kwargs)
    except TracerError:
        return None
    return next(name for name, value in bound.items() if value == 0.25)


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
