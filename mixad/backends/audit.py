"""An audit of kernels in use: some elements of each launch are computed again by the interpreter.

Which ones depends on the kernel and on how often it has been launched, on nothing else.  Results
that are stored are compared themselves; of a sum, the backend stores what the sampled elements
contribute, and that is compared.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import array_api_compat
import numpy as np

from mixad.backends.arrays import device_name, library_of
from mixad.errors import AuditError, format_at
from mixad.kernel.spec import OutputRequest
from mixad.scalar.dtypes import scalar_type_of
from mixad.scalar.expected import agrees, known_results
from mixad.scalar.interpret import IterationLimitError
from mixad.scalar.ir import Atom, Line, Program, written_vars
from mixad.scalar.narrow import from_memory, round_to_type
from mixad.scalar.simplify import without_sums
from mixad.scalar.types import ScalarType

__all__ = ["Audit", "Elements"]

_MAX_ITERATIONS = 100_000
"""Iterations of a loop: an element that takes more is not compared."""

_SUGGESTION = 'report it; backend="reference" computes it without that backend'

_Values: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Audit:
    """Compares some results of each launch of a kernel with the interpreter's."""

    passes: tuple[Program, ...]  # with the function's own names and lines
    requests: tuple[OutputRequest, ...]  # what is made of their outputs
    shape: tuple[int, ...]  # the broadcast shape
    backend: str  # its name
    rate: float  # share of the elements
    rerun: Callable[[Program, Sequence[Any]], tuple[Any, ...]]  # runs on the same backend, stores
    _launches: Iterator[int] = field(default_factory=itertools.count, repr=False)

    def __call__(self, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        """Compare the results of a launch; AuditError at the first that differs.

        Lazy results are compared where their blocks are computed.
        """
        if any(library_of(result).is_lazy for result in results):
            return
        sample = self._sample()
        if not sample.size:
            return
        places = np.unravel_index(sample, self.shape) if self.shape else ()
        for at, program in enumerate(self.passes):
            elements = Elements.of(without_sums(program), arguments, places, sample.size)
            got = self._results(at, elements, results)
            for k in range(sample.size):
                self._check(elements, k, {m: values[k] for m, values in got.items()})

    def _sample(self) -> _Values:
        """Return the elements to compute again, counted in C order."""
        total = math.prod(self.shape)
        seed = [int(program.token[:16], 16) for program in self.passes]
        random = np.random.default_rng([*seed, next(self._launches)])
        count = min(total, math.floor(self.rate * total + random.random()))
        return np.sort(random.choice(total, count, replace=False)) if count else np.empty(0, int)

    def _results(self, at: int, elements: Elements, results: Sequence[Any]) -> dict[int, _Values]:
        """Return what a pass computed at the elements, by the output of its program."""
        found, sums = {}, []
        for request, result in self._stored_and_summed(results):
            if request.pass_index == at and request.shape is None:
                starts = request.part.starts if request.part else (0,) * len(self.shape)
                moved = [axis + start for axis, start in zip(elements.places, starts, strict=True)]
                found[request.result] = _on_host(_pick_elements(result, moved, elements.count))
            elif request.pass_index == at:
                sums.append(request.result)
        if sums:
            stored = self.rerun(elements.program, elements.arguments)
            found |= {m: _on_host(_spread(stored[m], elements.count)) for m in sums}
        return found

    def _stored_and_summed(self, results: Sequence[Any]) -> Iterator[tuple[OutputRequest, Any]]:
        """Yield requests with their results; results side by side come one after the other."""
        for request, result in zip(self.requests, results, strict=True):
            if self.passes[request.pass_index].accumulator(request.result) is not None:
                continue  # no element has a value of its own
            if not request.side_by_side:
                yield request, result
            for place, source in enumerate(request.side_by_side):
                yield OutputRequest(*source), result[..., place]

    def _check(self, elements: Elements, k: int, got: dict[int, Any]) -> None:
        """Compare the results of one element."""
        try:
            expected = elements.known(elements.numbers(k))
        except IterationLimitError:
            return
        for m, value in got.items():
            want, tolerance, is_determined = expected[m]
            if is_determined and not agrees(want, value, tolerance):
                raise self._difference(elements, k, m, value, want)

    def _difference(self, elements: Elements, k: int, m: int, got: Any, want: Any) -> AuditError:
        program, place = elements.program, [int(axis[k]) for axis in elements.places]
        pairs = zip(program.params, elements.numbers(k), strict=True)
        inputs = ", ".join(f"{p.name} = {_describe_value(value)}" for p, value in pairs)
        where = f", element ({', '.join(map(str, place))})" if place else ""
        message = (
            f"{program.name}{where}: the backend {self.backend!r} computed {got} where the "
            f"interpreter computes {want}, as output {m} for {inputs}"
        )
        line = self._line(elements, k, m)
        if line is None:
            return AuditError(f"{message}\n  Instead: {_SUGGESTION}")
        return AuditError(format_at(line.place, message, _SUGGESTION))

    def _line(self, elements: Elements, k: int, m: int) -> Line | None:
        """Return the line of the first step that differs for an element, run by itself."""
        program = elements.program
        steps = [(v, s.line) for s in program.body.statements for v in written_vars(s)]
        atoms: tuple[Atom, ...] = tuple(var for var, _ in steps)
        shown = replace(program, body=replace(program.body, results=atoms))
        stored = [_on_host(_spread(a, 1))[0] for a in self.rerun(shown, elements.arguments_of(k))]
        expected = known_results(shown, max_iterations=_MAX_ITERATIONS)(elements.numbers(k))
        for (_, line), value, (want, tolerance, is_determined) in zip(
            steps, stored, expected, strict=True
        ):
            if is_determined and not agrees(want, value, tolerance):
                return line
        return next((line for var, line in steps if var == program.outputs[m]), None)


@dataclass(frozen=True, eq=False)
class Elements:
    """Some elements of a launch.

    ``arguments`` are arrays of the launch's library, a lane's holding these elements only;
    ``on_host`` are the same as NumPy arrays, those of 16 bits as float32.
    """

    program: Program
    places: Sequence[_Values]
    count: int
    arguments: list[Any]
    on_host: list[Any]

    @classmethod
    def of(
        cls, program: Program, arguments: Sequence[Any], places: Sequence[_Values], count: int
    ) -> Elements:
        """Pick elements out of the arguments of a launch."""
        kinds = [param.kind for param in program.params]
        own = [
            _pick_elements(a, places, count) if kind == "lane" else a
            for kind, a in zip(kinds, arguments, strict=True)
        ]
        host = [
            _number(a, param.var.type) if param.kind == "uniform" else _on_host(a)
            for param, a in zip(program.params, own, strict=True)
        ]
        return cls(program, places, count, own, host)

    @cached_property
    def known(self) -> Callable[[Sequence[Any]], list[tuple[Any, float, bool]]]:
        """The function that returns what is known of one element's results."""
        return known_results(self.program, max_iterations=_MAX_ITERATIONS)

    def numbers(self, k: int) -> list[Any]:
        """Return the arguments of one element as the interpreter takes them."""
        return self._lanes(self.on_host, k)

    def arguments_of(self, k: int) -> list[Any]:
        """Return the arguments of one element as kernels take them."""
        return self._lanes(self.arguments, slice(k, k + 1))

    def _lanes(self, arguments: Sequence[Any], key: Any) -> list[Any]:
        pairs = zip(self.program.params, arguments, strict=True)
        return [a[key] if p.kind == "lane" else a for p, a in pairs]


def _pick_elements(array: Any, places: Sequence[_Values], count: int) -> Any:
    """Return the elements at some places of the shape to which an array broadcasts."""
    if not array.shape:
        return _spread(array, count)
    xp, shape = library_of(array).xp, tuple(array.shape)
    own = places[len(places) - len(shape) :]
    inside = [axis if n != 1 else axis * 0 for axis, n in zip(own, shape, strict=True)]
    flat = np.ravel_multi_index(inside, shape)
    at = xp.asarray(flat, device=array_api_compat.device(array))
    return xp.take(xp.reshape(array, (-1,)), at)


def _spread(array: Any, count: int) -> Any:
    """Return an array of some elements, or one without axes repeated."""
    return array if array.shape else library_of(array).xp.broadcast_to(array, (count,))


def _on_host(array: Any) -> _Values:
    if device_name(array) != "cpu":
        array = array_api_compat.to_device(array, "cpu")
    view, type = library_of(array).numpy_view(array), scalar_type_of(array.dtype)
    return from_memory(view, type) if type.is_narrow else view


def _number(value: Any, type: ScalarType) -> Any:
    """Return a number as kernels get it: rounded if it has 16 bits."""
    return round_to_type(value, type)[()] if type.is_narrow else value


def _describe_value(value: Any) -> str:
    shape = getattr(value, "shape", ())
    return f"an array of shape {tuple(shape)}" if shape else str(value)
