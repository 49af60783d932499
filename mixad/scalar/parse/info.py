"""What is found out about a function's code once: syntax tree, names, data flow."""

from __future__ import annotations

import ast
import functools
import gc
import types
import weakref
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mixad.errors import KernelSyntaxError
from mixad.scalar.parse.analysis import Liveness, live_names, nested_captures
from mixad.scalar.parse.assigned import check_assignment
from mixad.scalar.parse.code import FunctionNode, SentCode, find_function, text_around
from mixad.scalar.parse.names import (
    Path,
    assigned_names,
    body_of,
    free_paths,
    local_paths,
    parameter_names,
)
from mixad.scalar.parse.other_libraries import is_ours
from mixad.scalar.parse.refusals import check_constructs
from mixad.scalar.parse.text import SourceText

__all__ = ["MISSING", "FunctionInfo", "Missing", "callee_of", "function_info", "is_constant",
           "op_name", "rule_of", "sent_code", "unwrap_callable"]  # fmt: skip


def is_constant(attributes: Path) -> bool:
    """Whether attributes of a module spell a mathematical constant: ``pi`` of ``math``."""
    return len(attributes) == 1 and attributes[0] in _CONSTANTS


_CONSTANTS = frozenset({"pi", "e", "tau", "inf", "nan", "euler_gamma"})


class Missing:
    """The value of a name that does not exist."""


MISSING = Missing()


@dataclass(frozen=True, eq=False)
class FunctionInfo:
    """What does not depend on closures and globals: shared by all functions of one code object."""

    name: str  # for messages
    node: FunctionNode
    text: SourceText
    inside: str | None  # the class around it
    bound: str | None  # the first parameter, where it is bound (a method's ``self``)
    paths: tuple[Path, ...] = ()  # what is read from outside
    # For each path: the index of its closure cell or its global name, and its attributes.
    getters: tuple[tuple[int | str | None, Path], ...] = ()
    nested: dict[int, FunctionInfo] = field(default_factory=dict)

    def inner(self, node: FunctionNode) -> FunctionInfo:
        """Return what is known about a function nested in this one."""
        found = self.nested.get(id(node))
        if found is None:
            name = getattr(node, "name", "<lambda>")
            found = FunctionInfo(name, node, self.text, self.inside, None)
            self.nested[id(node)] = found
        return found

    def refuse_variadic(self) -> None:
        """Refuse ``*args`` and ``**kwargs`` in the signature of a kernel."""
        a = self.node.args
        for parameter, stars in ((a.vararg, "*"), (a.kwarg, "**")):
            if parameter is not None:
                raise KernelSyntaxError.at(
                    self.text.locate(parameter),
                    f"`{stars}{parameter.arg}` takes any number of arguments: a kernel's is fixed",
                    "name each parameter",
                )

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters, in order."""
        return parameter_names(self.node)

    @cached_property
    def is_ours(self) -> bool:
        """Whether it is a function of mixad's own."""
        return is_ours(self.text.filename)

    @cached_property
    def constants(self) -> tuple[int, ...]:
        """The paths that are mathematical constants if their root is a module: ``math.pi``."""
        return tuple(i for i, p in enumerate(self.paths) if is_constant(p[1:]))

    @cached_property
    def local_paths(self) -> tuple[Path, ...]:
        """The attributes that are read from parameters and other names of the function's own."""
        return local_paths(self.node, self.inside, self.paths)

    @cached_property
    def captured(self) -> dict[str, frozenset[str]]:
        """What calling each nested function reads."""
        return nested_captures(self.node)

    @cached_property
    def local(self) -> frozenset[str]:
        """Names of the function's own scope."""
        own = {*parameter_names(self.node), *assigned_names(body_of(self.node))}
        return frozenset(own - {self.bound})

    @cached_property
    def liveness(self) -> Liveness:
        """Live names; checks constructs and definite assignment on the way."""
        check_constructs(self.node, self.text)
        if isinstance(self.node, ast.FunctionDef):
            check_assignment(self.node, self.text, self.captured, self.bound)
        return live_names(self.node, self.captured)

    @cached_property
    def path_index(self) -> dict[Path, int]:
        """The position of each path."""
        return {path: i for i, path in enumerate(self.paths)}


def unwrap_callable(function: Any) -> tuple[types.FunctionType, Any] | None:
    """Return the plain function that runs where a callable is called, and what it is bound to.

    None where that is not known: ``functools.update_wrapper`` marks objects that compute something
    else, so ``__wrapped__`` says what is wrapped, not what a call does.
    """
    if isinstance(function, types.FunctionType):
        return function, MISSING
    if isinstance(function, types.MethodType):
        return _bind_instance(function.__func__, function.__self__)
    inside = callee_of(function)
    if inside is not None:
        return unwrap_callable(inside)
    call = _method(type(function), "__call__")
    if isinstance(call, staticmethod):
        return unwrap_callable(call)
    return (call, function) if isinstance(call, types.FunctionType) else None


def _bind_instance(function: Any, instance: Any) -> tuple[types.FunctionType, Any] | None:
    """Return a method's function and its object: what is bound to another already takes both."""
    found = unwrap_callable(function)
    return (found[0], instance) if found is not None and found[1] is MISSING else None


def callee_of(function: Any) -> Any:
    """Return what an object calls with the arguments of its call, and does nothing besides.

    Told by the exact type: that of mixad's own objects has the property, which no instance copies
    and no class inherits.  None for any other object.
    """
    kind = type(function)
    if kind is staticmethod:
        return function.__func__
    if kind is functools._lru_cache_wrapper:
        # `update_wrapper` may have named another function since: the one that is called is held.
        inside = getattr(function, "__wrapped__", None)
        return inside if any(r is inside for r in gc.get_referents(function)) else None
    return function.__mixad_function__ if "__mixad_function__" in vars(kind) else None


def rule_of(function: Any) -> Any:
    """Return the function that computes the partial derivatives of a callable, None if none does.

    Told by the exact type, as `callee_of` does.  Of functions, those of `mixad.special` are marked;
    ``functools.wraps`` copies the mark to functions that compute something else.
    """
    while function is not None:
        if "__mixad_rule__" in vars(type(function)) or _is_marked(function):
            return function.__mixad_rule__
        function = callee_of(function)
    return None


def _is_marked(function: Any) -> bool:
    is_function = isinstance(function, types.FunctionType) and not hasattr(function, "__wrapped__")
    return is_function and "__mixad_rule__" in vars(function)


def _method(kind: type, name: str) -> Any:
    """Return what a class has by a name, as it stands there: not bound, nothing computed."""
    return next((vars(k)[name] for k in kind.__mro__ if name in vars(k)), None)


def op_name(function: Any) -> str | None:
    """Return the op that a function of `mixad.special` stands for, None for any other object.

    ``functools.wraps`` copies the mark to functions that compute something else.
    """
    name = getattr(function, "__mixad_op__", None)
    return name if isinstance(name, str) and not hasattr(function, "__wrapped__") else None


_KNOWN: dict[tuple[int, bool], FunctionInfo] = {}


def function_info(code: types.CodeType, bound: bool) -> FunctionInfo:
    """Return what is known about a code object, reading its source the first time."""
    key = (id(code), bound)
    info = _KNOWN.get(key)
    if info is None:
        info = _KNOWN[key] = _read(code, bound)
        weakref.finalize(code, _KNOWN.pop, key, None)
    return info


def sent_code(code: types.CodeType) -> SentCode:
    """Return what a function's code is sent to another process as: its text as it was read."""
    sent = _SENDABLE.get(id(code))
    if sent is None:
        info = _KNOWN.get((id(code), True)) or function_info(code, False)
        sent = _SENDABLE[id(code)] = text_around(code, info.text)
        weakref.finalize(code, _SENDABLE.pop, id(code), None)
    return sent


_SENDABLE: dict[int, SentCode] = {}
"""What code is sent to other processes as, by its id."""


def _read(code: types.CodeType, bound: bool) -> FunctionInfo:
    found = find_function(code)
    first = parameter_names(found.node)[0] if bound else None
    paths = free_paths(found.node, first, found.inside)
    cells = {name: i for i, name in enumerate(code.co_freevars)}
    getters = tuple((None if p[0] == first else cells.get(p[0], p[0]), p[1:]) for p in paths)
    return FunctionInfo(code.co_name, found.node, found.text, found.inside, first, paths, getters)
