"""The namespace as NumPy and torch spell it: their functions, called on traced values, come here.

A spelling is a table: under a library's name of a function, the function of the namespace that it
is and the library's parameters.  `__array_ufunc__`, `__array_function__`, `__torch_function__` and
the methods of tracers look names up in it; what is not there is refused by name, never computed
without its derivative.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mixad import pytree
from mixad.backends.arrays import Library
from mixad.errors import TracerError
from mixad.namespace.data_types import astype
from mixad.namespace.elementwise import as_operand, elementwise, is_operand, power, square
from mixad.namespace.linear_algebra import matmul
from mixad.namespace.manipulation import matrix_transpose, permute_dims, reshape
from mixad.namespace.statistical import mean, total
from mixad.tape.tracer import Tracer, plain

__all__ = ["NUMPY", "STANDARD", "TORCH", "Spelling", "spelling_of"]


@dataclass(frozen=True)
class _Function:
    """A function of the namespace, and the parameters of the library's function in order."""

    evaluate: Callable[..., Any]
    parameters: tuple[str, ...]

    @cached_property
    def taken(self) -> frozenset[str]:
        """Names of the namespace function's own parameters."""
        return frozenset(inspect.signature(self.evaluate).parameters)


@dataclass(frozen=True)
class Spelling:
    """How one library spells the namespace.

    Attributes
    ----------
    library : str
        Its name.
    is_meant : callable
        Whether a function is the one of its name: libraries have others, such as
        ``numpy.emath.sqrt``, which gives complex numbers.
    functions : mapping
        By the library's names.
    renamed : mapping
        The namespace's names of the library's parameters, where they differ.
    constant : frozenset of str
        Functions whose results are no floats, or depend on shapes only: their derivative is zero,
        so they are given the values.
    """

    library: str
    is_meant: Callable[[Any], bool]
    functions: Mapping[str, _Function]
    renamed: Mapping[str, str] = field(default_factory=dict)
    constant: frozenset[str] = frozenset()

    def call(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return what a function of the library returns, recorded.

        Raises
        ------
        TracerError
            If the namespace has no such function yet, or it lacks an argument that was given.
        """
        name = function.__name__
        called = f"{_module_of(function) or self.library}.{name}()"
        if not self.is_meant(function):
            raise TracerError(_missing(called))
        if name in self.constant:
            return function(*pytree.tree_map(plain, args), **pytree.tree_map(plain, dict(kwargs)))
        found = self.functions.get(name)
        if found is None:
            raise TracerError(_missing(called))
        return found.evaluate(**self._bound(called, found, args, kwargs))

    def call_method(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return what a method of an array returns; ``args`` begin with the array."""
        found = self.functions[name]
        array, *rest = args
        if found.parameters[1:2] in _SEVERAL and rest and isinstance(rest[0], (int, np.integer)):
            args = (array, tuple(rest))
        return found.evaluate(**self._bound(f"{name}()", found, args, kwargs))

    def _bound(
        self, called: str, found: _Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments under the namespace's names; those that say nothing are left out."""
        if len(args) > len(found.parameters):
            raise TracerError(
                f"{called} takes at most {len(found.parameters)} positional arguments here, "
                f"{len(args)} were given: leave out the last ones, or say mixad.stop_gradient(x) "
                "if no derivative is meant"
            )
        bound = {}
        for name, value in (*zip(found.parameters, args, strict=False), *kwargs.items()):
            own = self.renamed.get(name, name)
            if own in found.taken:
                bound[own] = value
            elif value is not _DEFAULTS.get(name) and value is not np._NoValue:
                raise TracerError(self._untaken(called, found, name))
        return bound

    def _untaken(self, called: str, found: _Function, name: str) -> str:
        options = [
            p for p in found.parameters if self.renamed.get(p, p) in found.taken - {"x", "y"}
        ]
        takes = f"it takes {', '.join(options)}" if options else "it takes no options"
        return (
            f"{called} of a value that is being differentiated has no argument {name!r}: {takes}; "
            f"{_INSTEAD.get(name, 'leave it out')}, or say mixad.stop_gradient(x) if no derivative "
            "is meant"
        )


_SEVERAL = (("shape",), ("axes",), ("dims",))
"""What methods take as several numbers too."""

_DEFAULTS = {"inplace": False, "alpha": 1, "decimals": 0}
"""What arguments that are not taken may be given as; others as None."""

_INSTEAD = {
    "out": "use the result that it returns",
    "where": "multiply by a mask of zeros and ones first",
    "initial": "add it to the result",
    "order": "permute the axes first",
    "dtype": "convert the arguments first",
    "dim": "write axis=",
    "keepdim": "write keepdims=",
    "alpha": "multiply first",
    "rounding_mode": "use //",
}


def _missing(called: str) -> str:
    """Return why a function is refused, and what to write instead."""
    return (
        f"{called} of a value that is being differentiated is not available yet: write it with "
        "operators, indexing, sum, mean, reshape, matmul, functions of one element such as exp, or "
        "a function decorated with @mixad.broadcast; say mixad.stop_gradient(x) if no derivative "
        "is meant"
    )


def _module_of(function: Any) -> str | None:
    """Return where a function is from; methods of torch's tensors do not tell."""
    return getattr(function, "__module__", None)


def _unary(op: str) -> _Function:
    return _Function(lambda x: elementwise(op, x), ("x",))


def _binary(op: str) -> _Function:
    return _of_operands(lambda x, y: elementwise(op, x, y))


def _of_operands(evaluate: Callable[[Any, Any], Any]) -> _Function:
    """Take what operators take: a list beside a traced NumPy array is an array."""
    return _Function(lambda x, y: evaluate(_operand(x, y), _operand(y, x)), ("x", "y"))


def _operand(value: Any, other: Any) -> Any:
    if is_operand(value):
        return value
    operand = as_operand(value, other) if isinstance(other, Tracer) else NotImplemented
    if operand is NotImplemented:
        raise TracerError(
            f"a {type(value).__name__} beside a value that is being differentiated: convert it to "
            "an array first"
        )
    return operand


def _compared(compare: Callable[[Any, Any], Any]) -> _Function:
    """Comparisons have no derivative: they give plain arrays, which `if` and `while` can test."""
    return _Function(lambda x, y: compare(plain(x), plain(y)), ("x", "y"))


_ONE = (
    "abs sign sqrt floor ceil trunc exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan "
    "sinh cosh tanh asinh acosh atanh isnan isinf isfinite signbit"
).split()
_TWO = "fmod minimum maximum copysign nextafter logaddexp atan2 hypot".split()
_COMPARISONS = {
    "less": operator.lt, "less_equal": operator.le, "greater": operator.gt,
    "greater_equal": operator.ge, "equal": operator.eq, "not_equal": operator.ne,
}  # fmt: skip

_COMMON: dict[str, _Function] = {
    **{op: _unary(op) for op in _ONE},
    **{op: _binary(op) for op in _TWO},
    **{name: _compared(compare) for name, compare in _COMPARISONS.items()},
    "add": _binary("add"),
    "subtract": _binary("sub"),
    "multiply": _binary("mul"),
    "divide": _binary("div"),
    "floor_divide": _binary("floordiv"),
    "remainder": _binary("mod"),
    "pow": _of_operands(power),
    "negative": _unary("neg"),
    "positive": _Function(lambda x: x, ("x",)),
    "round": _unary("rint"),
    "square": _Function(square, ("x",)),
    "matmul": _of_operands(matmul),
}
"""What NumPy, torch and the standard have under one name."""

STANDARD = Spelling(
    "xp",
    lambda function: True,
    {
        "sum": _Function(total, ("x", "axis", "dtype", "keepdims")),
        "mean": _Function(mean, ("x", "axis", "dtype", "keepdims")),
        "reshape": _Function(reshape, ("x", "shape", "copy")),
        "astype": _Function(astype, ("x", "dtype", "copy")),
    },
)
"""The methods of tracers over arrays of other libraries."""


def _named(names: str) -> dict[str, _Function]:
    """Return functions under other names: ``"theirs=ours ..."``."""
    pairs = (pair.split("=") for pair in names.split())
    return {theirs: _COMMON[ours] for theirs, ours in pairs}


_INVERSES = (
    "arcsin=asin arccos=acos arctan=atan arcsinh=asinh arccosh=acosh arctanh=atanh arctan2=atan2"
)

NUMPY = Spelling(
    "numpy",
    lambda function: getattr(np, function.__name__, None) is function,
    {
        **_COMMON,
        **_named(f"{_INVERSES} absolute=abs fabs=abs rint=round power=pow"),
        "cbrt": _unary("cbrt"),
        "reciprocal": _Function(lambda x: 1 / x, ("x",)),
        "sum": _Function(total, ("a", "axis", "dtype", "out", "keepdims", "initial", "where")),
        "mean": _Function(mean, ("a", "axis", "dtype", "out", "keepdims", "where")),
        "reshape": _Function(reshape, ("a", "shape", "order", "copy")),
        "transpose": _Function(permute_dims, ("a", "axes")),
        "matrix_transpose": _Function(matrix_transpose, ("x",)),
        "astype": _Function(astype, ("x", "dtype", "order", "casting", "subok", "copy")),
    },
    {"a": "x"},
    frozenset(
        "shape ndim size zeros_like ones_like empty_like isclose allclose array_equal "
        "array_equiv any all argmax argmin argsort count_nonzero nonzero flatnonzero argwhere "
        "searchsorted iscomplexobj isrealobj logical_and logical_or logical_xor "
        "logical_not".split()
    ),
)

_TORCH_MODULES = (None, "torch", "torch._tensor", "torch.nn.functional")

TORCH = Spelling(
    "torch",
    lambda function: _module_of(function) in _TORCH_MODULES,
    {
        **{name: function for name, function in _COMMON.items() if name != "equal"},
        **_named(
            f"{_INVERSES} absolute=abs sub=subtract mul=multiply div=divide true_divide=divide "
            "__floordiv__=floor_divide neg=negative lt=less le=less_equal gt=greater "
            "ge=greater_equal eq=equal ne=not_equal"
        ),
        **{op: _unary(op) for op in ("sigmoid", "relu", "erf", "erfc", "lgamma", "digamma")},
        "sum": _Function(total, ("input", "dim", "keepdim", "dtype")),
        "mean": _Function(mean, ("input", "dim", "keepdim", "dtype")),
        "reshape": _Function(reshape, ("input", "shape")),
        "permute": _Function(permute_dims, ("input", "dims")),
        "astype": STANDARD.functions["astype"],
    },
    {"input": "x", "other": "y", "exponent": "y", "dim": "axis", "keepdim": "keepdims",
     "dims": "axes"},
    frozenset(
        "numel zeros_like ones_like empty_like rand_like randn_like isclose allclose "
        "equal any all argmax argmin argsort count_nonzero nonzero is_floating_point is_complex "
        "logical_and logical_or logical_xor logical_not".split()
    ),
)  # fmt: skip


def spelling_of(library: Library) -> Spelling:
    """Return how methods of a library's arrays are called."""
    return {"numpy": NUMPY, "torch": TORCH}.get(library.name, STANDARD)
