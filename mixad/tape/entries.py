"""Entries over registers: in order, what computes values and carries cotangents back.

The register of a value identifies its cotangent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from mixad.kernel.options import KernelOptions
from mixad.kernel.spec import OutputRequest
from mixad.scalar.ir import Program
from mixad.tape.gradient_plan import GradientPlan
from mixad.tape.journal import Register
from mixad.tape.node import Rule
from mixad.tape.partials_plan import PartialsPlan
from mixad.tape.registers import StridedView
from mixad.tape.values_rule import ValuesRule

if TYPE_CHECKING:
    from mixad.tape.kernel_call import KernelCall, Shape
    from mixad.tape.placing import PaddedSum, ShiftedSum

__all__ = ["Contracted", "Entry", "Evaluated", "Launched", "Pulled", "PulledCall",
           "PulledKernel", "PulledValues", "Stores", "Viewed"]  # fmt: skip


class Launched(NamedTuple):
    """A kernel that makes results."""

    call: KernelCall
    options: KernelOptions
    arguments: tuple[Register, ...]
    results: tuple[Register, ...]

    @property
    def reads(self) -> Sequence[Register]:
        """The registers that it reads."""
        return self.arguments

    @property
    def fills(self) -> Sequence[Register] | None:
        """The registers that it fills; None if it is always needed."""
        return None if self.call.may_be_outside else self.results


class Stores(NamedTuple):
    """A kernel that makes results and partials; ``results`` are those of the outputs asked for."""

    passes: tuple[Program, ...]
    asked: tuple[OutputRequest, ...]
    options: KernelOptions
    arguments: tuple[Register, ...]
    results: tuple[tuple[Register, int], ...]

    @property
    def reads(self) -> Sequence[Register]:
        """The registers that it reads."""
        return self.arguments

    @property
    def fills(self) -> Sequence[Register] | None:
        """The registers that it fills; None if it is always needed."""
        is_needed = any(p.kind == "array" for p in self.passes[0].params)
        return None if is_needed else [at for at, _ in self.results]


class Viewed(NamedTuple):
    """A view of an array that came in."""

    whole: Register
    strided: StridedView
    result: Register

    @property
    def reads(self) -> Sequence[Register]:
        """The registers that it reads."""
        return (self.whole,)

    @property
    def fills(self) -> Sequence[Register] | None:
        """The registers that it fills; None if it is always needed."""
        return (self.result,)


class Evaluated(NamedTuple):
    """A rule that is applied."""

    rule: Rule | ValuesRule
    static: Mapping[str, Any]
    arguments: tuple[Register, ...]
    results: tuple[Register, ...]

    @property
    def reads(self) -> Sequence[Register]:
        """The registers that it reads."""
        return self.arguments

    @property
    def fills(self) -> Sequence[Register] | None:
        """The registers that it fills; None if it is always needed."""
        return self.results


class PulledKernel(NamedTuple):
    """A kernel that makes gradients of what some kernels read from outside, and results.

    An argument, and what else is `read`, is a pair: True and an index into `cotangents`, or False
    and a register. A target is a value, and where its gradient is (`GradientPlan.places`).
    Gradients that are parts of one value are `placed`, or `shifted`: kernels of their own add these
    up.
    """

    cotangents: tuple[Register, ...]
    plan: GradientPlan
    arguments: tuple[tuple[bool, int], ...]
    results: tuple[Register, ...]
    targets: tuple[tuple[Register, str, int], ...]
    placed: tuple[PaddedSum, ...]
    shifted: tuple[ShiftedSum, ...]
    read: Mapping[int, tuple[bool, int]]
    shape: Shape
    options: KernelOptions

    @property
    def reads(self) -> Sequence[Register]:
        """The registers that it reads."""
        read = (*self.arguments, *self.read.values())
        return [at for is_given, at in read if not is_given]

    @property
    def fills(self) -> None:
        """None: it is always needed."""


class Pulled(NamedTuple):
    """A rule that is pulled back; of arguments that it does not read it has the shapes."""

    rule: Rule
    static: Mapping[str, Any]
    arguments: tuple[Any, ...]
    value: Register
    shape: Shape
    targets: tuple[Register | None, ...]

    @property
    def reads(self) -> Sequence[Register]:
        """The registers that it reads."""
        return [a for a in self.arguments if type(a) is int]

    @property
    def fills(self) -> None:
        """None: it is always needed."""


class PulledValues(NamedTuple):
    """A rule with values that is pulled back; ``given`` are those that have a cotangent."""

    rule: ValuesRule
    static: Mapping[str, Any]
    arguments: tuple[Any, ...]
    values: tuple[Register, ...]
    given: tuple[Register | None, ...]
    shapes: tuple[Shape, ...]
    targets: tuple[Register | None, ...]

    @property
    def reads(self) -> Sequence[Register]:
        """The registers that it reads."""
        return (*[a for a in self.arguments if type(a) is int], *self.values)

    @property
    def fills(self) -> None:
        """None: it is always needed."""


class PulledCall(NamedTuple):
    """A call that is pulled back by a rule of its own."""

    call: Register
    given: tuple[Register | None, ...]
    shapes: tuple[Shape, ...]
    targets: tuple[Register | None, ...]

    @property
    def reads(self) -> Sequence[Register]:
        """The registers that it reads."""
        return (self.call,)

    @property
    def fills(self) -> None:
        """None: it is always needed."""


class Contracted(NamedTuple):
    """Stored partials, multiplied by the cotangents of some outputs of the broadcast."""

    plan: PartialsPlan
    residuals: tuple[Register | None, ...]
    shapes: tuple[Shape, ...]
    outputs: tuple[int, ...]
    given: tuple[Register, ...]
    targets: tuple[Register | None, ...]
    shape: Shape
    options: KernelOptions

    @property
    def reads(self) -> Sequence[Register]:
        """The registers that it reads."""
        return [r for r in self.residuals if r is not None]

    @property
    def fills(self) -> None:
        """None: it is always needed."""


Entry: TypeAlias = (
    Launched
    | Stores
    | Viewed
    | Evaluated
    | PulledKernel
    | Pulled
    | PulledValues
    | PulledCall
    | Contracted
)
