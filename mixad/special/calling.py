"""How functions of `mixad.special` are made: of an op of the table, or of a plain function.

Inside a kernel they become ops; called with plain numbers they compute what the reference
interpreter computes.  Docstrings are made: of the op table's sentence, or of the one that is
written in the source, and of the signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar

import numpy as np

from mixad.errors import KernelTypeError
from mixad.scalar.interpret import apply
from mixad.scalar.narrow import to_memory
from mixad.scalar.ops import BY_NAME, Op
from mixad.scalar.types import BOOL, ScalarType, type_of_dtype
from mixad.tracebacks import hide_frames

__all__ = ["Number", "complete_docstring", "of_op", "with_partials"]

Number: TypeAlias = Any
"""A Python or NumPy number; inside a kernel, a value of it."""

_F = TypeVar("_F", bound=Callable[..., Any])


def of_op(name: str) -> Callable[..., Number]:
    """Return the function that users call for an op."""
    op = BY_NAME[name]
    names = _parameters(op)

    def function(*args: Number) -> Number:
        try:
            return _evaluate(op, args)
        except Exception as error:
            hide_frames(error)
            raise

    function.__name__ = function.__qualname__ = name
    function.__doc__ = op.doc
    function.__annotations__ = dict.fromkeys((*names, "return"), "Number")
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY, annotation="Number")
            for n in names
        ],
        return_annotation="Number",
    )
    function.__mixad_op__ = name  # type: ignore[attr-defined]  # what the parser looks for
    return complete_docstring(function)


def _parameters(op: Op) -> tuple[str, ...]:
    """Return what an op's arguments are called."""
    named = {
        "where": ("condition", "x", "y"),
        "polygamma": ("n", "x"),
        "ierfcx": ("n", "x"),
        "ldexp": ("x", "n"),
    }
    return named.get(op.name, ("x", "y", "z")[: op.arity])


def complete_docstring(function: _F) -> _F:
    """Complete a docstring of one sentence by the parameters and what is returned."""
    parameters = inspect.signature(function).parameters.values()
    result = "number\n    A Python number of Python numbers, else a NumPy scalar."
    function.__module__ = "mixad.special"  # where users find it
    function.__doc__ = "\n".join([
        f"{function.__doc__}\n",
        *_section("Parameters", map(_parameter, parameters)),
        *_section("Returns", [result]),
    ])  # fmt: skip
    return function


def with_partials(rule: Callable[..., Any]) -> Callable[[_F], _F]:
    """Return a decorator for a function whose derivatives are a rule's, as for `scalar_rule`."""

    def mark(function: _F) -> _F:
        function.__mixad_rule__ = rule  # type: ignore[attr-defined]  # what the parser looks for
        return function

    return mark


def _section(title: str, entries: Iterable[str]) -> list[str]:
    return [title, "-" * len(title), *entries, ""]


def _parameter(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return f"{parameter.name} : number\n    Argument."
    return f"{parameter.name} : number, optional\n    Argument, {parameter.default} by default."


def _evaluate(op: Op, args: tuple[Any, ...]) -> Any:
    """Compute an op on plain numbers, as the interpreter does."""
    _check_numbers(op, args)
    count = 1 if op.name == "where" else 0
    conditions, numbers = map(np.bool_, args[:count]), args[count:]
    type = _type_for(op, numbers)
    values = (*conditions, *map(type.arithmetic.dtype.type, numbers))
    result = apply(op.name, values, type if op.result == "same" else BOOL)
    if type.is_narrow and op.result == "same":
        result = to_memory(result, type)[()]
    return result if any(isinstance(v, np.generic) for v in args) else result.item()


def _check_numbers(op: Op, args: tuple[Any, ...]) -> None:
    if len(args) != op.arity:
        raise KernelTypeError(
            f"mixad.special.{op.name} takes {op.arity} arguments, got {len(args)}",
            hint=f"write {op.name}({', '.join(_parameters(op))})",
        )
    for value in args:
        if not isinstance(value, bool | int | float | np.generic):
            raise KernelTypeError(
                f"mixad.special.{op.name} takes numbers, got {type(value).__name__}",
                hint="call it in a function decorated with @mixad.broadcast",
            )


def _type_for(op: Op, numbers: tuple[Any, ...]) -> ScalarType:
    """Return the type in which an op of numbers is carried out."""
    dtype = np.result_type(*numbers)
    is_whole = op.domain == "float" and dtype.kind in "biu"
    found = type_of_dtype(np.float64 if is_whole else dtype)
    if found is None:
        raise KernelTypeError(
            f"mixad.special.{op.name} does not take {dtype}", hint="convert it, such as by float(x)"
        )
    return found
