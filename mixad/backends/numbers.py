"""Arithmetic on single numbers, without a kernel: NumPy's scalars compute it, to the same bits.

A mean is a quotient of one element, a loss often a sum of a few.  Launching a kernel for it takes
ten times as long as the arithmetic, compiling one a thousand times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from mixad.kernel.spec import OutputRequest
from mixad.scalar.evaluate import DEFINITIONS
from mixad.scalar.ir import Atom, Const, Equation, Param, Program
from mixad.scalar.math import expand
from mixad.scalar.types import ScalarType

__all__ = ["ScalarEvaluator", "are_numbers", "scalar_evaluator"]

_MOST = 24
"""Ops that a program may have: more take as long as a launch."""

_EXACT = frozenset(
    "add sub mul div neg abs sqrt copysign floor ceil trunc rint lt le gt ge eq ne where signbit "
    "and or xor not".split()
)
"""Ops that are rounded correctly, or not at all: NumPy's bits are those of every backend."""

_Numbers: TypeAlias = list[Any]
_Op: TypeAlias = tuple[Callable[..., Any], tuple[int, ...]]


class ScalarEvaluator:
    """A short program without control flow, of exact ops, for arguments without axes.

    ``wanted`` are the positions of the outputs that a call returns.
    """

    def __init__(self, program: Program, wanted: Sequence[int]) -> None:
        self._params = program.params
        self._constants: _Numbers = []
        self._places: dict[object, int] = {p.var: k for k, p in enumerate(program.params)}
        equations = [s for s in program.body.statements if isinstance(s, Equation)]
        read = [a for s in equations for a in s.args] + [program.outputs[k] for k in wanted]
        for atom in read:
            if isinstance(atom, Const) and self._key(atom) not in self._places:
                self._places[self._key(atom)] = len(self._places)
                self._constants.append(_number(atom.value, atom.type))
        for s in equations:
            self._places[s.out] = len(self._places)
        self._ops: list[_Op] = [
            (_definition(s), tuple(map(self._place, s.args))) for s in equations
        ]
        self._wanted = [self._place(program.outputs[k]) for k in wanted]

    def _key(self, atom: Atom) -> object:
        return (atom.bits, atom.type) if isinstance(atom, Const) else atom

    def _place(self, atom: Atom) -> int:
        return self._places[self._key(atom)]

    def __call__(self, arguments: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return the outputs; None for arguments of other types than the program's."""
        with np.errstate(all="ignore"):
            values = self._typed_arguments(arguments)
            if values is None:
                return None
            values += self._constants
            for compute, places in self._ops:
                values.append(compute(*[values[at] for at in places]))
        return tuple([np.asarray(values[at]) for at in self._wanted])

    def _typed_arguments(self, arguments: Sequence[Any]) -> _Numbers | None:
        """Return arguments as NumPy's scalars of the program's types."""
        values: _Numbers = []
        for param, given in zip(self._params, arguments, strict=True):
            if param.kind == "uniform":
                values.append(_number(given, param.var.type))
            elif type(given) is np.ndarray and given.dtype == param.var.type.dtype:
                values.append(given[()])
            else:
                return None  # a kernel says what is wrong
        return values


def are_numbers(arguments: Sequence[Any]) -> bool:
    """Whether arguments of a kernel are numbers of Python and NumPy's arrays without axes."""
    for a in arguments:
        if type(a) is np.ndarray:
            if a.shape:
                return False
        elif not isinstance(a, (float, int)):
            return False
    return True


def _number(value: Any, type: ScalarType) -> Any:
    return type.dtype.type(value)


def _definition(s: Equation) -> Callable[..., Any]:
    if s.op == "convert":
        converted: Callable[..., Any] = s.out.type.dtype.type
        return converted
    return DEFINITIONS[s.op]


def scalar_evaluator(
    passes: Sequence[Program], requests: Sequence[OutputRequest]
) -> ScalarEvaluator | None:
    """Return an evaluator of programs on numbers; None if they are not short and exact."""
    if len(passes) != 1 or passes[0].accumulators or len(passes[0].body.statements) > _MOST:
        return None
    if not all(map(_is_taken, passes[0].params)) or any(map(_has_axes, requests)):
        return None
    if any(passes[0].outputs[r.result].type.is_narrow for r in requests):
        return None  # an expanded program leaves it to memory to round them
    if all(p.kind == "uniform" for p in passes[0].params):
        return None  # no array says which library the results are of
    program = expand(passes[0])
    statements = program.body.statements
    if len(statements) > _MOST or not all(map(_is_exact, statements)):
        return None
    return ScalarEvaluator(program, [r.result for r in requests])


def _has_axes(request: OutputRequest) -> bool:
    return request.part is not None or bool(request.shape) or bool(request.beside)


def _is_taken(param: Param) -> bool:
    return param.kind in ("lane", "uniform") and _is_plain(param.var.type)


def _is_plain(type: ScalarType) -> bool:
    return type.is_float and not type.is_narrow


def _is_exact(statement: object) -> bool:
    if not isinstance(statement, Equation):
        return False
    types = [a.type for a in (*statement.args, statement.out)]
    if statement.op == "convert":
        return all(map(_is_plain, types))
    return statement.op in _EXACT and all(_is_plain(t) or t.is_bool for t in types)
