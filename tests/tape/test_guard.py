"""Arrays that were changed before a derivative read them are found; other changes are free."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import TracerError
from mixad.transforms import gradients, kept_calls

CHANGED = "changed in place"


@pytest.fixture(autouse=True)
def by_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nodes do what is done here: pullbacks of small arrays hold copies otherwise."""
    for module in (gradients, kept_calls):
        monkeypatch.setattr(module, "open_strand", lambda *given: None)


def product(x: Any, y: Any) -> Any:
    return x * y


BROADCAST = {
    placement: mixad.broadcast(product, placement=placement) for placement in ("forward", "reverse")
}


@pytest.mark.parametrize("size", [1, 8, 511, 100_000])
def test_input_changed_before_the_pullback_is_refused(size: int) -> None:
    x = np.linspace(1.0, 2.0, size)
    _, pullback = mixad.vjp(lambda x: x * x, x)
    x[:] = 5.0
    with pytest.raises(TracerError, match=CHANGED):
        pullback(np.ones(size))


@pytest.mark.parametrize("size", [320, 384, 640, 1000])
def test_a_changed_block_of_a_64th_is_always_found(size: int) -> None:
    x, ones = np.ones(size), np.ones(size)
    for start in range(0, size, size // 64 - 1):
        _, pullback = mixad.vjp(lambda x: x * x, x)
        block = slice(min(start, size - size // 64), start + size // 64)
        x[block] = 5.0
        with pytest.raises(TracerError, match=CHANGED):
            pullback(ones)
        x[block] = 1.0


def test_array_changed_before_what_is_pending_runs_is_refused() -> None:
    b = np.ones(3)

    def loss(x: Any) -> Any:
        y = x * b
        b[:] = 100.0
        return y.sum()

    for transform in (mixad.grad, mixad.value_and_grad):
        b[:] = 1.0
        with pytest.raises(TracerError, match=CHANGED):
            transform(loss)(np.ones(3))


@pytest.mark.parametrize("kernel", BROADCAST.values(), ids=BROADCAST.keys())
def test_captured_array_changed_before_the_pullback_is_refused(kernel: Any) -> None:
    y = np.asarray([2.0, 3.0])
    _, pullback = mixad.vjp(lambda x: kernel(x, y), np.ones(2))
    y += 1.0
    with pytest.raises(TracerError, match=CHANGED):
        pullback(np.ones(2))


def test_matrix_changed_before_the_pullback_is_refused() -> None:
    a = np.eye(3)
    _, pullback = mixad.vjp(lambda x: a @ x, np.ones(3))
    a[2, 0] = 7.0
    with pytest.raises(TracerError, match=CHANGED):
        pullback(np.ones(3))


@pytest.mark.parametrize(
    "view",
    [lambda x: x.T, lambda x: x.reshape(6), lambda x: x[1:]],
    ids=["transposed", "reshaped", "sliced"],
)
def test_base_of_a_view_changed_before_the_pullback_is_refused(view: Callable[..., Any]) -> None:
    x = np.ones((2, 3))

    def squares(x: Any) -> Any:
        y = view(x)
        return y * y

    value, pullback = mixad.vjp(squares, x)
    x += 1.0
    with pytest.raises(TracerError, match=CHANGED):
        pullback(value)


def test_value_changed_by_the_caller_is_refused_where_it_is_a_residual() -> None:
    kernel = mixad.broadcast(lambda x: mixad.special.exp(x), placement="forward")
    value, pullback = mixad.vjp(kernel, np.ones(3))
    value[:] = 0.0
    with pytest.raises(TracerError, match=CHANGED):
        pullback(np.ones(3))


def test_intermediate_is_not_changed_through_stop_gradient() -> None:
    def loss(x: Any) -> Any:
        y = x * 2.0
        mixad.stop_gradient(y)[:] = 0.0
        return (y * y).sum()

    np.testing.assert_array_equal(mixad.grad(loss)(np.ones(3)), np.full(3, 8.0))


@pytest.mark.parametrize("layout", ["C", "F"])
def test_a_block_of_a_large_array_is_not_changed_unseen(layout: Any) -> None:
    x = np.ones((512, 512), order=layout)
    _, pullback = mixad.vjp(lambda x: x * x, x)
    x[203:211] = 5.0
    with pytest.raises(TracerError, match=CHANGED):
        pullback(np.ones((512, 512)))


def test_change_of_what_no_gradient_reads_is_free() -> None:
    x, y = np.ones(3), np.full(3, 2.0)
    value, pullback = mixad.vjp(lambda x: x + y, x)
    np.testing.assert_array_equal(value, [3.0, 3.0, 3.0])
    x[:] = y[:] = 9.0
    np.testing.assert_array_equal(pullback(np.ones(3))[0], [1.0, 1.0, 1.0])


def test_change_after_the_gradient_is_free() -> None:
    x = np.asarray([1.0, 2.0])
    gradient = mixad.grad(lambda x: (x * x).sum())
    for _ in range(3):
        old = x.copy()
        step = gradient(x)
        np.testing.assert_array_equal(step, 2.0 * old)
        x -= 0.25 * step


def test_elements_that_are_not_numbers_are_not_taken_for_changed() -> None:
    x = np.asarray([np.nan, np.inf, 1.0])
    _, pullback = mixad.vjp(lambda x: x * x, x)
    np.testing.assert_array_equal(pullback(np.ones(3))[0], 2.0 * x)


def _gradient_with_one_element_changed() -> Any:
    x = np.ones(100_000)
    _, pullback = mixad.vjp(lambda x: x * x, x)
    x[77_777] = 5.0
    return pullback(np.ones(100_000))[0]


def test_full_check_finds_one_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXAD_CHECK", "full")
    with pytest.raises(TracerError, match=CHANGED):
        _gradient_with_one_element_changed()


def test_check_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXAD_CHECK", "off")
    assert _gradient_with_one_element_changed()[77_777] == 10.0


@pytest.mark.parametrize("mode", ["sample", "full"])
def test_tensor_changed_before_the_pullback_is_refused(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("MIXAD_CHECK", mode)
    x = torch.ones(100_000)
    _, pullback = mixad.vjp(lambda x: x * x, x)
    x[77_777] = 5.0
    with pytest.raises(TracerError, match=CHANGED):
        pullback(torch.ones(100_000))


def test_tensor_of_inference_mode_is_differentiated() -> None:
    torch = pytest.importorskip("torch")
    with torch.inference_mode():
        x = torch.arange(3.0)
        assert mixad.grad(lambda x: (x * x).sum())(x).tolist() == [0.0, 2.0, 4.0]
        _, pullback = mixad.vjp(lambda x: x * x, x)
        x += 1.0
        with pytest.raises(TracerError, match=CHANGED):
            pullback(torch.ones(3))


def test_array_of_another_library_is_watched_too() -> None:
    xp = pytest.importorskip("array_api_strict")
    x = xp.ones(3)
    _, pullback = mixad.vjp(lambda x: x * x, x)
    x[0] = 5.0
    with pytest.raises(TracerError, match=CHANGED):
        pullback(xp.ones(3))


def test_the_error_names_what_was_to_read_the_array() -> None:
    y = np.asarray([2.0, 3.0])

    @mixad.broadcast
    def capturing(x):
        return x * y[0]

    uses: dict[str, Callable[..., Any]] = {
        "the array 'y' of product, there of shape (2,)": lambda x: BROADCAST["reverse"](x, y),
        "the array 'y' of capturing, there of shape (2,)": lambda x: capturing(x),
        "the array 'y' of mul, there of shape (2,)": lambda x: x * y,
        "argument 1 of matmul, there of shape (2, 1)": lambda x: x @ y,
    }
    for name, use in uses.items():
        x = np.ones(2)
        value, pullback = mixad.vjp(use, x)
        y += 1.0
        with pytest.raises(TracerError, match=f"^{re.escape(name)} and dtype float64.*{CHANGED}"):
            pullback(np.ones_like(value))


def test_the_error_says_if_it_is_what_is_differentiated() -> None:
    x = np.ones(2)
    _, pullback = mixad.vjp(lambda x: x * x, x)
    x += 1.0
    with pytest.raises(TracerError, match=r"^an array that a transform was given, .*\(2,\)"):
        pullback(np.ones(2))


# -- every library, every kind of node, every check ------------------------------------------------

USES: dict[str, Callable[..., Any]] = {
    "an operator": lambda x, w: x * w * x,
    "a chain of them": lambda x, w: (x + 1.0) * (x * w) - x / (x * w + 2.0),
    "a kernel": lambda x, w: BROADCAST["reverse"](BROADCAST["reverse"](x, w), x),
    "a kernel that stores partials": lambda x, w: BROADCAST["forward"](x, w) @ x,
    "a matrix product": lambda x, w: (x * x) @ w,
    "a view": lambda x, w: (x.T * w.T).T * x,
    "a sum": lambda x, w: (x * w).sum(axis=0) * x,
}
NUMBERS = np.linspace(0.5, 1.5, 40 * 40).reshape(40, 40)


def _array(library: str, numbers: Any) -> Any:
    if library == "numpy":
        return numbers.copy()
    if library == "strict":
        return pytest.importorskip("array_api_strict").asarray(numbers, copy=True)
    return pytest.importorskip("torch").tensor(numbers)


@pytest.mark.parametrize("check", ["sample", "full"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("library", ["numpy", "strict", "torch"])
def test_every_node_of_every_library_refuses_what_was_changed(
    library: str, use: str, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIXAD_CHECK", check)
    for changed in ("x", "w"):
        arrays = {name: _array(library, NUMBERS) for name in "xw"}
        value, pullback = mixad.vjp(lambda x, w=arrays["w"]: USES[use](x, w), arrays["x"])
        before = pullback(value)[0]
        arrays[changed][:, :] = 9.0
        with pytest.raises(TracerError, match=CHANGED):
            pullback(value)
        arrays[changed][:, :] = _array(library, NUMBERS)
        if library != "torch":  # torch counts writes, not what they wrote
            np.testing.assert_array_equal(np.asarray(pullback(value)[0]), np.asarray(before))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("library", ["numpy", "strict", "torch"])
def test_full_check_finds_one_element_whatever_reads_it(
    library: str, use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIXAD_CHECK", "full")
    for at in ((0, 0), (17, 23), (39, 39)):
        x, w = _array(library, NUMBERS), _array(library, NUMBERS)
        value, pullback = mixad.vjp(lambda x, w=w: USES[use](x, w), x)
        w[at] = w[at] * (1 + 2.0**-52)
        with pytest.raises(TracerError, match=CHANGED):
            pullback(value)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_change_inside_an_outer_derivative_is_refused(library: str) -> None:
    x, w = _array(library, NUMBERS), _array(library, NUMBERS)

    def slope(x: Any) -> Any:
        inner = mixad.grad(lambda x: (x * x * x * w).sum())(x)
        w[:, :] = 7.0
        return (inner * x).sum()

    with pytest.raises(TracerError, match=CHANGED):
        mixad.grad(slope)(x)


def test_a_result_that_is_needed_again_is_named() -> None:
    inverse, pullback = mixad.vjp(np.linalg.inv, np.diag([1.0, 2.0]))
    inverse[0, 0] = 7.0
    with pytest.raises(TracerError, match=r"^a result of inv, .*\(2, 2\).* was changed in place"):
        pullback(np.ones((2, 2)))
