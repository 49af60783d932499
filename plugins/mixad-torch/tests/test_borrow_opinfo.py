"""PyTorch's own list of its functions, with its samples of arguments: right, or refused by us.

Derivatives are compared with central differences, both modes with each other (they are adjoint),
and second derivatives with differences of the first.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import MethodDescriptorType, WrapperDescriptorType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # which torch's list imports

sys.path.insert(0, str(Path(__file__).parent.parent))

from mixad_torch.autograd import TorchIntegration  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import mixad  # noqa: E402
from mixad.backends import arrays, integrations  # noqa: E402
from mixad.errors import MixadError  # noqa: E402
from mixad.tape.tracer import Tracer  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

MAX_SAMPLES = 2
STEPS = (1e-6, 1e-5, 1e-4, 1e-8)
"""Where a difference crosses a kink, another step does not."""

NEAR, SAME = 1e-4, 1e-8

LEAST_SHARE = 0.92

INEXACT = {"bfloat16", "half", "float", "cfloat", "chalf"}
"""Conversions, whose differences are those of fewer digits."""

UNBOUND = {"cauchy", "exponential", "geometric", "log_normal", "normal.in_place", "uniform"}
"""Methods that the list calls by their class, which asks nobody."""

ONE_OF_TWO = {"nn.functional.cosine_embedding_loss", "nn.functional.hinge_embedding_loss"}
"""Functions whose second tensors of floats are 1 or -1: nothing else is differentiable in them."""


class Counting(TorchIntegration):
    """Counts the calls for which there is no rule of ours."""

    count = 0

    def borrow(self, function, args, kwargs):
        self.count += 1
        return super().borrow(function, args, kwargs)


@pytest.fixture
def integration(monkeypatch):
    """Let the integration be loaded for each test only, and count what is borrowed."""
    made = Counting()
    monkeypatch.setattr(arrays, "_LIBRARIES", dict(arrays._LIBRARIES))
    monkeypatch.setattr(arrays, "_ADOPTED", list(arrays._ADOPTED))
    arrays.adopt("torch", made.kinds)
    monkeypatch.setattr(integrations, "LOADED", [made])
    return made


def function_of(op):
    """Return a function of the list; what is a method of tensors is called as one."""
    if type(op.op) not in (MethodDescriptorType, WrapperDescriptorType):
        return op.op
    return lambda x, *args, **kwargs: getattr(x, op.op.__name__)(*args, **kwargs)


class Sample:
    """A call of a function of the list as a function of tensors, ``leaves``, that is a number."""

    def __init__(self, op, sample, dtype):
        self.op, self.sample = op, sample
        tree = (sample.input, tuple(sample.args), dict(sample.kwargs))
        self.flat, self.structure = pytree.tree_flatten(tree)
        self.places = [i for i, x in enumerate(self.flat) if is_active(x, dtype)]
        if op.name in ONE_OF_TWO:
            self.places = self.places[:1]
        self.flat = [x.detach() if isinstance(x, torch.Tensor) else x for x in self.flat]
        self.leaves = [self.flat[i].clone() for i in self.places]
        generator = torch.Generator().manual_seed(5)
        self.weights = [random_like(y, generator) for y in self.outputs(*self.leaves)]
        self.along = [random_like(x, generator) for x in self.leaves]
        self.other = [random_like(x, generator) for x in self.leaves]

    def outputs(self, *leaves):
        torch.manual_seed(0)
        flat = [x.clone() if isinstance(x, torch.Tensor) else x for x in self.flat]
        for i, leaf in zip(self.places, leaves, strict=True):
            flat[i] = leaf
        x, args, kwargs = pytree.tree_unflatten(flat, self.structure)
        result = self.op.gradcheck_wrapper(function_of(self.op), x, *args, **kwargs)
        found = pytree.tree_leaves(self.sample.output_process_fn_grad(result))
        return [y for y in found if isinstance(y, (torch.Tensor, Tracer)) and is_inexact(y.dtype)]

    def value(self, *leaves):
        pairs = zip(self.outputs(*leaves), self.weights, strict=True)
        parts = [(y * w.conj()).real if w.is_complex() else y * w for y, w in pairs]
        return sum(part.sum() for part in parts)

    def gradient(self, *leaves):
        return mixad.grad(self.value, argnums=tuple(range(len(leaves))))(*leaves)

    def verdict(self) -> str:
        slopes = differences(self.value, self.leaves, self.along)
        reverse = inner(self.gradient(*self.leaves), self.along)
        forward = mixad.jvp(self.value, tuple(self.leaves), tuple(self.along))[1]
        return judged(reverse, forward, slopes)

    def second_verdict(self) -> str:
        def slope(*leaves):
            return inner(self.gradient(*leaves), self.other)

        slopes = differences(slope, self.leaves, self.along)
        hvp = mixad.hvp(self.value, tuple(self.leaves), tuple(self.along))
        product = hvp if len(self.leaves) > 1 else [hvp]
        arguments = tuple(range(len(self.leaves)))
        twice = mixad.grad(slope, argnums=arguments)(*self.leaves)
        return judged(inner(product, self.other), inner(twice, self.along), slopes)


def is_active(x: Any, dtype) -> bool:
    is_dense = isinstance(x, torch.Tensor) and x.layout is torch.strided and not x.is_nested
    return is_dense and x.dtype == dtype and x.requires_grad


def is_inexact(dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def random_like(x, generator):
    return torch.randn(x.shape, dtype=x.dtype, generator=generator)


def inner(some, others):
    pairs = zip(some, others, strict=True)
    return sum((a.conj() * b).real.sum() if b.is_complex() else (a * b).sum() for a, b in pairs)


def differences(f, leaves, along):
    def at(step):
        return f(*[x + step * t for x, t in zip(leaves, along, strict=True)])

    return [float(at(h) - at(-h)) / (2 * h) for h in STEPS]


def judged(one, other, slopes) -> str:
    one, other = float(one), float(other)
    scale = max(1.0, abs(one), abs(slopes[0]))
    if any(slope != slope for slope in slopes):
        return "no difference"
    is_near = any(abs(slope - one) <= NEAR * scale for slope in slopes)
    return "right" if is_near and abs(one - other) <= SAME * scale else "wrong"


def attempted(check) -> str:
    try:
        return check()
    except MixadError:
        return "refused"
    except AttributeError as error:
        if "that is being differentiated" not in str(error):
            return f"error {error!r}"
        return "refused"
    except Exception as error:
        return f"error {type(error).__name__}: {str(error)[:120]}"


PARTS = 4
"""Of the list, for no test takes minutes."""


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_every_function_of_torch_is_right_or_refused(dtype, part, integration):
    from torch.testing._internal.common_methods_invocations import op_db

    dtype, found, told = getattr(torch, dtype), Counter(), []
    for op in op_db[part::PARTS]:
        name = f"{op.name}.{op.variant_test_name}".rstrip(".")
        is_listed = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        if not is_listed or name in INEXACT | UNBOUND:
            continue
        samples = op.sample_inputs("cpu", dtype, requires_grad=True)
        for number, given in zip(range(MAX_SAMPLES), samples, strict=False):
            try:
                sample = Sample(op, given, dtype)
            except RuntimeError:  # torch's, of views of what is larger: these are copies
                found["torch"] += 1
                continue
            if not sample.weights or not sum(x.numel() for x in sample.leaves):
                continue
            integration.count = 0
            verdict = attempted(sample.verdict)
            found[verdict.partition(" ")[0]] += 1
            told.append(f"{verdict}: {name}")
            if verdict == "right" and not number and integration.count and op.supports_gradgrad:
                verdict = attempted(sample.second_verdict)
                found[f"second {verdict.partition(' ')[0]}"] += 1
                told.append(f"{verdict}, second derivative: {name}")
    print(found, *(line for line in told if not line.startswith("right")), sep="\n")
    bad = [line for line in told if not line.startswith(("right", "refused", "no difference"))]
    assert not bad, "\n".join(bad)
    assert found["right"] >= LEAST_SHARE * (found["right"] + found["refused"])
