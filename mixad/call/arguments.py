"""Arguments of a call, flattened to arrays and numbers, and results made of outputs.

The types of the arguments tell what each call needs; most calls need nothing of this.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mixad import pytree
from mixad.backends.arrays import NUMPY, Library, own_library
from mixad.backends.execute import Kernel, kernel_for
from mixad.errors import KernelTypeError
from mixad.kernel.spec import OutputRequest
from mixad.scalar.core_dimensions import MAX_ELEMENTS, Core, Signature
from mixad.scalar.ir import Program
from mixad.scalar.parse import PYTHON_SCALARS, Returned
from mixad.scalar.parse.compound import suffixes
from mixad.scalar.parse.fields import is_record_class
from mixad.scalar.parse.values.record import distinguish
from mixad.scalar.types import I64
from mixad.tape.core_axes import split_core_axes, stack_core_axes
from mixad.tape.tracer import Tracer

__all__ = ["Form", "array_of_numbers", "elements_of", "forms_of", "is_structured", "made_of_wholes",
           "make_result", "output_cores", "places_along", "stored_whole"]  # fmt: skip

_SIMPLE = frozenset({np.ndarray, *PYTHON_SCALARS})
"""Types of most arguments, which are no structures."""


class Form(NamedTuple):
    """How an argument is made of arrays and numbers.

    A structure with a `core` and more than a leaf stands for an array that is taken apart, or, if
    it `holds_arrays`, is made of such arrays.
    """

    structure: pytree.Structure
    core: tuple[int, ...] = ()  # last axes of an array that is taken apart
    known: Hashable = ()  # static fields, equal ones told apart by type
    batch: int | None = None  # axes before the core of an array read by index, or None
    holds_arrays: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it is one array that is taken apart."""
        return bool(self.core) and self.structure.kind is None

    @property
    def leaf_count(self) -> int:
        """How many arrays and numbers it is made of."""
        return _count(self.structure)


_LEAF = Form(pytree.LEAF)


def is_structured(values: Sequence[Any]) -> bool:
    """Whether one of the arguments of a call is a structure."""
    return not _SIMPLE.issuperset(map(type, values)) and any(map(_is_node, map(type, values)))


@lru_cache(maxsize=256)
def _is_node(kind: type) -> bool:
    """Whether a type is that of structures; a tuple is one inside of another only."""
    return kind is type(None) or is_record_class(kind)


def array_of_numbers(what: str, value: list[Any] | tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """Return nested lists and tuples of numbers as the array that NumPy makes of them.

    KernelTypeError if they hold anything else, or rows of several lengths.
    """
    for leaf in pytree.leaves(value):
        if type(leaf) not in PYTHON_SCALARS and not isinstance(leaf, np.generic):
            kind = "traced value" if isinstance(leaf, Tracer) else type(leaf).__name__
            raise KernelTypeError(
                f"{what} is a {type(value).__name__} that holds a {kind}; one of numbers stands "
                "for an array",
                hint="stack what it holds, as np.stack and torch.stack do, and pass that",
            )
    try:
        return np.asarray(value)
    except ValueError:
        raise KernelTypeError(
            f"{what} is a {type(value).__name__} with rows of several lengths",
            hint="pass rows of one length",
        ) from None


def forms_of(
    name: str,
    parameters: Sequence[str],
    values: Sequence[Any],
    signature: Signature | None,
    *,
    takes_tuples: bool = False,
) -> tuple[tuple[Any, ...], tuple[Form, ...], dict[str, int]]:
    """Flatten arguments to arrays and numbers; return these, forms, and the lengths of named cores.

    A tuple is a structure inside of another, or where the function ``takes_tuples``.
    KernelTypeError if one does not fit the signature, or has parts that a function cannot take.
    """
    lengths: dict[str, int] = {}
    leaves: list[Any] = []
    forms: list[Form] = []
    inputs = ((),) * len(values) if signature is None else signature.inputs
    for parameter, value, core in zip(parameters, values, inputs, strict=True):
        what = f"{name}: argument {parameter!r}"
        if core and takes_tuples and isinstance(value, tuple):
            own = [_of_core(what, each, core, lengths, leaves) for each in value]
            form = Form(pytree.flatten(value)[1], own[0].core, holds_arrays=True)
            forms.append(form)
        elif core:
            forms.append(_of_core(what, value, core, lengths, leaves))
        else:
            kind: Any = type(value)
            is_node = _is_node(kind) or (takes_tuples and kind is tuple)
            forms.append(_of_structure(what, parameter, value, leaves) if is_node else _LEAF)
            leaves += [] if is_node else [value]
    while (longest := _longest(forms)) is not None:
        core, value = inputs[longest], values[longest]
        if isinstance(value, (list, tuple)):
            raise KernelTypeError(
                f"{name}: argument {parameters[longest]!r} is a sequence that is too long: the "
                f"cores of all arguments have more than {MAX_ELEMENTS} elements",
                hint="pass an array: a long one is read by index",
            )
        batch = len(value.shape) - len(core)
        # How long it is does not matter to what is compiled.
        forms[longest] = Form(pytree.LEAF, batch=batch)
    return tuple(leaves), tuple(forms), lengths


def _longest(forms: Sequence[Form]) -> int | None:
    """Return the argument with the most elements, if all have more than make variables."""
    sizes = [math.prod(form.core) if form.core else 0 for form in forms]
    return sizes.index(max(sizes)) if sum(sizes) > MAX_ELEMENTS else None


def _of_core(what: str, value: Any, core: Core, lengths: dict[str, int], leaves: list[Any]) -> Form:
    """Record an argument that is taken apart; sequences stand for arrays."""
    if isinstance(value, (list, tuple)):
        found, structure = pytree.flatten(value)
        shape = _lengths_of(what, structure, core)
        leaves += found
    else:
        structure = pytree.LEAF
        shape = tuple(getattr(value, "shape", ()))
        leaves.append(value)
    if len(shape) < len(core):
        raise KernelTypeError(
            f"{what} has shape {shape}, the signature takes its last "
            f"{'axis' if len(core) == 1 else f'{len(core)} axes'} as {_core_text(core)}",
            hint="pass an array with these axes, or a sequence of numbers",
        )
    last = shape[len(shape) - len(core) :]
    for length, given in zip(last, core, strict=True):
        expected = lengths.setdefault(given, length) if isinstance(given, str) else given
        if length != expected:
            named = f", where {given} is {expected}" if isinstance(given, str) else ""
            raise KernelTypeError(
                f"{what} has shape {shape}, the signature takes its last "
                f"{'axis' if len(core) == 1 else f'{len(core)} axes'} as {_core_text(core)}{named}",
                hint="pass an array whose last axes fit",
            )
    return Form(structure, last)


def _lengths_of(
    what: str, structure: pytree.Structure, core: Core, axis: int = 0
) -> tuple[int, ...]:
    """Return the shape of nested sequences from an axis on, as deep as the core."""
    is_axis = axis < len(core)
    if not is_axis or structure.kind not in (list, tuple):
        if is_axis or structure.kind is not None:
            raise KernelTypeError(
                f"{what}: a sequence stands for an array of the core {_core_text(core)}",
                hint="pass an array, or one sequence in another for each of its axes",
            )
        return ()
    inner = {_lengths_of(what, child, core, axis + 1) for child in structure.children}
    if len(inner) != 1:
        raise KernelTypeError(f"{what}: rows of several lengths", hint="pass rows of one length")
    return (len(structure.children), *inner.pop())


def _core_text(core: Core) -> str:
    return f"({','.join(map(str, core))})"


def _of_structure(what: str, parameter: str, value: Any, leaves: list[Any]) -> Form:
    found, structure = pytree.flatten(value)
    _check_kinds(what, parameter, structure)
    try:
        hash(structure)
    except TypeError as error:
        raise KernelTypeError(
            f"{what}: a static field belongs to the compiled function: {error}",
            hint="a number, text or a tuple in its place",
        ) from None
    leaves += found
    return Form(structure, (), tuple(_static_key(structure)))


def _check_kinds(what: str, spelled: str, structure: pytree.Structure) -> None:
    kind: Any = structure.kind
    if kind is None or kind is type(None):
        return
    if kind is not tuple and not _is_node(kind):
        raise KernelTypeError(
            f"{what} holds a {kind.__name__}, {spelled}: a kernel takes tuples, named tuples and "
            "dataclasses of arrays and numbers",
            hint="a named tuple or a dataclass in its place",
        )
    for suffix, child in zip(suffixes(structure), structure.children, strict=True):
        _check_kinds(what, spelled + suffix, child)


def _static_key(structure: pytree.Structure) -> list[Hashable]:
    """Return a key that distinguishes equal static fields of other types."""
    own: list[Hashable] = []
    if structure.kind is not None and dataclasses.is_dataclass(structure.kind):
        own += distinguish(structure.static[1])
    return own + [k for child in structure.children for k in _static_key(child)]


def elements_of(leaves: Sequence[Any], forms: Sequence[Form]) -> tuple[Any, ...]:
    """Return the values of a program's params from arrays and numbers."""
    found: list[Any] = []
    left = iter(leaves)
    for form in forms:
        if form.is_whole or form.holds_arrays:
            for _ in range(form.leaf_count):
                found += split_core_axes(next(left), form.core)
        elif form.batch is not None:
            array = next(left)
            found += [array, *_positions(array, form.batch)]
        else:
            found += [next(left) for _ in range(form.leaf_count)]
    return tuple(found)


def _positions(array: Any, batch: int) -> list[Any]:
    """Return, for each of the first ``batch`` axes of an array, broadcasting indices along it.

    An array that each element has one of is read at the element's place.
    """
    if isinstance(array, Tracer):
        library, where = array.kind.library, array.device
    else:
        library, where = own_library(array), getattr(array, "device", None)
    return places_along(array.shape[:batch], library, where)


def places_along(extents: Sequence[int], library: Library, device: Any) -> list[Any]:
    """Return the numbers of the places along some axes, as arrays that broadcast to all of them."""
    count = len(extents)
    arrays = [_numbers(n, count - axis - 1) for axis, n in enumerate(extents)]
    return arrays if library is NUMPY else [library.asarray(a, I64, device) for a in arrays]


def _numbers(extent: int, after: int) -> np.ndarray[Any, Any]:
    known = _known_numbers if extent <= _REMEMBERED else _known_numbers.__wrapped__
    return known(extent, after)


@lru_cache(maxsize=64)
def _known_numbers(extent: int, after: int) -> np.ndarray[Any, Any]:
    return np.arange(extent, dtype=np.int64).reshape(extent, *[1] * after)


_REMEMBERED = 1 << 14
"""Places of an axis whose numbers are cached."""


def _count(structure: pytree.Structure) -> int:
    if structure.kind is None:
        return 1
    return sum(map(_count, structure.children))


def output_cores(
    signature: Signature | None, lengths: dict[str, int]
) -> tuple[tuple[int, ...], ...] | None:
    """Return the lengths of the last axes of each result; None without a signature."""
    if signature is None:
        return None
    return tuple(
        tuple(lengths[d] if isinstance(d, str) else d for d in core) for core in signature.outputs
    )


def stored_whole(program: Program, returned: Returned | None) -> Kernel | None:
    """Return the kernel that stores the elements of each array of a result side by side.

    None if there are no such arrays; see `OutputRequest.beside`.
    """
    if returned is None or not any(returned.cores):
        return None
    places = [(0, k) for k in range(len(program.outputs))]
    taken = [found for _, found in returned.pair_outputs(places)]
    requests = [OutputRequest(0, p[0][1], beside=tuple(p[1:])) for p in taken]
    return kernel_for((program,), tuple(requests))


def made_of_wholes(returned: Returned, arrays: Sequence[Any]) -> Any:
    """Return the function's result from the outputs of `stored_whole`."""
    pairs = zip(arrays, returned.cores, strict=True)
    return pytree.unflatten(returned.structure, [_in_core(a, core) for a, core in pairs])


def _in_core(array: Any, core: tuple[int, ...]) -> Any:
    """Return an array with a core's axes in place of its last; a core of one element has none."""
    count = math.prod(core)
    if not core or (len(core) == 1 and count > 1):
        return array
    around = array.shape[:-1] if count > 1 else array.shape
    return own_library(array).xp.reshape(array, (*around, *core))


def make_result(returned: Returned, outputs: Sequence[Any]) -> Any:
    """Return the function's result from the outputs of its program."""
    return pytree.unflatten(
        returned.structure,
        [stack_core_axes(o, core) if core else o[0] for core, o in returned.pair_outputs(outputs)],
    )
