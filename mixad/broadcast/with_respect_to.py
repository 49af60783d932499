"""The arrays and numbers that a call is differentiated with respect to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from mixad.errors import KernelGradientError
from mixad.scalar.ir import ArrayType
from mixad.scalar.parse import Leaf, Parsed
from mixad.scalar.types import ScalarType

__all__ = ["Names", "active_leaves", "real_leaves"]

Names: TypeAlias = Sequence[str] | str | None
"""Parameters of a function; one name stands for itself."""


def active_leaves(parsed: Parsed, values: Sequence[Any], wrt: Names) -> list[Leaf]:
    """Return the arrays and numbers that ``wrt`` names; by default all arrays of floats.

    It may name fields (``"state.x"``), elements (``"w[0]"``), parts (``"z.real"``) and captures; a
    structure's name covers all of it. KernelGradientError if one names no floats.
    """
    params = parsed.program.params
    own = [leaf for leaf in parsed.leaves if _is_of_floats(parsed, values, leaf)]
    if wrt is None:
        arrays = [leaf for leaf in own if any(params[i].kind == "lane" for i in leaf.params)]
        return arrays or own
    scalars = (i for i, p in enumerate(params) if p.kind != "array")
    single = (Leaf(params[i].name, i, (), 1, is_complex=False) for i in scalars)
    known = {leaf.name: leaf for leaf in single if _is_of_floats(parsed, values, leaf)}
    known |= {leaf.name: leaf for leaf in own}
    names = _list_names(wrt)
    _refuse_arrays(parsed, names)
    found = [_leaves_named(name, known, own) for name in names]
    unknown = [name for name, leaves in zip(names, found, strict=True) if not leaves]
    if unknown:
        shown = dict.fromkeys([*(leaf.name for leaf in own), *_outside(parsed, known)])
        several = [params[leaf.first].name for leaf in own if leaf.size > 1]
        parts = f", or parts of them, such as {several[0]!r}" if several else ""
        raise KernelGradientError(
            f"{parsed.program.name}: wrt names {', '.join(map(repr, unknown))}, not among the "
            "floats of this call",
            hint=f"name some of {', '.join(map(repr, shown))}{parts}" if shown else "pass floats",
        )
    return list(dict.fromkeys(leaf for leaves in found for leaf in leaves))


def real_leaves(parsed: Parsed, values: Sequence[Any], wrt: Names) -> list[Leaf]:
    """Return `active_leaves` for partials; KernelGradientError for complex inputs and values.

    A complex function has four real partials if it is not holomorphic, and two too many if it is.
    """
    name, leaves = parsed.program.name, active_leaves(parsed, values, wrt)
    for leaf in leaves:
        if leaf.is_complex:
            real, imag = (parsed.program.params[leaf.first + k].name for k in range(2))
            raise KernelGradientError(
                f"{name}: partials with respect to {leaf.name!r}, which is complex, are no numbers",
                hint=f"name its parts, {real!r} and {imag!r}{', and so on' if leaf.core else ''}; "
                "mixad.grad, vjp and jvp take complex numbers",
            )
    if parsed.complex_outputs:
        raise KernelGradientError(
            f"{name}: partials of complex values are no numbers",
            hint="return their parts, z.real and z.imag; mixad.vjp and jvp take complex values",
        )
    return leaves


def _refuse_arrays(parsed: Parsed, names: Sequence[str]) -> None:
    """Refuse arrays that are read by index: an element has no partials with respect to all."""
    for param in parsed.program.params:
        if param.kind == "array" and param.name.partition(".")[0] in names:
            raise KernelGradientError(
                f"{parsed.program.name}: there are no partials with respect to {param.name!r}, an "
                "array that is read by index: each element reads others of it",
                hint="take its gradient with mixad.grad, vjp or jvp, or pass what is read of it",
            )


def _outside(parsed: Parsed, known: dict[str, Leaf]) -> list[str]:
    """Return the known names that belong to no argument."""
    first = parsed.leaves[-1].params.stop if parsed.leaves else 0
    return [name for name, leaf in known.items() if leaf.first >= first]


def _leaves_named(name: str, known: dict[str, Leaf], own: Sequence[Leaf]) -> list[Leaf]:
    """Return the names that a name stands for: itself, or those in a structure."""
    if name in known:
        return [known[name]]
    return [leaf for leaf in own if leaf.name.startswith((f"{name}.", f"{name}["))]


def _is_of_floats(parsed: Parsed, values: Sequence[Any], leaf: Leaf) -> bool:
    params = [(parsed.program.params[i], values[i]) for i in leaf.params]
    return all(p.kind != "array" and _is_float(p.var.type, value) for p, value in params)


def _is_float(kind: ScalarType | ArrayType, value: Any) -> bool:
    """Whether a param can be active: a float, and no whole number taken as one."""
    return isinstance(kind, ScalarType) and kind.is_float and type(value) is not int


def _list_names(wrt: Any) -> list[str]:
    """Return the names in ``wrt``; one stands for itself."""
    names = [wrt] if isinstance(wrt, str) or not isinstance(wrt, Iterable) else list(wrt)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(
            f"wrt must be the name of a parameter or a sequence of names, not {wrt!r}: pass names"
        )
    return names
