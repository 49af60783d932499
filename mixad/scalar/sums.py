"""Which carries of a loop are sums: iterations do nothing with them but add to them."""

from __future__ import annotations

from mixad.scalar.activity import active_arguments
from mixad.scalar.ir import Atom, Block, Equation, If, Statement, Update, Var, While

__all__ = ["is_sum"]


def is_sum(loop: While, index: int) -> bool:
    """Whether a loop only adds to a carry, and compares it.

    The derivative of its result with respect to each summand is 1 then.
    """
    walk = _Sum({loop.carries[index]})
    walk.block(loop.cond)
    walk.block(loop.body)
    others = (a for i, a in enumerate(loop.body.results) if i != index)
    return walk.holds and walk.has(loop.body.results[index]) and not any(map(walk.has, others))


class _Sum:
    """A walk over a loop's body; ``found`` are the variables that are the sum so far.

    ``holds`` is false once something reads one of them with a derivative that is not 1.
    """

    def __init__(self, found: set[Var]) -> None:
        self.found = found
        self.holds = True

    def has(self, atom: Atom) -> bool:
        return isinstance(atom, Var) and atom in self.found

    def block(self, block: Block) -> None:
        for s in block.statements:
            self.statement(s)

    def statement(self, s: Statement) -> None:
        match s:
            case Equation():
                self.equation(s)
            case If():
                self.block(s.then)
                self.block(s.orelse)
                for out, a, b in zip(s.outs, s.then.results, s.orelse.results, strict=True):
                    self.choose(out, a, b)
            case While():
                self.loop(s)
            case Update():
                self.holds &= not self.has(s.value)

    def equation(self, s: Equation) -> None:
        read = [i for i, a in enumerate(s.args) if self.has(a) and i in active_arguments[s.op]]
        match s.op, read:
            case _, []:
                return
            case ("add", [_]) | ("sub", [0]) | ("fma", [2]):
                self.found.add(s.out)
            case "where", _:
                self.choose(s.out, s.args[1], s.args[2])
            case _:
                self.holds = False

    def choose(self, out: Var, a: Atom, b: Atom) -> None:
        """Record a choice of two values as the sum, if both are."""
        if self.has(a) and self.has(b):
            self.found.add(out)
        elif self.has(a) or self.has(b):
            self.holds = False

    def loop(self, s: While) -> None:
        """Record the carries of an inner loop that go on from the sum: they add to it, too."""
        own = [self.has(a) for a in s.inits]
        self.found.update(c for c, is_own in zip(s.carries, own, strict=True) if is_own)
        self.block(s.cond)
        self.block(s.body)
        self.holds &= own == [self.has(a) for a in s.body.results]
        self.found.update(out for out, is_own in zip(s.outs, own, strict=True) if is_own)
