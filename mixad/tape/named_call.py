"""Calls of kernels under names, and their pullbacks and pushforwards, of any order.

This is what other systems of derivatives record: a name goes into their graphs, in place of a
program, and the name of a derivative tells how it is made of the name of the call.  So a graph that
has been kept by such a system needs the program of the call it began with, and nothing else.

The pullback of a call does not read all that the call reads, so shapes are given with each launch.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from mixad.backends.arrays import library_of
from mixad.backends.execute import Kernel, broadcast_shape, kernel_for
from mixad.errors import BackendError
from mixad.kernel.options import KernelOptions, Mode
from mixad.kernel.spec import OutputRequest
from mixad.scalar.dual import MAX_PARTIALS, even_chunks
from mixad.scalar.ir import Program
from mixad.scalar.pushforward import pushforward_along
from mixad.scalar.simplify import read_params, without_dead_code
from mixad.tape.pullback_plan import PullbackPlan, plan_pullback

__all__ = ["NamedCall", "NamedPullback", "Pushed", "name_call", "named_call"]

Shape: TypeAlias = tuple[int, ...]

_MAX_SUMS = 256
"""Combinations of output shapes for which a call remembers kernels."""


@dataclass(frozen=True, eq=False)
class NamedCall:
    """A program at every element of broadcast arguments, under a name."""

    name: str  # the same for equal programs and options, in every process
    program: Program  # of one pass
    options: KernelOptions
    _pulled: dict[tuple[tuple[int, ...], tuple[int, ...]], NamedPullback] = field(
        default_factory=dict, repr=False
    )
    _pushed: dict[tuple[int, ...], Pushed] = field(default_factory=dict, repr=False)
    _kernels: dict[tuple[Shape | None, ...], Kernel] = field(default_factory=dict, repr=False)

    def chunks(self, wrt: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Return the params `wrt` in chunks such that the pullback to each is one pass."""
        if len(wrt) > self._limit and len(self._planned(wrt).passes) < 2:
            return (wrt,)
        return tuple(tuple(wrt[k] for k in slots) for slots in even_chunks(len(wrt), self._limit))

    @property
    def _limit(self) -> int:
        return self.options.chunk or MAX_PARTIALS

    def _planned(self, wrt: tuple[int, ...]) -> PullbackPlan:
        """Return how gradients are computed where every output has a cotangent."""
        return plan_pullback(self.program, wrt, self.floats, self.options.mode)

    def _mode(self, wrt: tuple[int, ...]) -> Mode:
        """Return the strategy that a chunk was made for, whichever outputs have a cotangent.

        Another one may pay for some outputs alone, but perhaps in more than one pass, or reading
        what was not retained.
        """
        mode = self.options.mode
        if len(wrt) <= self._limit:
            return mode
        return mode._replace(strategy=self._planned(wrt).strategy)

    @cached_property
    def floats(self) -> tuple[int, ...]:
        """The outputs that are floats: those that have cotangents."""
        return tuple(k for k, out in enumerate(self.program.outputs) if out.type.is_float)

    @cached_property
    def is_array(self) -> tuple[bool, ...]:
        """For each param, whether its argument is an array; else it is a number."""
        return tuple(param.kind != "uniform" for param in self.program.params)

    def launch(
        self, arguments: Sequence[Any], shape: Shape | None = None, shapes: tuple[Shape, ...] = ()
    ) -> tuple[Any, ...]:
        """Run the kernel; return the outputs. A uniform param takes a number.

        `shape` is the broadcast shape if arguments that are not read may be larger than these; then
        `shapes` has for each output what it is summed to.
        """
        if shape is None:
            return self._storing(arguments, self.options.backend)
        kernel = self._kernel(tuple([None if s == shape else s for s in shapes]))
        if broadcast_shape(self.program, [getattr(a, "shape", ()) for a in arguments]) != shape:
            arguments = self._filled(arguments, shape)
        return kernel(arguments, self.options.backend)

    @cached_property
    def _storing(self) -> Kernel:
        """What stores every output."""
        return self._kernel((None,) * len(self.program.outputs))

    def _kernel(self, sums: tuple[Shape | None, ...]) -> Kernel:
        """Return what sums outputs to some shapes."""
        found = self._kernels.get(sums)
        if found is None:
            if len(self._kernels) >= _MAX_SUMS:
                self._kernels.clear()
            requests = tuple(OutputRequest(0, k, shape) for k, shape in enumerate(sums))
            found = self._kernels[sums] = kernel_for((self.program,), requests)
        return found

    def _filled(self, arguments: Sequence[Any], shape: Shape) -> list[Any]:
        """Return the arguments, with a lane broadcast to a shape that no lane has."""
        lane = next(k for k, p in enumerate(self.program.params) if p.kind == "lane")
        xp = library_of(arguments[lane]).xp
        seen = xp.broadcast_to(arguments[lane], shape)
        return [*arguments[:lane], seen, *arguments[lane + 1 :]]

    def pullback(self, wrt: tuple[int, ...], cotangents: tuple[int, ...]) -> NamedPullback:
        """Return the call that computes gradients; the same object each time.

        `wrt` is one of `chunks`; `cotangents` are the outputs that have one. KernelGradientError if
        an op has no derivative.
        """
        key = wrt, cotangents
        if key not in self._pulled:
            self._pulled[key] = self._pullback(wrt, cotangents)
        return self._pulled[key]

    def _pullback(self, wrt: tuple[int, ...], cotangents: tuple[int, ...]) -> NamedPullback:
        plan = plan_pullback(self.program, wrt, cotangents, self._mode(wrt))
        assert len(plan.passes) < 2, wrt  # `wrt` is one of `chunks`
        gradients = tuple(None if place is None else place[1] for place in plan.gradients)
        if not plan.passes:
            return NamedPullback(None, (), gradients)
        name = f"{self.name}/{_listed(wrt)}:{_listed(cotangents)}"
        call = _CALLS.setdefault(name, NamedCall(name, plan.passes[0], self.options))
        return NamedPullback(call, plan.kept, gradients)

    def pushforward(self, wrt: tuple[int, ...]) -> Pushed:
        """Return the call that computes tangents of outputs; the same object each time.

        ``wrt`` are the params that have one: floats, and arrays of these.
        """
        if wrt not in self._pushed:
            self._pushed[wrt] = self._pushforward(wrt)
        return self._pushed[wrt]

    def _pushforward(self, wrt: tuple[int, ...]) -> Pushed:
        dual = pushforward_along(self.program, (wrt,))
        places = [chunk.partials.get(0) for chunk in dual.outputs]
        positions = iter(range(len(places)))
        tangents = tuple(None if place is None else next(positions) for place in places)
        results = tuple(dual.program.outputs[place] for place in places if place is not None)
        if not results:
            return Pushed(None, (), tangents)
        body = replace(dual.program.body, results=results)
        program = without_dead_code(replace(dual.program, body=body))
        kept = read_params(program)
        program = replace(program, params=tuple(program.params[i] for i in kept))
        name = f"{self.name}>{_listed(wrt)}"
        return Pushed(
            _CALLS.setdefault(name, NamedCall(name, program, self.options)), kept, tangents
        )


@dataclass(frozen=True)
class NamedPullback:
    """How gradients of a call are computed."""

    call: NamedCall | None  # each output is to be summed to a shape; None if all gradients are zero
    kept: tuple[int, ...]  # which arguments and, after those, cotangents it takes
    gradients: tuple[int | None, ...]  # by param: the output that is its gradient; None if zero


@dataclass(frozen=True)
class Pushed:
    """How tangents of a call's outputs are computed."""

    call: NamedCall | None  # None where all are zero
    kept: tuple[int, ...]  # what it takes of the arguments and, after those, of the tangents
    # By output: the output of the call that is its tangent, or None for zero.
    tangents: tuple[int | None, ...]


_CALLS: dict[str, NamedCall] = {}
"""All calls that have been named: graphs that others retain may ask for any."""


@lru_cache(maxsize=1024)
def _named(program: Program, origin: str, options: KernelOptions) -> NamedCall:
    digest = hashlib.sha256(f"{program.token} {origin} {options}".encode()).hexdigest()
    name = f"{program.name} {digest[:32]}"
    return _CALLS.setdefault(name, NamedCall(name, program, options))


def name_call(program: Program, options: KernelOptions) -> NamedCall:
    """Return the call of a program that stores every output: the same object for equal ones."""
    return _named(program, program.origin, options)


def named_call(name: str) -> NamedCall:
    """Return the call of a name.

    BackendError if this process has not called the function that the name begins with.
    """
    found = _CALLS.get(name)
    if found is None:
        made = _DERIVATIVE.fullmatch(name)
        if made is None:
            raise BackendError(
                f"a graph calls the kernel {name!r}, which was recorded in another process: "
                "record the graph again"
            )
        parent, wrt = named_call(made["parent"]), _numbers(made["wrt"])
        if made["cotangents"] is None:
            found = parent.pushforward(wrt).call
        else:
            found = parent.pullback(wrt, _numbers(made["cotangents"])).call
        assert found is not None, name  # one without gradients has no name
    return found


_DERIVATIVE = re.compile(r"(?P<parent>.+)[/>](?P<wrt>[0-9,]+)(:(?P<cotangents>[0-9,]+))?")
"""The name of a pullback, ``parent/wrt:cotangents``, or of a pushforward, ``parent>wrt``."""


def _numbers(listed: str) -> tuple[int, ...]:
    return tuple(map(int, listed.split(",")))


def _listed(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))
