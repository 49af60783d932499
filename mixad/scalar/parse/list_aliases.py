"""Marking what a name holds as shared.

Every reading of a name that may keep a list marks it as shared, under both names; looking at an
item, its length or a sum does not.
"""

from __future__ import annotations

import ast

from mixad.scalar.parse.frame import Frame, State

__all__ = ["share", "share_as_in"]


def share(frame: Frame, node: ast.AST) -> None:
    """Mark what the name at the root of an expression holds."""
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Starred):
        node = node.value
    if not isinstance(node, ast.Name):
        return
    owner: Frame | None = frame
    while owner is not None:
        bound = owner.state.names.get(node.id)
        if bound is not None:
            owner.state.names[node.id] = bound._replace(value=bound.value.mark_shared())
            return
        owner = owner.parent


def share_as_in(frame: Frame, state: State) -> None:
    """Mark what was marked on a path, or in an iteration, whose names are not kept."""
    names = frame.state.names
    for name, bound in state.names.items():
        here = names.get(name)
        if here is not None and here.value.owns_list() and not bound.value.owns_list():
            names[name] = here._replace(value=here.value.mark_shared())
