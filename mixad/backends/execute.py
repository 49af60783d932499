"""The one door between arrays and kernels: plan once per layout, then launch.

A `Kernel` is what the tape, plain calls and `duals` hold: programs and wanted outputs.  For every
combination of layouts it keeps what could be done once: the plan, the backend and its executable.
Layouts that differ in extents only share an executable.
"""

from __future__ import annotations

import math
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from mixad.backends import registry
from mixad.backends.arrays import (
    describe_array,
    device_key,
    device_name,
    layout_of,
    library_of,
    strides_of,
)
from mixad.backends.checks import (
    check_arguments,
    check_types,
    check_writes,
    one_place,
)
from mixad.backends.faults import PluginCall, watch_launch
from mixad.backends.fifo_cache import FifoCache
from mixad.backends.hookspecs import Capability
from mixad.backends.numbers import ScalarEvaluator, are_numbers, scalar_evaluator
from mixad.backends.out_of_bounds import locate
from mixad.backends.protocols import (
    Backend,
    Bound,
    Boxed,
    Executable,
    LaunchBlock,
    Repeating,
    Stepping,
    SubBoxWrite,
    Tiled,
)
from mixad.backends.slow import warn_if_large
from mixad.config import AUDIT
from mixad.errors import (
    BackendError,
    KernelIndexError,
    KernelShapeError,
    KernelTypeError,
    TracerError,
)
from mixad.fork_locks import lock_of
from mixad.kernel.plan import plan
from mixad.kernel.rolls import Shifts, plan_rolled
from mixad.kernel.spec import KernelSpec, Launch, OutputRequest
from mixad.kernel.tiling import CPU_TILING
from mixad.scalar.ir import Program
from mixad.scalar.simplify import without_sums

if TYPE_CHECKING:
    from mixad.backends.audit import Audit

__all__ = ["InBoxes", "Kernel", "Prepared", "Run", "broadcast_shape", "capability_beside",
           "execute", "kernel_for", "writes_parts"]  # fmt: skip

_MAX_LAUNCHES = 1024
"""Cached combinations of kernels and layouts, of all kernels together."""

_MAX_KERNELS = 1024
"""Cached kernels; the caller of a kernel holds it."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """A backend's executable of a spec: one for all launches, freed with the last of them."""

    backend: Backend
    executable: Executable


Run: TypeAlias = Callable[[Sequence[Any]], tuple[Any, ...]]
"""Launches a kernel on arguments."""


class InBoxes(NamedTuple):
    """Launches of a kernel over boxes of the same arrays: see `Boxed`."""

    backend: Boxed
    boxes: Sequence[tuple[Bound, Sequence[int]]]
    shape: tuple[int, ...]

    def launch(
        self, reads: Sequence[int], writes: Sequence[int], fixed: Mapping[int, Any]
    ) -> Callable[[list[Any]], None] | None:
        """Return a function that launches the kernel on registers."""
        return self.backend.in_boxes(self.boxes, self.shape, reads, writes, fixed)

    def blocks(self) -> tuple[Stepping, tuple[LaunchBlock, ...]] | None:
        """Return the launches as blocks that the backend runs step by step; None if it cannot."""
        if not isinstance(self.backend, Stepping):
            return None
        blocks = [self.backend.block(bound, firsts) for bound, firsts in self.boxes]
        found = tuple([block for block in blocks if block is not None])
        return (self.backend, found) if len(found) == len(blocks) else None


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything about one combination of layouts that does not depend on the data."""

    backend: Backend
    launch: Launch
    compiled: Compiled
    bound: Bound
    run: Run
    audit: Audit | None = None

    def repeated(
        self, reads: Sequence[int], writes: Sequence[int], fixed: Mapping[int, Any]
    ) -> Callable[[list[Any]], None] | None:
        """Return a function that launches on registers, if it saves time: see `Repeating`."""
        if not isinstance(self.backend, Repeating):
            return None
        return self.backend.repeated(self.bound, reads, writes, fixed)

    def blocks(self) -> tuple[Stepping, tuple[LaunchBlock, ...]] | None:
        """Return the launch as a block that its backend runs step by step; None if it cannot."""
        if not isinstance(self.backend, Stepping):
            return None
        found = self.backend.block(self.bound)
        return None if found is None else (self.backend, (found,))


class Kernel:
    """Programs with the same params and the outputs wanted of them, callable on arguments."""

    def __init__(self, passes: tuple[Program, ...], requests: tuple[OutputRequest, ...]) -> None:
        self.passes = passes = _without_sums(passes, requests)
        self.requests = requests
        self._dtypes = _dtypes(passes, requests)
        self._is_array = tuple(p.kind != "uniform" for p in passes[0].params)
        self._starts = tuple([None if r.part is None else r.part.starts for r in requests])
        first = tuple(map(_at_first, requests))
        self._home = None if first == requests else kernel_for(passes, first)
        self._moved: tuple[Prepared, Prepared] | None = None
        self._faults: dict[str, str] = {} if self._home is None else self._home._faults

    @cached_property
    def numbers(self) -> ScalarEvaluator | None:
        """The evaluator of the kernel on single numbers, if it is short and exact."""
        return scalar_evaluator(self.passes, self.requests)

    def __call__(self, arguments: Sequence[Any], backend: str | None = None) -> tuple[Any, ...]:
        """Run the kernel on arguments, one per param, on the best backend or the one that is named.

        KernelTypeError if arrays are of several libraries or devices or do not broadcast,
        BackendError if nothing serves them, KernelIndexError if an element reads outside an array.
        """
        if backend is None and are_numbers(arguments) and self.numbers is not None:
            found = self.numbers(arguments)
            if found is not None:
                return found
        prepared = self.prepare_launch(arguments, backend)
        try:
            results = prepared.run(arguments)
        except IndexError as error:
            if isinstance(error, KernelIndexError):
                raise
            raise self._locate(arguments, backend) or error from None
        except BackendError as fault:
            self._leave(prepared.backend, backend, fault)
            return self(arguments, backend)
        if prepared.audit is not None:
            prepared.audit(arguments, results)
        return results

    def _locate(self, arguments: Sequence[Any], backend: str | None) -> KernelIndexError | None:
        """Return the error that names the first element that reads outside, and its line."""
        shapes = [a.shape if hasattr(a, "shape") else () for a in arguments]
        shape = broadcast_shape(self.passes[0], shapes)
        for at, program in enumerate(self.passes):
            shapes_of = {r.result: r.shape for r in self.requests if r.pass_index == at}
            outputs = tuple(
                OutputRequest(0, i, None if program.accumulator(i) is None else shapes_of[i])
                for i in range(len(program.outputs))
            )
            raises = partial(_reads_outside, kernel_for((program,), outputs), backend)
            if raises(arguments):
                accumulators = [r.shape or () for r in outputs if program.accumulator(r.result)]
                return locate(program, arguments, accumulators, shape, raises)
        return None

    def _key(self, arguments: Sequence[Any], backend: str | None) -> object:
        """Return the key of a launch: backend, and library, device and layout of arrays."""
        key: list[object] = [self, backend, len(self._faults)]
        for a, is_array in zip(arguments, self._is_array, strict=True):
            if type(a) is np.ndarray:  # told in a third of the time
                key += (a.dtype, a.shape, a.strides)
            elif is_array:
                described = describe_array(a)
                if described is None:  # strides first: what is no dense array is refused there
                    device = device_key(getattr(a, "device", None))
                    described = strides_of(a), a.shape, a.dtype, device, a.__class__
                key.append(described)
        return tuple(key)

    def is_compiled(self, arguments: Sequence[Any], backend: str | None = None) -> bool:
        """Whether a call with such arguments finds its kernel compiled, for whatever extents."""
        if self._home is not None:
            return self._home.is_compiled(arguments, backend)
        if _LAUNCHES.get(self._key(arguments, backend)) is not None:
            return True
        chosen, launch = self._plan_launch(arguments, backend)
        return (id(chosen), launch.spec) in _COMPILED

    def prepare_launch(self, arguments: Sequence[Any], backend: str | None = None) -> Prepared:
        """Return plan, backend and executable for the layouts of some arguments."""
        if self._home is not None:
            prepared = self._home.prepare_launch(arguments, backend)
            try:
                return self._move_slices(prepared, arguments)
            except BackendError as fault:
                self._leave(prepared.backend, backend, fault)
                return self.prepare_launch(arguments, backend)
        try:
            key = self._key(arguments, backend)
            found = _LAUNCHES.get(key)
            if found is None:
                found = self._prepare(arguments, backend)
                _LAUNCHES.keep(key, 1, found)
        except (KernelTypeError, TracerError):
            check_arguments(self.passes[0], arguments)
            raise
        return found

    def in_boxes(self, arguments: Sequence[Any], shifts: Sequence[Shifts | None]) -> InBoxes | None:
        """Return what prepares launches on arrays whose elements are rolled by shifts.

        None where arrays are rolled before the launch (see `mixad.kernel.rolls.plan_rolled`), where
        launches are audited, and for backends of plugins.
        """
        indexes = any(p.kind == "array" for p in self.passes[0].params)
        if AUDIT.read() or indexes or any(p.accumulators for p in self.passes):
            return None
        library, device = one_place(self._arrays(arguments))
        chosen = self._choose_backend(library.name, device)
        if registry.plugin_of(chosen.name) is not None or not isinstance(chosen, Boxed):
            return None
        arrays = zip(arguments, self._is_array, strict=True)
        layouts = [layout_of(a) if is_array else None for a, is_array in arrays]
        shape = broadcast_shape(self.passes[0], [() if a is None else a.shape for a in layouts])
        planned = plan_rolled(self.passes, self.requests, layouts, shifts, shape)
        if planned is None:
            return None
        compiled = _compile_spec(chosen, planned[0].launch.spec)
        boxes = [(chosen.bind(compiled.executable, box.launch), box.firsts) for box in planned]
        return InBoxes(chosen, boxes, shape)

    def _move_slices(self, prepared: Prepared, arguments: Sequence[Any]) -> Prepared:
        """Return the launch, with the slices that are wanted here in place of its own."""
        moved = self._moved
        if moved is None or moved[0] is not prepared:
            chosen, launch = prepared.backend, prepared.launch.move_slices(self._starts)
            assert isinstance(chosen, SubBoxWrite)  # or it would not have been planned
            with PluginCall(
                registry.plugin_of(chosen.name), chosen.name, f"at {self.passes[0].name}"
            ):
                bound = chosen.moved(prepared.bound, launch)
            audit = prepared.audit and replace(prepared.audit, requests=self.requests)
            run = self._runner(chosen, launch, bound, arguments)
            moved = prepared, replace(prepared, launch=launch, bound=bound, run=run, audit=audit)
            self._moved = moved
        return moved[1]

    def _prepare(self, arguments: Sequence[Any], backend: str | None) -> Prepared:
        """Plan and compile."""
        chosen, launch = self._plan_launch(arguments, backend)
        plugin = registry.plugin_of(chosen.name)
        try:
            with PluginCall(plugin, chosen.name, f"at the compilation of {self.passes[0].name}"):
                compiled = _compile_spec(chosen, launch.spec)
                bound = chosen.bind(compiled.executable, launch)
        except BackendError as fault:
            self._leave(chosen, backend, fault)
            return self._prepare(arguments, backend)
        run = self._runner(chosen, launch, bound, arguments)
        rate = AUDIT.read()
        if not rate:
            return Prepared(chosen, launch, compiled, bound, run)
        from mixad.backends.audit import Audit

        rerun = partial(_run_and_store, chosen.name)
        audit = Audit(self.passes, self.requests, launch.shape, chosen.name, rate, rerun)
        return Prepared(chosen, launch, compiled, bound, run, audit)

    def _runner(
        self, chosen: Backend, launch: Launch, bound: Bound, arguments: Sequence[Any]
    ) -> Run:
        """Return a function that launches a kernel; launches on a plugin's backend are watched."""
        plugin = registry.plugin_of(chosen.name)
        if plugin is None:
            return partial(chosen.launch, bound)
        return watch_launch(plugin, chosen, launch, bound, *one_place(self._arrays(arguments)))

    def _leave(self, chosen: Backend, backend: str | None, fault: BackendError) -> None:
        """Leave a plugin's backend that failed for another, unless the user named it."""
        if backend is not None or registry.plugin_of(chosen.name) is None:
            raise fault
        self._faults[chosen.name] = str(fault)

    def plan_unfolded(self, arguments: Sequence[Any], backend: str | None = None) -> Launch:
        """Return the launch for the layouts of some arguments on backends that fold no rows."""
        return self._plan_launch(arguments, backend, may_fold=False)[1]

    def _plan_launch(
        self, arguments: Sequence[Any], backend: str | None, *, may_fold: bool = True
    ) -> tuple[Backend, Launch]:
        """Choose the backend and plan the launch."""
        arrays = [
            a if is_array else None for a, is_array in zip(arguments, self._is_array, strict=True)
        ]
        library, device = one_place(self._arrays(arguments))
        layouts = [None if a is None else layout_of(a) for a in arrays]
        check_types(self.passes[0], layouts)
        shape = broadcast_shape(self.passes[0], [() if a is None else a.shape for a in arrays])
        chosen = (
            registry.backend(backend, self._dtypes)
            if backend
            else self._choose_backend(library.name, device)
        )
        can = registry.capability(chosen.name)
        check_writes(chosen.name, can, self.passes, self.requests, self._faults)
        if backend is None and not can.native:
            warn_if_large(math.prod(shape), library.name, device)
        given = self._arrays(arguments)
        launch = plan(
            self.passes,
            self.requests,
            layouts,
            shape,
            can.cache_bytes,
            folds=can.folds and may_fold,
            tiling=chosen.tiling(given[0]) if given and isinstance(chosen, Tiled) else CPU_TILING,
        )
        return chosen, launch

    def _choose_backend(self, array_module: str, device: str) -> Backend:
        """Return the best backend among those that have not failed in this kernel."""
        if not self._faults:
            return registry.resolve(array_module, device, self._dtypes)
        name = self.passes[0].name
        best = registry.default_registry().substitute
        return best(array_module, device, self._dtypes, dict(self._faults), name)

    def _arrays(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the arrays among the arguments."""
        return [a for a, is_array in zip(arguments, self._is_array, strict=True) if is_array]


_LAUNCHES: FifoCache[Prepared] = FifoCache(_MAX_LAUNCHES)
"""Launches by kernel and layouts; the least recently prepared are evicted."""

_COMPILED: weakref.WeakValueDictionary[tuple[int, KernelSpec], Compiled] = (
    weakref.WeakValueDictionary()
)
"""Loaded executables that are still needed, by spec and the id of a backend, which they hold."""


def _compile_spec(backend: Backend, spec: KernelSpec) -> Compiled:
    """Return a backend's executable of a spec; it is compiled only if no launch has it."""
    key = (id(backend), spec)
    found = _COMPILED.get(key)
    if found is None:
        compiled = Compiled(backend, backend.compile(spec))  # not under the lock: it takes long
        with _lock:
            found = _COMPILED.setdefault(key, compiled)
    return found


def _at_first(request: OutputRequest) -> OutputRequest:
    """Return a request with its slice at the array's begin: those that differ share one launch."""
    part = request.part
    if part is None:
        return request
    return replace(request, part=part._replace(starts=(0,) * len(part.starts)))


def _run_and_store(backend: str, program: Program, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Run a program on a backend, without an audit, and store all its outputs."""
    requests = tuple(OutputRequest(0, k) for k in range(len(program.outputs)))
    return kernel_for((program,), requests).prepare_launch(arguments, backend).run(arguments)


def _without_sums(
    passes: tuple[Program, ...], requests: tuple[OutputRequest, ...]
) -> tuple[Program, ...]:
    """Return programs that add only to accumulators which are outputs."""
    wanted = [{r.result for r in requests if r.pass_index == at} for at in range(len(passes))]
    return tuple([without_sums(p, own) for p, own in zip(passes, wanted, strict=True)])


def _reads_outside(kernel: Kernel, backend: str | None, arguments: Sequence[Any]) -> bool:
    """Whether a kernel reads outside an array."""
    prepared = kernel.prepare_launch(arguments, backend)
    try:
        prepared.run(arguments)
    except IndexError:
        return True
    return False


def writes_parts(program: Program, array: Any, backend: str | None = None) -> bool:
    """Whether a program's kernels beside an array write results into slices of larger arrays.

    Other slices are added to such an array, so its library must let it be written to.
    """
    return library_of(array).is_mutable and capability_beside(program, array, backend).writes_parts


def capability_beside(program: Program, array: Any, backend: str | None = None) -> Capability:
    """Return what the backend of a program's kernels beside an array can do."""
    if backend is not None:
        return registry.capability(registry.backend(backend).name)
    dtypes = _dtypes((program,), [OutputRequest(0, k) for k in range(len(program.outputs))])
    chosen = registry.resolve(library_of(array).name, device_name(array), dtypes)
    return registry.capability(chosen.name)


def _dtypes(passes: tuple[Program, ...], requests: Sequence[OutputRequest]) -> frozenset[str]:
    """Return the names of the dtypes that a backend must have: of all arguments and results."""
    arguments = [p.var.type for p in passes[0].params]
    results = [passes[r.pass_index].outputs[r.result].type for r in requests]
    return frozenset(type.dtype_name for type in (*arguments, *results))


def broadcast_shape(program: Program, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape that a program's lanes broadcast to, as NumPy defines it.

    ``shapes`` has one shape per param; only lanes count. KernelShapeError names the arguments that
    do not fit.
    """
    lanes = [
        (p.name, tuple(s)) for p, s in zip(program.params, shapes, strict=True) if p.kind == "lane"
    ]
    distinct = {shape for _, shape in lanes}
    if len(distinct) == 1:
        return distinct.pop()
    extents = [
        {shape[-axis] for _, shape in lanes if len(shape) >= axis and shape[-axis] != 1}
        for axis in range(max((len(shape) for _, shape in lanes), default=0), 0, -1)
    ]
    if any(len(found) > 1 for found in extents):
        listed = ", ".join(f"{name} {shape}" for name, shape in lanes)
        raise KernelShapeError(
            f"{program.name}: the shapes of the arguments do not broadcast: {listed}",
            hint="add axes of extent 1, or reshape, so that axes agree from the last one on",
        )
    return tuple(found.pop() if found else 1 for found in extents)


_KERNELS: OrderedDict[object, Kernel] = OrderedDict()


def kernel_for(passes: tuple[Program, ...], requests: tuple[OutputRequest, ...]) -> Kernel:
    """Return the kernel of these programs and outputs: usually the same object for equal ones.

    Names and lines count, though a program's token has none: errors tell them. The kernels asked
    for least recently are evicted.
    """
    key = (tuple([(p.token, p.origin) for p in passes]), requests)
    with _lock:
        kernel = _KERNELS.pop(key, None) or Kernel(passes, requests)
        _KERNELS[key] = kernel
        if len(_KERNELS) > _MAX_KERNELS:
            _KERNELS.popitem(last=False)
    return kernel


_lock = lock_of(sys.modules[__name__], "_lock", threading.RLock)
"""Held for moments, to change which kernels are cached and what they cache.

Reentrant, because a signal's handler or a ``__del__`` may run a kernel wherever it interrupts.
"""


def execute(
    passes: tuple[Program, ...],
    requests: tuple[OutputRequest, ...],
    arguments: Sequence[Any],
    backend: str | None = None,
) -> tuple[Any, ...]:
    """Run programs over broadcast arguments."""
    return kernel_for(passes, requests)(arguments, backend)
