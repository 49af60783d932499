"""The names a function reads from outside: through its closure, its module, or its bound object.

A *path* is a root name and the attributes read from it, as far as they go: ``k``, ``math.pi``,
``self.model.k``.  Paths are found once, their values are read at every call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from mixad.scalar.parse.code import FunctionNode

__all__ = ["Path", "assigned_names", "changed_names", "dotted_path", "free_paths", "local_paths",
           "names_assigned_in", "nested_functions", "parameter_names"]  # fmt: skip

Path = tuple[str, ...]


def parameter_names(node: FunctionNode) -> tuple[str, ...]:
    """Return the names of a function's parameters, in order."""
    a = node.args
    variadic = [p for p in (a.vararg, a.kwarg) if p is not None]
    return tuple(p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs, *variadic))


def body_of(node: FunctionNode) -> list[ast.AST]:
    """Return what is inside a function's own scope."""
    return [node.body] if isinstance(node, ast.Lambda) else list(node.body)


def walk_scope(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    """Yield all nodes of one scope; nested functions are yielded, their bodies not entered."""
    waiting = nodes[::-1]  # no recursion: it costs each level a call
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, FunctionNode):
            defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
            waiting += [*defaults, *getattr(node, "decorator_list", [])][::-1]
        elif not isinstance(node, ast.ClassDef):
            waiting += list(ast.iter_child_nodes(node))[::-1]


def assigned_names(nodes: list[ast.AST]) -> dict[str, None]:
    """Return the names that statements of one scope assign, in order of first appearance."""
    names: dict[str, None] = {}
    for node in walk_scope(nodes):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names[node.id] = None
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] = None
    return names


def changed_names(nodes: list[ast.AST]) -> set[str]:
    """Return the names whose items statements of one scope assign to."""
    found = set()
    for node in walk_scope(nodes):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            root: ast.expr = node
            while isinstance(root, ast.Subscript):
                root = root.value
            if isinstance(root, ast.Name):
                found.add(root.id)
    return found


@lru_cache(maxsize=4096)
def names_assigned_in(node: ast.stmt) -> tuple[str, ...]:
    """Return the names that one statement gives values, or whose items."""
    return tuple(dict.fromkeys([*assigned_names([node]), *sorted(changed_names([node]))]))


def nested_functions(nodes: list[ast.AST]) -> list[FunctionNode]:
    """Return the functions defined in one scope, not those inside them."""
    return [n for n in walk_scope(nodes) if isinstance(n, FunctionNode)]


def dotted_path(node: ast.AST, inside: str | None = None) -> Path | None:
    """Return the path that an attribute chain spells, or None if it is not one.

    ``inside`` is the class whose private names (``self.__k``) are meant.
    """
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(_mangle(node.attr, inside))
        node = node.value
    return (node.id, *reversed(attributes)) if isinstance(node, ast.Name) else None


def _mangle(name: str, inside: str | None) -> str:
    if inside is None or not name.startswith("__") or name.endswith("__"):
        return name
    return f"_{inside.lstrip('_')}{name}"


def free_paths(node: FunctionNode, bound: str | None, inside: str | None) -> tuple[Path, ...]:
    """Return the paths that a function and the functions nested in it read from outside.

    ``bound`` is the parameter that holds the object of a bound method: it counts as outside.
    """
    search = _Search(inside)
    search.scope(node, frozenset(), bound)
    return tuple(search.paths)


def local_paths(node: FunctionNode, inside: str | None, free: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the attributes that a function reads from names of its own, ``xp.exp`` of ``xp``."""
    found: dict[Path, None] = {}
    waiting: list[ast.AST] = body_of(node)
    while waiting:
        part = waiting.pop()
        path = dotted_path(part, inside)
        if path is None:
            waiting += ast.iter_child_nodes(part)
        elif len(path) > 1 and path not in free:
            found[path[1:]] = None
    return tuple(sorted(found))


@dataclass
class _Search:
    inside: str | None
    paths: dict[Path, None] = field(default_factory=dict)

    def scope(self, node: FunctionNode, outer: frozenset[str], bound: str | None = None) -> None:
        body = body_of(node)
        own = {*parameter_names(node), *assigned_names(body)} - {bound}
        local = outer | own
        for statement in body:
            self.visit(statement, local)

    def visit(self, node: ast.AST, local: frozenset[str]) -> None:
        path = dotted_path(node, self.inside)
        if path is not None:
            if path[0] not in local:
                self.paths[path] = None
        elif isinstance(node, FunctionNode):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self.visit(default, local)
            self.scope(node, local)
        else:
            for child in ast.iter_child_nodes(node):
                if not (isinstance(node, ast.AnnAssign) and child is node.annotation):
                    self.visit(child, local)
