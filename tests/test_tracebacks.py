"""Errors show the frames of the user's code and one of mixad's, whatever is between them."""

import bdb
import dataclasses
import functools
import inspect
import pickle
import traceback
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import mixad

HERE = Path(__file__).name
PACKAGE = str(Path(mixad.__file__).parent)
X = np.ones(3)
LEFT = []


@mixad.broadcast
def refused(x):
    return x @ x


@mixad.broadcast
def product(x, y):
    return x * y


@mixad.broadcast
def rooted(x):
    return np.sqrt(x)


@mixad.custom_vjp
def with_rule(x):
    return x * x


with_rule.defvjp(lambda x: (x * x, x), lambda x, g: (g, g))


@mixad.custom_jvp
def with_tangent(x):
    return x * x


with_tangent.defjvp(lambda primals, tangents: fail(primals[0]))


def fail(x):
    raise ValueError("the user's own")


def mismatched(x):
    return (x + np.ones(4)).sum()


def leave(x):
    LEFT.append(x)
    return x.sum()


def left():
    mixad.grad(leave)(X)
    return LEFT.pop()


def caught(f):
    """Return a function that meets an error inside the transform, and raises it anew."""

    def catch(x):
        try:
            f(x)
        except Exception as error:
            frames = own_frames(error.__traceback__)
            assert SHORT is False or len(frames) == 1, frames
            raise

    return catch


def tensor_mismatch():
    import torch

    return mixad.grad(lambda x: torch.add(x, torch.ones(4)).sum())(torch.ones(3))


CASES = {
    "a kernel": lambda: refused(X),
    "a kernel's shapes": lambda: product(X, np.ones(4)),
    "a kernel in grad": lambda: mixad.grad(lambda x: refused(x).sum())(X),
    "a kernel in grad in grad": lambda: mixad.grad(
        lambda y: mixad.grad(lambda x: refused(x * y).sum())(y).sum()
    )(X),
    "duals": lambda: product.duals(X, X, wrt="z"),
    "jacobian of a kernel": lambda: product.jacobian(X, X, wrt="z"),
    "value_and_jacobian": lambda: product.value_and_jacobian(X, X, wrt="z"),
    "explain": lambda: product.explain(X, np.ones(4)),
    "kinks": lambda: product.kinks(X, X, tolerance=-1.0),
    "source": lambda: product.source(X, X, stage="none"),
    "with_options": lambda: product.with_options(chunk=77),
    "broadcast": lambda: mixad.broadcast(len),
    "scalar_rule": lambda: mixad.scalar_rule(lambda a, b, c: a)(fail),
    "a special function": lambda: mixad.special.exp("1"),
    "grad": lambda: mixad.grad(lambda x: x)(X),
    "value_and_grad": lambda: mixad.value_and_grad(mismatched)(X),
    "vjp": lambda: mixad.vjp(mismatched, X),
    "a pullback": lambda: mixad.vjp(lambda x: x, X)[1](np.ones(4)),
    "value_and_vjp": lambda: mixad.value_and_vjp(lambda x: x, (X,), np.ones(4)),
    "jvp": lambda: mixad.jvp(mismatched, (X,), (X,)),
    "linearize": lambda: mixad.linearize(mismatched, X),
    "a pushforward": lambda: mixad.linearize(lambda x: x, X)[1](np.ones(4)),
    "jacobian": lambda: mixad.jacobian(mismatched)(X),
    "jacfwd": lambda: mixad.jacfwd(mismatched)(X),
    "jacrev": lambda: mixad.jacrev(mismatched)(X),
    "hessian": lambda: mixad.hessian(mismatched)(X),
    "hvp": lambda: mixad.hvp(mismatched, (X,), (X,)),
    "tape": lambda: mixad.tape(mismatched)(X),
    "check_grads": lambda: mixad.check_grads(mismatched, (X,)),
    "checkpoint": lambda: mixad.grad(lambda x: mixad.checkpoint(mismatched)(x))(X),
    "custom_vjp": lambda: mixad.grad(lambda x: with_rule(x).sum())(X),
    "a user's rule": lambda: mixad.grad(lambda x: with_tangent(x).sum())(X),
    "operators": lambda: mixad.grad(mismatched)(X),
    "reflected": lambda: mixad.grad(lambda x: (np.ones(4) - x).sum())(X),
    "in place": lambda: mixad.grad(lambda x: x.__iadd__(np.ones(4)).sum())(X),
    "matmul": lambda: mixad.grad(lambda x: x @ np.ones(4))(X),
    "compared": lambda: mixad.grad(lambda x: (x < np.ones(4)).sum())(X),
    "indexing": lambda: mixad.grad(lambda x: x[7])(X),
    "assignment": lambda: mixad.grad(lambda x: x.__setitem__(7, 1.0))(X),
    "methods": lambda: mixad.grad(lambda x: x.reshape(7).sum())(X),
    "sum": lambda: mixad.grad(lambda x: x.sum(axis=7))(X),
    "float": lambda: mixad.grad(float)(np.asarray(1.0)),
    "conversion": lambda: mixad.grad(lambda x: np.asarray(x).sum())(X),
    "what NumPy wraps": lambda: mixad.grad(lambda x: np.zeros(3).__setitem__(0, x[0]))(X),
    "a ufunc": lambda: mixad.grad(lambda x: np.add(x, np.ones(4)).sum())(X),
    "a function of NumPy": lambda: mixad.grad(lambda x: np.linalg.cond(x))(X),
    "the namespace": lambda: mixad.grad(lambda x: x.__array_namespace__().reshape(x, (7,)))(X),
    "after the end": lambda: left() + 1.0,
    "minus, after the end": lambda: -left(),
    "sum, after the end": lambda: left().sum(),
    "a kernel, after the end": lambda: rooted(left()),
    "stop_gradient, after the end": lambda: mixad.stop_gradient(left()),
    "caught inside": lambda: mixad.grad(caught(lambda x: x + np.ones(4)))(X),
    "a kernel, caught inside": lambda: mixad.grad(caught(refused))(X),
    "the user's own": lambda: mixad.grad(fail)(X),
    "the user's own, within": lambda: mixad.grad(lambda y: mixad.jvp(fail, (y,), (y,))[1])(X),
    "what LAPACK says": lambda: mixad.grad(lambda x: np.linalg.inv(x).sum())(np.zeros((2, 2))),
}
if find_spec("torch"):
    CASES["a function of torch"] = tensor_mismatch

SHORT = True

BETWEEN = {dataclasses.__file__, functools.__file__, "<string>"}
"""Modules of the standard library through which mixad calls itself."""


def reasons(error):
    """Yield an error, and what it says it came of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_own(entry):
    return entry.filename.startswith(PACKAGE)


def own_frames(tb):
    return [f"{entry.filename}:{entry.name}" for entry in traceback.extract_tb(tb) if is_own(entry)]


def others(tb):
    entries = [entry for entry in traceback.extract_tb(tb) if not is_own(entry)]
    entries = [entry for entry in entries if entry.filename not in BETWEEN]
    return [(entry.filename, entry.name, entry.lineno) for entry in entries]


def met(case, monkeypatch, mode):
    """Return the error of a case."""
    monkeypatch.setenv("MIXAD_TRACEBACK", mode)
    monkeypatch.setitem(globals(), "SHORT", mode == "short")
    with pytest.raises(Exception) as caught:  # noqa: PT011  # of many classes
        CASES[case]()
    return caught.value


@pytest.mark.slow
def test_an_error_shows_the_users_frames_and_one_of_mixads(monkeypatch):
    wrong = []
    for case in CASES:
        short, full = (met(case, monkeypatch, mode) for mode in ("short", "full"))
        assert (type(short), str(short)) == (type(full), str(full)), case
        counts = [len(own_frames(each.__traceback__)) for each in reasons(short)]
        if counts[0] != 1 or max(counts) > 1:
            wrong.append((case, own_frames(short.__traceback__), counts))
        if any("tracebacks.py" in frame for frame in own_frames(short.__traceback__)):
            wrong.append((case, "the frame that stays is of no function that the user called"))
        if others(short.__traceback__) != others(full.__traceback__):
            wrong.append((case, others(short.__traceback__), others(full.__traceback__)))
    assert wrong == []


def test_the_whole_traceback_is_there_for_the_asking(monkeypatch):
    error = met("a kernel in grad", monkeypatch, "full")
    assert len(own_frames(error.__traceback__)) > 10


def test_without_the_variable_tracebacks_are_short(monkeypatch):
    monkeypatch.delenv("MIXAD_TRACEBACK", raising=False)
    with pytest.raises(mixad.errors.KernelSyntaxError) as caught:
        mixad.grad(lambda x: refused(x).sum())(X)
    names = [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)]
    assert names == ["test_without_the_variable_tracebacks_are_short", "<lambda>", "__call__"]


def test_functions_that_hide_frames_are_themselves_to_whoever_looks():
    for function in (mixad.vjp, mixad.hvp, mixad.check_grads, mixad.broadcast):
        assert function.__code__.co_filename.endswith("tracebacks.py")
        assert inspect.getfile(inspect.unwrap(function)) != function.__code__.co_filename
        assert next(iter(inspect.signature(function).parameters)) in ("f", "function")
        assert pickle.loads(pickle.dumps(function)) is function
        with pytest.raises(mixad.errors.KernelSyntaxError, match=f"{function.__name__} is a trans"):
            mixad.broadcast(function)


def test_what_an_error_came_of_is_kept():
    with pytest.raises(mixad.errors.TracerError) as caught:
        mixad.grad(lambda x: np.zeros(3).__setitem__(0, x[0]))(X)
    assert isinstance(caught.value.__cause__, ValueError)
    assert isinstance(caught.value.__cause__.__cause__, mixad.errors.TracerError)

    def handle(x):
        try:
            raise KeyError("the user's")
        except KeyError:
            return refused(x)

    with pytest.raises(mixad.errors.KernelSyntaxError) as caught:
        mixad.grad(handle)(X)
    assert isinstance(caught.value.__context__, KeyError)
    assert [entry[1] for entry in others(caught.value.__context__.__traceback__)] == ["handle"]


def test_a_debugger_finds_the_users_frame():
    def inner(x):
        local = 7.0  # noqa: F841  # what the debugger is asked for
        return x @ np.ones(4)

    with pytest.raises(ValueError, match="matmul") as caught:
        mixad.grad(inner)(X)
    stack, _ = bdb.Bdb().get_stack(None, caught.value.__traceback__)
    frames = {frame.f_code.co_name: frame for frame, _ in stack}
    assert frames["inner"].f_locals["local"] == 7.0
