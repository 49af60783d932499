"""Inlining: every op whose lowering is ``"program"`` is replaced by its program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from mixad.scalar.build import Builder
from mixad.scalar.expression import Term
from mixad.scalar.ir import (
    Atom,
    Block,
    Equation,
    Line,
    Load,
    Program,
    Statement,
    Update,
    Var,
    While,
    nested_blocks,
    read_atoms,
    written_vars,
)
from mixad.scalar.math import (
    division,
    error_function,
    exponential,
    logarithm,
    polygamma,
    power,
    scaled_error_function,
    simple,
    trigonometric,
)
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import ScalarType
from mixad.scalar.widen import widen_program

__all__ = ["PROGRAMS", "expand", "program_of"]

PROGRAMS: Mapping[str, Callable[..., Term]] = MappingProxyType({
    name: getattr(module, name)
    for module, names in (
        (simple, "circle_inversion direction_cosine div_zero isfinite isinf isnan maximum minimum"),
        (simple, "mul_zero mul_zeros nextafter ldexp powi relu sign"),
        (exponential, "exp exp2 expm1 logistic_density sigmoid tanh"),
        (logarithm, "log log1p log2 log10 logaddexp"),
        (power, "mul_pow pow pow_log"),
        (trigonometric, "sin cos"),
        (error_function, "erf"),
        (scaled_error_function, "erfcx ierfcx erfinv erfcinv"),
        (polygamma, "digamma polygamma trigamma"),
    )
    for name in names.split()
})  # fmt: skip

FLOAT_PROGRAMS: Mapping[str, Callable[..., Term]] = MappingProxyType(
    {**PROGRAMS, "floordiv": division.floordiv, "mod": division.mod}
)
"""Ops that are inlined for floats: `PROGRAMS`, and those that are instructions for integers
only."""


def expand(
    program: Program, native: Callable[[str, ScalarType], bool] = lambda op, type: False
) -> Program:
    """Replace each op whose lowering is ``"program"`` by its equations, 16-bit floats by float32.

    An op stays where ``native`` says that a dialect has a function for it. Functions of one
    argument share equations: ``tanh(x)`` and ``sigmoid(2 * x)`` one exponential.
    """
    program = widen_program(program)
    builder = _SharingBuilder(program.name, native)
    names = builder.declare(program)
    return builder.finish(builder.copy(program.body, names, builder.expand_equation))


def program_of(name: str, type: ScalarType) -> Program:
    """Return the program of one op for arguments of a type.

    >>> from mixad.scalar.types import F32
    >>> print(program_of("minimum", F32))
    program minimum(%0 x: f32 lane, %1 y: f32 lane)
      %2:bool = lt %1, %0
      %3:bool = ne %1, %1
      %4:bool = or %2, %3
      %5:f32 = where %4, %1, %0
      return %5
    """
    builder = _SharingBuilder(name)
    params = [builder.param(letter, type) for letter in "xyz"[: BY_NAME[name].arity]]
    return builder.finish([PROGRAMS[name](*(Term(builder, p) for p in params)).atom])


class _SharingBuilder(Builder):
    """A builder that reuses an ``If`` it has met: sin(x) and cos(x) share one reduction."""

    def __init__(
        self, name: str, native: Callable[[str, ScalarType], bool] = lambda op, type: False
    ) -> None:
        super().__init__(name)
        self._native = native
        self._sizes: dict[int, tuple[int, Block]] = {}  # by identity, which they keep
        self._most_compared = _MAX_COMPARED

    def expand_equation(self, equation: Equation, args: tuple[Atom, ...]) -> Atom:
        """Add an equation, or the program of its op."""
        inner = self.definition(args[0]) if equation.op == "bitcast" else None
        if inner is not None and (inner.op, inner.args[0].type) == ("bitcast", equation.out.type):
            return inner.args[0]  # was held from derivatives, which are all taken
        inlined = FLOAT_PROGRAMS if args[0].type.is_float else PROGRAMS
        function = inlined.get(equation.op)
        if function is None or self._native(equation.op, equation.out.type):
            return self.op(equation.op, *args, type=equation.out.type)
        before, self._most_compared = self._most_compared, _PURE
        result = function(*(Term(self, a) for a in args)).atom
        self._most_compared = before
        return result

    def add_if(self, cond: Atom, then: Block, orelse: Block, line: Line | None) -> tuple[Atom, ...]:
        if self._size(then) + self._size(orelse) > self._most_compared:
            return super().add_if(cond, then, orelse, line)
        spelled: dict[Var, str] = {}
        number = self.number((_block_key(then, spelled), _block_key(orelse, spelled)))
        numbers = [self.number(("if", cond, number, i)) for i in range(len(then.results))]
        found = [self.known_value(n) for n in numbers]
        outs = tuple(atom for atom in found if atom is not None)
        if len(outs) == len(numbers):
            return outs
        outs = super().add_if(cond, then, orelse, line)
        self._known[-1].update(zip(numbers, outs, strict=True))
        return outs

    def _size(self, block: Block) -> int:
        """Return how many statements a block has, too many if it reads or writes arrays."""
        if id(block) not in self._sizes:
            size = sum(map(self._statement_size, block.statements))
            self._sizes[id(block)] = (size, block)
        return self._sizes[id(block)][0]

    def _statement_size(self, s: Statement) -> int:
        if isinstance(s, Load | Update):
            return _PURE + 1
        return 1 + sum(map(self._size, nested_blocks(s)))


_PURE = 1 << 20
"""More statements than any block has that neither reads nor writes arrays."""

_MAX_COMPARED = 32
"""Statements of a user's ``If`` that is compared with earlier ones: larger ones differ."""


def _block_key(block: Block, local: dict[Var, str]) -> tuple[object, ...]:
    """Spell a block so that equal blocks are equal: its own variables are numbered."""

    def name(atom: Atom) -> object:
        return local.get(atom, atom) if isinstance(atom, Var) else atom

    def own(variables: tuple[Var, ...]) -> None:
        local.update((v, f"{len(local) + i}:{v.type}") for i, v in enumerate(variables))

    def statement(s: Statement) -> tuple[object, ...]:
        reads = tuple(map(name, read_atoms(s)))
        if isinstance(s, While):
            own(s.carries)
        head = s.op if isinstance(s, Equation) else getattr(s, "array", None)
        inner = tuple(_block_key(b, local) for b in nested_blocks(s))
        own(written_vars(s))
        return (type(s).__name__, head, reads, inner, tuple(v.type for v in written_vars(s)))

    return (*map(statement, block.statements), tuple(map(name, block.results)))
