"""The user's operator, as a program of two elements."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from mixad import pytree
from mixad.backends.arrays import Library, is_scalar, library_of
from mixad.call.specialise import PreparedCall, Specialiser
from mixad.constructs.block_programs import Operator
from mixad.constructs.elements import Elements
from mixad.constructs.leaves import join_numbers, split_elements
from mixad.errors import (
    ConfigurationError,
    KernelError,
    KernelTypeError,
    MixadError,
    SourceLocation,
)
from mixad.scalar.build import Builder
from mixad.scalar.ir import Equation, Param, Var
from mixad.scalar.parse import Parsed
from mixad.scalar.parse.info import FunctionInfo
from mixad.scalar.types import ScalarType
from mixad.tape.apply import apply_program
from mixad.tape.tracer import Tracer

__all__ = ["Combination", "core_of", "kind_of_operator", "prefer_first", "read_operator"]

_MOST = 32
"""Numbers of an element: each of two is a variable of the kernel."""

_SPELLED: Mapping[Any, Callable[[Any, Any], Any]] = MappingProxyType({
    operator.add: lambda a, b: a + b,
    operator.mul: lambda a, b: a * b,
    operator.and_: lambda a, b: a & b,
    operator.or_: lambda a, b: a | b,
    operator.xor: lambda a, b: a ^ b,
})  # fmt: skip


class Combination(NamedTuple):
    """An operator for elements of some types, with its captures."""

    operator: Operator
    captured: list[Any]  # one for each param after those of two elements
    name: str  # of the user's function
    place: SourceLocation  # of the user's function

    def combine(self, these: Sequence[Any], those: Sequence[Any]) -> list[Any]:
        """Return the combination of the elements at each place of two lists of arrays."""
        one, other = (
            split_elements(self.operator, dict(enumerate(leaves))) for leaves in (these, those)
        )
        numbers = apply_program(self.operator.program, [*one, *other, *self.captured])
        return join_numbers(self.operator, numbers)


def core_of(name: str, signature: str | None) -> tuple[int, ...]:
    """Return the shape of the small arrays in a signature; empty for numbers."""
    if signature is None:
        return ()
    text = "".join(signature.split()) if isinstance(signature, str) else ""
    lengths = text[1:-1].split(",")
    if text[:1] + text[-1:] != "()" or not all(each.isdecimal() for each in lengths):
        raise ConfigurationError(
            f"mixad.{name}: signature={signature!r} is none: write the lengths of the last axes "
            'that belong to an element, such as "(2,2)"'
        )
    return tuple(map(int, lengths))


def read_operator(name: str, op: Any, elements: Elements, core: tuple[int, ...]) -> Combination:
    """Return an operator as a program of elements that have ``core`` axes.

    It must return an element, and may not capture an array as a whole.
    """
    example, signature = _example_of(name, elements, core)
    specialiser, call, values = _bound(name, op, example, signature)
    source, parsed = specialiser.source, call.found.parsed
    made, place = _operator_of(name, source.info, parsed, elements, core)
    at = 2 * made.size
    captured = []
    if len(values) > at:
        captured = _read_captured(name, elements, parsed.program.params[at:], values[at:], place)
    return Combination(made, captured, source.name, place)


@lru_cache(maxsize=256)
def _example_of(name: str, elements: Elements, core: tuple[int, ...]) -> tuple[Any, str | None]:
    """Return an example of an element, for the parser, and an operator's signature."""
    structure, kinds = elements.structure, elements.kinds
    _check_size(name, elements, core)
    device = elements.results[0].device
    leaves = [_example(elements.library, kind.type, core, device) for kind in kinds]
    return pytree.unflatten(structure, leaves), _signature_of(core, len(kinds))


@lru_cache(maxsize=256)
def _operator_of(
    name: str,
    info: FunctionInfo,
    parsed: Parsed,
    elements: Elements,
    core: tuple[int, ...],
) -> tuple[Operator, SourceLocation]:
    """Return the parsed operator, and where it is; refuse one that returns no element."""
    place = info.text.locate(info.node)
    _check_returned(name, parsed, elements, core, place)
    return Operator(parsed.program, (core,) * len(elements.kinds)), place


def _check_size(name: str, elements: Elements, core: tuple[int, ...]) -> None:
    """Raise if elements have too many numbers, or a signature that does not describe them."""
    structure, count = elements.structure, len(elements.kinds)
    if count * math.prod(core) > _MOST:
        axes = f" with the last axes {core}" if core else ""
        raise KernelTypeError(
            f"mixad.{name}: elements of {count} arrays{axes} have more than {_MOST} numbers",
            hint="combine smaller elements, or use mixad.scan, which takes steps of any size",
        )
    if core and structure.kind is not None and not issubclass(structure.kind, tuple):
        raise KernelTypeError(
            f"mixad.{name}: a signature with elements that are {structure}",
            hint="pass a tuple or a named tuple of arrays",
        )


def _read_captured(
    name: str,
    elements: Elements,
    params: Sequence[Param],
    values: Sequence[Any],
    place: SourceLocation,
) -> list[Any]:
    """Return an operator's captures, as arrays of the elements' library."""
    library, device = elements.library, elements.results[0].device
    captured = [
        library.asarray(value, param.var.type, device) if is_scalar(value) else value
        for value, param in zip(values, params, strict=True)
    ]
    for value, param in zip(captured, params, strict=True):
        own = value.kind.library if isinstance(value, Tracer) else library_of(value)
        if own is not library:
            raise KernelTypeError.at(
                place,
                f"mixad.{name}: the operator captures {param.name!r}, an array of {own.name}, and "
                f"elements are of {library.name}",
                f"convert it to an array of {library.name}",
            )
        if param.kind != "array" and value.shape:
            raise KernelTypeError.at(
                place,
                f"mixad.{name}: the operator captures {param.name!r}, an array of shape "
                f"{tuple(value.shape)}, as a number",
                "index it, or make it a part of the elements",
            )
    return captured


def _signature_of(core: tuple[int, ...], count: int) -> str | None:
    """Return the signature of an operator of ``count`` small arrays."""
    if not core:
        return None
    spelled = f"({','.join(map(str, core))})"
    return f"{spelled},{spelled}->{','.join([spelled] * count)}"


def _bound(
    name: str, op: Any, example: Any, signature: str | None
) -> tuple[Specialiser, PreparedCall, Any]:
    """Return the program of an operator, and its captures, after the numbers of elements."""
    captures = isinstance(op, FunctionType) and (
        op.__closure__ or op.__defaults__ or op.__kwdefaults__
    )
    is_known = not captures and isinstance(op, (FunctionType, BuiltinFunctionType, np.ufunc))
    try:
        read = _known_specialiser if is_known else _specialiser
        specialiser = read(op, getattr(op, "__code__", None), signature)
        return specialiser, *specialiser.bind_call((example, example), {})
    except KernelError as error:
        if error.location is None or error.location.filename != __file__:
            raise
        raise type(error)(f"mixad.{name}: {op!r}: {error.message}", hint=error.hint) from None
    except MixadError:
        raise
    except TypeError as error:
        raise KernelTypeError(
            f"mixad.{name}: the operator takes two elements: {error}",
            hint="pass a function op(a, b)",
        ) from None


def _specialiser(op: Any, code: CodeType | None, signature: str | None) -> Specialiser:
    """Return the specialiser of an operator, whose code may be replaced later."""
    if isinstance(op, BuiltinFunctionType):
        op = _SPELLED.get(op, op)
    function = op if isinstance(op, FunctionType) else _calling(op)
    return Specialiser(function, signature=signature, takes_tuples=True)


_known_specialiser = lru_cache(maxsize=256)(_specialiser)
"""For functions that hold nothing which the user might want to be freed."""


def _calling(op: Any) -> Callable[[Any, Any], Any]:
    """Return a function for the parser that calls an operator without source."""

    def combine(a: Any, b: Any) -> Any:
        return op(a, b)

    return combine


@lru_cache(maxsize=256)
def _example(library: Library, type: ScalarType, core: tuple[int, ...], device: Any) -> Any:
    """Return an array of one element as an example for the parser."""
    return library.xp.zeros((1, *core), dtype=library.dtype_of(type), device=device)


def _check_returned(
    name: str,
    parsed: Parsed,
    elements: Elements,
    core: tuple[int, ...],
    place: SourceLocation,
) -> None:
    """Raise if an operator does not return an element."""
    program, returned = parsed.program, parsed.returned
    structure, kinds = elements.structure, elements.kinds
    count = len(program.outputs)
    if returned is not None:
        own, cores = returned.structure, returned.cores
    else:
        own = pytree.LEAF if parsed.single else pytree.Structure(tuple, (), (pytree.LEAF,) * count)
        cores = ((),) * count
    is_alike = own == structure or (own.kind is tuple and own.children == structure.children)
    if not is_alike or cores != (core,) * len(kinds) or parsed.complex_outputs:
        raise KernelTypeError.at(
            place,
            f"mixad.{name}: the operator returns {_shown(own, cores)}, combining elements that are "
            f"{_shown(structure, (core,) * len(kinds))}",
            "return an element like those that are combined",
        )
    size = count // len(kinds)
    for at, output in enumerate(program.outputs):
        expected = kinds[at // size].type
        if output.type != expected:
            raise KernelTypeError.at(
                place,
                f"mixad.{name}: the operator returns a number of dtype {output.type.dtype_name}, "
                f"of elements of dtype {expected.dtype_name}",
                f"pass elements of dtype {output.type.dtype_name}, or convert what is returned",
            )


def _shown(structure: pytree.Structure, cores: Sequence[tuple[int, ...]]) -> str:
    core = cores[0] if cores else ()
    if structure.kind is None:
        return f"an array of shape {core}" if core else "a number"
    return f"{structure} of {f'arrays of shape {core}' if core else 'numbers'}"


@lru_cache(maxsize=256)
def kind_of_operator(made: Operator) -> str | None:
    """Return the op of the table that equals an operator of two numbers; None if none."""
    program = made.program
    statements = program.body.statements
    if made.size != 1 or made.captured or len(statements) != 1:
        return None
    (equation,) = statements
    if not isinstance(equation, Equation) or program.outputs != (equation.out,):
        return None
    params = {param.var for param in program.params}
    arguments = {a for a in equation.args if isinstance(a, Var)}
    return equation.op if arguments == params else None


@lru_cache(maxsize=64)
def prefer_first(made: Operator) -> Operator:
    """Return the operator whose choice between two equal numbers is the first; nan if one is nan.

    So the derivative of a minimum or maximum is that of one element.
    """
    kind = kind_of_operator(made)
    if kind not in ("minimum", "maximum"):
        return made
    b = Builder(made.program.name)
    one, other = b.copy_params(made.program.params).values()
    beyond = b.op("lt" if kind == "minimum" else "gt", other, one)
    if one.type.is_float:
        beyond = b.op("or", beyond, b.op("ne", other, other))
    return Operator(b.finish([b.op("where", beyond, other, one)]), made.cores)
