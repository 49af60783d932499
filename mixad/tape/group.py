"""Groups of kernels whose gradients one launch computes: kernels join on the way back."""

from __future__ import annotations

from mixad.scalar.dual import MAX_PARTIALS
from mixad.scalar.ir import Load, walk_statements
from mixad.tape.fusion import common_options, fits
from mixad.tape.journal import KernelEquation, Register

__all__ = ["FusionGroup"]


class FusionGroup:
    """Kernels over one shape that are pulled back together, each before those that it reads.

    `members` are empty once they have been pulled back, or taken by the group `taker`.
    """

    __slots__ = ("active", "cost", "has_loops", "indexed", "members", "options", "shape", "taker")

    def __init__(self, equation: KernelEquation) -> None:
        self.shape = equation.shape
        self.members = [equation]
        self.options = equation.options
        self.cost = equation.call.cost
        self.has_loops = equation.call.has_loops
        pairs = zip(equation.arguments, equation.carries, strict=True)
        self.active = {(register, 0) for register, carries in pairs if carries}
        self.indexed = _indexed(equation)
        self.active |= self.indexed  # each read is an input
        self.taker: FusionGroup | None = None

    @property
    def whole(self) -> FusionGroup:
        """The group that has taken it, itself if none has."""
        group = self
        while group.taker is not None:
            group = group.taker
        return group

    def take(self, other: FusionGroup) -> bool:
        """Let the members of another group join if they fit; tell whether they did.

        More active inputs than one dual chunk holds would need a second pass, unless there is no
        loop, and so reverse accumulation.
        """
        options = common_options(self.options, other.options)
        has_loops = self.has_loops or other.has_loops
        if options is None or (has_loops and options.strategy == "reverse"):
            return False
        if not fits(len(self.members) + len(other.members), self.cost, other.cost):
            return False
        made = {register for member in other.members for register in member.results}
        if any(register in made for register, _ in self.indexed):
            return False  # what is read by index has its cotangent when the group is pulled back
        active = {each for each in self.active if each[0] not in made} | other.active
        is_by_duals = has_loops or options.mode.strategy == "forward"
        if is_by_duals and len(active) > max(MAX_PARTIALS, len(self.active), len(other.active)):
            return False
        self.has_loops, self.active, self.options = has_loops, active, options
        self.indexed |= other.indexed
        self.cost += other.cost
        self.members += other.members
        other.members, other.taker = [], self
        return True


def _indexed(equation: KernelEquation) -> set[tuple[Register, int]]:
    """Return the reads by index, in a kernel, of values that carry the level."""
    found: set[tuple[Register, int]] = set()
    program = equation.call.passes[0]
    for param, register, carries in zip(
        program.params, equation.arguments, equation.carries, strict=True
    ):
        if param.kind == "array" and carries:
            loads = (s for s in walk_statements(program.body) if isinstance(s, Load))
            count = sum(s.array == param.var for s in loads)
            found |= {(register, read) for read in range(max(count, 1))}
    return found
