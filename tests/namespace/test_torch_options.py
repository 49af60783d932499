"""What torch refuses is refused on traced tensors, and what it takes has torch's values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import mixad  # noqa: E402
from mixad.namespace import torch_checks  # noqa: E402
from mixad.namespace.spellings import torch_spelling  # noqa: E402
from mixad.transforms import kept_calls  # noqa: E402

F = torch.nn.functional
DOUBLE = torch.float64


def _is_refused(function: Callable[[], Any]) -> bool:
    try:
        function()
    except Exception:  # torch's have no class in common
        return True
    return False


X = torch.linspace(0.1, 0.9, 16, dtype=DOUBLE).reshape(4, 4)
V = X[0].clone()

REFUSED: dict[str, tuple[Callable[..., Any], Any]] = {
    "celu(alpha=0)": (lambda x: F.celu(x, alpha=0), X),
    "torch.celu(0.0)": (lambda x: torch.celu(x, 0.0), X),
    "smooth_l1_loss(beta=-1)": (lambda x: F.smooth_l1_loss(x, X, beta=-1), X),
    "smooth_l1_loss(beta=nan)": (lambda x: F.smooth_l1_loss(x, X, beta=float("nan")), X),
    "add(alpha=True)": (lambda x: torch.add(x, X, alpha=True), X),
    "sub(alpha=False)": (lambda x: x.sub(X, alpha=False), X),
    "subtract(alpha=1j)": (lambda x: torch.subtract(x, X, alpha=1j), X),
    "x - True": (lambda x: x - True, X),
    "x - booleans": (lambda x: x - (X > 0.5), X),
    "booleans - x": (lambda x: torch.sub(X > 0.5, x), X),
    "polygamma(-1)": (lambda x: torch.polygamma(-1, x), X),
    "addcmul(value=1j)": (lambda x: torch.addcmul(x, X, X, value=1j), X),
    "addmm(beta=1j)": (lambda x: torch.addmm(x, X, X, beta=1j), X),
    "lerp(weight=1j)": (lambda x: torch.lerp(x, X, 1j), X),
    "addmv(matrix)": (lambda x: torch.addmv(x, X, V), X),
    "addmm(stack)": (lambda x: torch.addmm(x, X, X), X.expand(2, 4, 4)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_that_torch_refuses_are_refused(name: str) -> None:
    function, x = REFUSED[name]
    assert _is_refused(lambda: function(x))
    with pytest.raises((ValueError, TypeError, RuntimeError, ArithmeticError)):
        mixad.vjp(function, x)


TAKEN: dict[str, tuple[Callable[..., Any], Any]] = {
    "vector_norm": (torch.linalg.vector_norm, torch.tensor(-3.0, dtype=DOUBLE)),
    "vector_norm(ord=0)": (lambda x: torch.linalg.vector_norm(x, 0) + x, torch.tensor(-3.0)),
    "vector_norm(ord=3)": (lambda x: torch.linalg.vector_norm(x, 3), torch.tensor(-3.0)),
    "linalg.norm": (torch.linalg.norm, torch.tensor(-3.0)),
    "norm": (torch.norm, torch.tensor(2.0)),
    "x.norm()": (lambda x: x.norm(), torch.tensor(2.0)),
    "median of nothing": (torch.median, torch.zeros(0)),
    "nanmedian of nothing": (torch.nanmedian, torch.zeros((2, 0))),
    "cosine_similarity": (
        lambda x: F.cosine_similarity(x, torch.tensor([[1, 2, 0, 1]])), X.float()
    ),
    "where(x)": (lambda x: x[torch.where(x > 0.5)], X),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_what_torch_takes_has_its_values_and_derivatives(name: str) -> None:
    function, x = TAKEN[name]
    leaf = x.clone().requires_grad_()
    want = function(leaf)
    want.sum().backward()
    got, pullback = mixad.vjp(function, x)
    torch.testing.assert_close(got, want.detach(), equal_nan=True)
    torch.testing.assert_close(pullback(torch.ones_like(got))[0], leaf.grad)


def test_places_of_a_traced_condition_are_torchs() -> None:
    x = torch.tensor([0.0, 2.0, 0.0, 3.0])
    assert mixad.grad(lambda x: x[torch.where(x)].sum())(x).tolist() == [0.0, 1.0, 0.0, 1.0]


def test_a_call_that_torch_cannot_check_without_elements_is_checked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    call = torch_checks._call

    def counted(function: Any, *rest: Any) -> None:
        asked.append(function)
        call(function, *rest)

    monkeypatch.setattr(torch_checks, "_call", counted)
    monkeypatch.setattr(kept_calls, "open_strand", lambda *given: None)  # plans call again
    repeats = torch.tensor([2, 1, 3])
    for _ in range(3):
        mixad.vjp(lambda x: torch.repeat_interleave(x, repeats), torch.ones(3, dtype=DOUBLE))
    assert 0 < len(asked) <= 2


# -- every function, with values that no option has ------------------------------------------------

WRONG: dict[str, Any] = {
    "-1": -1, "0": 0, "-1.0": -1.0, "0.0": 0.0, "True": True, "False": False, "'bad'": "bad",
    "7": 7, "-7": -7, "nan": float("nan"), "(0, 0)": (0, 0), "()": (), "1j": 1j,
    "dtype": torch.int64,
}  # fmt: skip

_POSITIVE = X @ X.T + 4 * torch.eye(4, dtype=DOUBLE)
_LINES, _IMAGES = torch.rand((2, 4, 5), dtype=DOUBLE), torch.rand((2, 4, 5, 5), dtype=DOUBLE)
_PLACES = torch.tensor([0, 1, 2, 3])
ARGUMENTS: list[tuple[Any, ...]] = [
    (_POSITIVE,), (X, X), (X, X, X), (V,), (V, V), (X, 1), (2, X), (X, 0, 1), (X, 0, _PLACES),
    (X, 0, _PLACES, X), (X, 0, _PLACES, 1.0), (X, (4, 4)), (X, _PLACES), (X, X > 0.5, 1.0),
    (X > 0.5, X, X), (_LINES, 2), (_IMAGES, 2), (_LINES, _LINES[:, :, :2]), (_IMAGES, _IMAGES),
    (X, V.abs(), V.abs()), (X, [4]), (V, X, V), (X, V, V), (_LINES, (4,)), (_LINES, [5]),
    (_LINES[:, :, :4],) * 3, (_IMAGES[:, :, :, 0], torch.rand((3, 4, 2), dtype=DOUBLE)),
    (_IMAGES, torch.rand((3, 4, 2, 2), dtype=DOUBLE)), (X, (1, 1)),
]  # fmt: skip
"""Each function is called with the first of these that it takes."""

_MODULES = {"nn.functional.": F, "linalg_": torch.linalg, "fft_": torch.fft,
            "special_": torch.special}  # fmt: skip


def _of_torch(name: str) -> Any:
    for prefix, module in _MODULES.items():
        if name.startswith(prefix):
            return getattr(module, name.removeprefix(prefix), None)
    return getattr(torch, name, None)


def _calls(name: str) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Yield calls of a function that have one wrong argument each."""
    function = _of_torch(name)
    taken = (a for a in ARGUMENTS if not _is_refused(functools.partial(function, *a)))
    args = next(taken, None)
    if args is None:
        return
    for label, value in WRONG.items():
        for at in range(1, len(args)):
            yield f"{at}: {label}", (*args[:at], value, *args[at + 1 :]), {}
        for option in torch_spelling().functions[name].parameters[len(args) :]:
            if option != "out":
                yield f"{option}={label}", args, {option: value}


TAKEN_HERE = {
    "nn.functional.l1_loss": "torch drops its weight before anyone is asked",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.rows(
    "name",
    sorted(n for n in torch_spelling().functions if _of_torch(n) is not None),
)
def test_no_wrong_option_of_any_function_is_taken(name: str) -> None:
    function = _of_torch(name)
    wrong = [label for label, *call in _calls(name) if _is_taken_here_only(function, *call)]
    assert not wrong or name in TAKEN_HERE


def _is_taken_here_only(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether torch refuses a call that is taken if a tensor among its arguments is traced."""
    at = next((i for i, a in enumerate(args) if _is_float(a)), None)
    if at is None or not _is_refused(lambda: function(*args, **options)):
        return False

    def traced(x: Any) -> Any:
        return function(*args[:at], x, *args[at + 1 :], **options)

    return not _is_refused(lambda: mixad.vjp(traced, args[at]))


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
