"""Runs the procedures of `mixad.emit.arrays` with the functions of an array-API namespace."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, get_args

import array_api_compat
import numpy as np

from mixad.emit.arrays import ArrayStep, Assign, Literal, Node, Procedure, Repeat, Scatter, TypeName
from mixad.errors import BackendError
from mixad.scalar.dtypes import array_dtype
from mixad.scalar.expression import Name, Number
from mixad.scalar.interpret import apply
from mixad.scalar.ir import UpdateKind
from mixad.scalar.types import ScalarType
from mixad.scalar.updates import OPS

__all__ = ["in_memory", "run_procedure", "sum_by_halves"]

Array: TypeAlias = Any
Namespace: TypeAlias = Any


def in_memory(array: Array, type: ScalarType, xp: Namespace) -> Array:
    """Return a result in the type in which it is stored: rounded if that has 16 bits."""
    if not type.is_narrow:
        return array
    with np.errstate(all="ignore"):
        return xp.astype(array, array_dtype(xp, type))


def run_procedure(
    procedure: Procedure,
    kinds: Sequence[tuple[str, ScalarType]],
    arguments: Sequence[Any],
    shape: tuple[int, ...],
    xp: Namespace,
) -> tuple[Array, ...]:
    """Run a procedure on every element of broadcast arrays; return new arrays of ``shape``.

    16-bit types are computed and returned in float32 (`in_memory` rounds them). ``kinds`` are of
    params, then accumulators, which may change in place. IndexError if an active lane's index is
    outside; BackendError if only the host could evaluate an op and does not have the arrays.
    """
    arrays = [a for a, (kind, _) in zip(arguments, kinds, strict=True) if kind != "uniform"]
    device = array_api_compat.device(arrays[0]) if arrays else None
    named = zip(procedure.params, kinds, strict=True)
    updates = {name: kind for name, (kind, _) in named if kind in get_args(UpdateKind)}
    run = _Run(xp, device, shape, {}, updates)
    with np.errstate(all="ignore"):
        for name, argument, (kind, type) in zip(procedure.params, arguments, kinds, strict=True):
            run.values[name] = run.argument(argument, kind, type)
        run.steps(procedure.steps)
        return tuple(
            run.values[result.name]
            if isinstance(result, Name) and result.name in updates
            else run.output(result)
            for result in procedure.results
        )


@dataclass(frozen=True)
class _Run:
    """One execution: ``values`` are arrays by name, which broadcast to ``shape``.

    Those among ``updates`` are accumulators instead.
    """

    xp: Namespace
    device: Any
    shape: tuple[int, ...]
    values: dict[str, Array]
    updates: Mapping[str, str]

    def steps(self, steps: Sequence[ArrayStep]) -> None:
        for step in steps:
            match step:
                case Assign():
                    values = [self.value(v) for v in step.values]
                    self.values.update(zip(step.targets, values, strict=True))
                case Repeat():
                    self.repeat(step)
                case Scatter():
                    self.scatter(step)

    def repeat(self, step: Repeat) -> None:
        while True:
            self.steps(step.test)
            active = self.values[step.mask] & self.value(step.condition)
            if not bool(self.xp.any(active)):
                return
            self.values[step.mask] = active
            self.steps(step.body)

    def output(self, result: Node) -> Array:
        broadcast = self.xp.broadcast_to(self.xp.asarray(self.value(result)), self.shape)
        return self.xp.asarray(broadcast, copy=True)

    def argument(self, given: Any, kind: str, type: ScalarType) -> Array:
        """Return an argument in the type in which it is computed."""
        if kind in get_args(UpdateKind):
            return given
        value = self.constant(given, type) if kind == "uniform" else given
        return self.xp.astype(value, self.dtype(type.arithmetic)) if type.is_narrow else value

    # -- expressions -----------------------------------------------------------------------------

    def value(self, node: Node) -> Array:
        match node:
            case Name():
                return self.values[node.name]
            case Literal():
                return self.constant(node.value, node.type)
            case Number() | TypeName():
                raise TypeError(f"{node} stands beside no value")
        special = _SPECIAL.get(node.function)
        if special is not None:
            return special(self, node.args)
        function = _OPERATORS.get(node.function) or getattr(self.xp, node.function)
        return function(*self.operands(node.function, node.args))

    def operands(self, function: str, nodes: Sequence[Node]) -> list[Array]:
        """Return arguments; numbers take the dtype of the last argument that is a value."""
        values = [None if isinstance(n, Number) else self.value(n) for n in nodes]
        typed = [v for v in (values[1:] if function == "where" else values) if v is not None]

        def literal(value: float) -> Array:
            return self.xp.asarray(value, dtype=typed[-1].dtype, device=self.device)

        pairs = zip(nodes, values, strict=True)
        return [literal(n.value) if isinstance(n, Number) else v for n, v in pairs]

    def constant(self, value: Any, type: ScalarType) -> Array:
        plain = value.item() if isinstance(value, np.generic) else value
        return self.xp.asarray(plain, dtype=self.dtype(type), device=self.device)

    def dtype(self, type: ScalarType) -> Any:
        return array_dtype(self.xp, type)

    def numpy(self, array: Array) -> np.ndarray[Any, Any]:
        """Return an array of the host's memory as a NumPy array, without copying."""
        if isinstance(array, (np.ndarray, np.generic)):
            return np.asarray(array)
        try:
            return np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise BackendError(
                f"an op of this program has no array-API function and needs arrays in the host's "
                f"memory, not on {self.device}: install the plugin for this array library"
            ) from error

    # -- functions that no namespace has ---------------------------------------------------------

    def convert(self, nodes: Sequence[Node]) -> Array:
        x, type = self.value(nodes[0]), _type(nodes[1])
        if type.is_bool:
            return x != self.xp.zeros_like(x)
        if type.is_integer and self.xp.isdtype(x.dtype, "real floating"):
            return self.saturate(x, type)
        return self.xp.astype(x, self.dtype(type))

    def saturate(self, x: Array, type: ScalarType) -> Array:
        """Convert floats to integers towards zero, clamped to the range, nan to 0."""
        limits = np.iinfo(type.dtype)
        low, beyond = float(limits.min), float(limits.max // 2 + 1) * 2.0
        inside = (x >= low) & (x < beyond)
        whole = self.xp.astype(self.xp.where(inside, x, self.xp.zeros_like(x)), self.dtype(type))
        whole = self.xp.where(x >= beyond, self.constant(int(limits.max), type), whole)
        return self.xp.where(x < low, self.constant(int(limits.min), type), whole)

    def bitcast(self, nodes: Sequence[Node]) -> Array:
        x, dtype = self.value(nodes[0]), self.dtype(_type(nodes[1]))
        if hasattr(x, "view"):
            return x.view(dtype)
        return self.xp.asarray(self.numpy(x).view(_type(nodes[1]).dtype), device=self.device)

    def by_definition(self, nodes: Sequence[Node]) -> Array:
        """Apply the interpreter's definition of an op, one element at a time."""
        name, *args, result = nodes
        assert isinstance(name, Name)
        type = _type(result)
        arrays = np.broadcast_arrays(*(self.numpy(self.value(a)) for a in args))
        out = np.empty(arrays[0].shape, type.dtype)
        for at in np.ndindex(out.shape):
            out[at] = apply(name.name, tuple(a[at] for a in arrays), type)
        return self.xp.asarray(out, device=self.device)

    # -- arrays that the program indexes ---------------------------------------------------------

    def positions(self, array: Array, mask: Array, indices: Sequence[Node]) -> Array:
        """Return flat positions, 0 for lanes that are switched off."""
        xp = self.xp
        flat = xp.asarray(0, dtype=xp.int64, device=self.device)
        for index, extent in zip(map(self.value, indices), array.shape, strict=True):
            index = self.from_start(xp.asarray(index), extent)
            if bool(xp.any(mask & ((index < 0) | (index >= extent)))):
                raise IndexError(f"an index is outside an axis of {extent} elements")
            flat = flat * extent + index
        return xp.where(mask, flat, xp.zeros_like(flat))

    def from_start(self, index: Array, extent: int) -> Array:
        """Return indices as signed ones from 0 on; negative ones count from the end."""
        xp = self.xp
        if xp.isdtype(index.dtype, "unsigned integer"):
            beyond = xp.full_like(index, min(extent, int(xp.iinfo(index.dtype).max)))
            return xp.astype(xp.where(index < beyond, index, beyond), xp.int64)
        index = xp.astype(index, xp.int64)
        return xp.where(index < 0, index + extent, index)

    def gather(self, nodes: Sequence[Node]) -> Array:
        xp = self.xp
        array, mask = self.value(nodes[0]), self.value(nodes[1])
        flat = self.positions(array, mask, nodes[2:])
        if 0 in array.shape:
            return xp.zeros(flat.shape, dtype=array.dtype, device=self.device)
        taken = xp.take(xp.reshape(array, (-1,)), xp.reshape(flat, (-1,)), axis=0)
        return xp.reshape(taken, flat.shape)

    def scatter(self, step: Scatter) -> None:
        array, xp = self.values[step.array], self.xp
        mask = xp.broadcast_to(self.values[step.mask], self.shape)
        at = xp.broadcast_to(self.positions(array, mask, step.indices), self.shape)
        value = xp.broadcast_to(self.value(step.value), self.shape)
        on = xp.reshape(mask, (-1,))
        flat, at, value = (xp.reshape(a, (-1,)) for a in (array, at, value))
        changed = self.change_elements(flat, self.updates[step.array], at[on], value[on])
        self.values[step.array] = xp.reshape(changed, array.shape)

    def change_elements(self, array: Array, update: str, at: Array, values: Array) -> Array:
        """Change elements at positions, repeated ones included, as the library does."""
        if isinstance(array, np.ndarray):
            _change(np, array, update, at, values)
            return array
        if hasattr(array, "index_put_"):  # torch
            if update in ("add", "write"):
                return array.index_put_((at,), values, accumulate=update == "add")
            return array.scatter_reduce_(0, at, values, f"a{update}")
        if hasattr(array, "at"):  # JAX
            return getattr(array.at[at], _JAX_UPDATES[update])(values)
        if hasattr(getattr(self.xp, "add", None), "at"):  # CuPy
            _change(self.xp, array, update, at, values)
            return array
        found = self.numpy(array).copy()
        _change(np, found, update, self.numpy(at), self.numpy(values))
        return self.xp.asarray(found, device=self.device)


_JAX_UPDATES = {"add": "add", "min": "min", "max": "max", "write": "set"}


def _change(xp: Namespace, array: Array, update: str, at: Array, values: Array) -> None:
    """Change elements of an array of NumPy's or CuPy's in place."""
    if update == "write":
        array[at] = values
    else:
        getattr(xp, OPS[update]).at(array, at, values)


def _type(node: Node) -> ScalarType:
    assert isinstance(node, TypeName)
    return node.type


_OPERATORS: Mapping[str, Callable[..., Array]] = MappingProxyType({
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "not": operator.invert,
    "shl": operator.lshift, "shr": operator.rshift, "neg": operator.neg,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne,
})  # fmt: skip

_SPECIAL: Mapping[str, Callable[[_Run, Sequence[Node]], Array]] = MappingProxyType({
    "convert": _Run.convert, "bitcast": _Run.bitcast, "by_definition": _Run.by_definition,
    "gather": _Run.gather,
})  # fmt: skip


# -- sums ------------------------------------------------------------------------------------------


def sum_by_halves(array: Array, shape: tuple[int, ...], xp: Namespace) -> Array:
    """Sum an array over the axes that a shape lacks or has with extent 1, by halves.

    A binary tree of the shapes alone gives the same bits in every library, with an error that grows
    with the extent's logarithm. Sums stay in the array's dtype; kernels sum float32 in float64.

    >>> import numpy as np
    >>> sum_by_halves(np.ones((2, 3)), (3,), np)
    array([2., 2., 2.])
    """
    lead = array.ndim - len(shape)
    summed = [
        axis
        for axis, extent in enumerate(array.shape)
        if axis < lead or (shape[axis - lead] == 1 and extent != 1)
    ]
    kept = [axis for axis in range(array.ndim) if axis not in summed]
    count = int(np.prod([array.shape[axis] for axis in summed], dtype=np.int64))
    rows = xp.reshape(
        xp.permute_dims(array, (*summed, *kept)), (count, *(array.shape[axis] for axis in kept))
    )
    return xp.reshape(_sum_of_rows(rows, xp), shape)


def _sum_of_rows(rows: Array, xp: Namespace) -> Array:
    if rows.shape[0] == 0:
        return xp.zeros(rows.shape[1:], dtype=rows.dtype, device=array_api_compat.device(rows))
    while rows.shape[0] > 1:
        half = rows.shape[0] // 2
        with np.errstate(all="ignore"):
            halved = rows[:half, ...] + rows[half : 2 * half, ...]
        rows = xp.concat([halved, rows[2 * half :, ...]], axis=0)
    return rows[0, ...]
