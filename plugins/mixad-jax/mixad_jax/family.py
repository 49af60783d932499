"""Kernels with their derivatives of every order: what the primitive is about.

A call is a program at every element of broadcast arguments. Its pushforward takes the arguments and
tangents of some, its pullback the arguments and cotangents of outputs; both are calls again. They
take the same arguments of the call they are derived from, so that one is the other's transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from mixad.errors import KernelGradientError
from mixad.kernel.options import KernelOptions
from mixad.scalar.ir import Param, Program
from mixad.tape.named_call import NamedCall, name_call

__all__ = ["Call", "Derivation", "call_of"]


@dataclass(frozen=True, eq=False)
class Call:
    """What one equation of a program of JAX computes."""

    named: NamedCall  # the kernel
    reads: tuple[int, ...]  # for each of its params, which argument that is
    # For each argument, whether it is read by index, or is a cotangent of what is added to by
    # index; others are broadcast.
    is_array: tuple[bool, ...]
    derivation: Derivation | None = None  # what it is the derivative of
    _derived: dict[object, tuple[Call | None, tuple[int, ...]]] = field(
        default_factory=dict, repr=False
    )
    _kept: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return self.named.name

    @property
    def program(self) -> Program:
        """The program of the kernel."""
        return self.named.program

    def params(self, wrt: Sequence[int]) -> tuple[int, ...]:
        """Return the params that some arguments are; those that are not read are none."""
        return tuple(p for p, argument in enumerate(self.reads) if argument in wrt)

    @property
    def first_given(self) -> int:
        """The argument at which tangents or cotangents begin; of a function's own call, none."""
        made = self.derivation
        count = len(self.is_array)
        if made is None:
            return count
        return count - len(made.wrt if made.way == "push" else made.outputs)

    def pushforward(
        self, wrt: tuple[int, ...], whole: tuple[int, ...]
    ) -> tuple[Call | None, tuple[int, ...]]:
        """Return what computes tangents along some arguments, and which outputs these are of.

        It takes what is `kept` where ``whole`` are differentiated, then a tangent for each of
        ``wrt``.  None where all tangents are zero.
        """
        key = "push", wrt, whole
        if key not in self._derived:
            pushed = self.named.pushforward(self.params(wrt))
            outputs = tuple(k for k, tangent in enumerate(pushed.tangents) if tangent is not None)
            given = [wrt.index(self.reads[p]) for p in self.params(wrt)]
            made = Derivation("push", self, wrt, outputs, whole)
            self._derived[key] = self._derive(pushed.call, pushed.kept, given, made), outputs
        return self._derived[key]

    def pullback(
        self, wrt: tuple[int, ...], cotangents: tuple[int, ...], whole: tuple[int, ...]
    ) -> tuple[Call | None, tuple[int, ...]]:
        """Return what computes gradients of some arguments, and which of them are not zero.

        It takes what is `kept` where ``whole`` are differentiated, then a cotangent for each of
        those outputs.
        """
        key = "pull", wrt, cotangents, whole
        if key not in self._derived:
            params = self.params(wrt)
            pulled = self.named.pullback(params, cotangents)
            found = zip(params, pulled.gradients, strict=True)
            own = tuple(self.reads[p] for p, gradient in found if gradient is not None)
            made = Derivation("pull", self, own, cotangents, whole)
            given = range(len(cotangents))
            self._derived[key] = self._derive(pulled.call, pulled.kept, given, made), own
        return self._derived[key]

    def _derive(
        self, named: NamedCall | None, taken: Sequence[int], given: Sequence[int], made: Derivation
    ) -> Call | None:
        """Return a derivative, which takes some params and what is ``given`` after those."""
        if named is None:
            return None
        count, kept = len(self.reads), self.kept(made.whole)
        reads = [
            kept.index(self.reads[p]) if p < count else len(kept) + given[p - count] for p in taken
        ]
        own = [self.is_array[k] for k in kept]
        if made.way == "push":
            own += [self.is_array[k] for k in made.wrt]
        else:
            own += [self.program.accumulator(k) is not None for k in made.outputs]
        return Call(named, tuple(reads), tuple(own), made)

    def kept(self, wrt: tuple[int, ...]) -> tuple[int, ...]:
        """Return the arguments that the pushforward to some of them reads, or the pullbacks."""
        if wrt not in self._kept:
            params, count = self.params(wrt), len(self.reads)
            read = set(self.named.pushforward(params).kept)
            with suppress(KernelGradientError):  # raised again where a pullback is asked for
                for chunk in self.named.chunks(params):
                    read |= set(self.named.pullback(chunk, self.named.floats).kept)
            self._kept[wrt] = tuple(sorted({self.reads[p] for p in read if p < count}))
        return self._kept[wrt]

    def chunks(self, wrt: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Return arguments in chunks such that the pullback to each is one kernel."""
        return tuple(
            tuple(self.reads[p] for p in chunk) for chunk in self.named.chunks(self.params(wrt))
        )


@dataclass(frozen=True)
class Derivation:
    """What a call is the derivative of."""

    way: Literal["push", "pull"]
    of: Call  # the call that was differentiated
    wrt: tuple[int, ...]  # arguments that have tangents, or whose gradients are the outputs
    outputs: tuple[int, ...]  # those whose tangents are computed, or which have cotangents
    whole: tuple[int, ...]  # the arguments that were differentiated, which decide what is kept


def call_of(program: Program, options: KernelOptions) -> Call:
    """Return the call of a program: the same object for equal ones.

    Numbers are arrays without axes here, as all values of a program of JAX are.
    """
    return _call_of(program, program.origin, options)


@lru_cache(maxsize=1024)
def _call_of(program: Program, origin: str, options: KernelOptions) -> Call:
    params = tuple(map(_as_lane, program.params))
    named = name_call(replace(program, params=params), options)
    is_array = tuple(param.kind == "array" for param in params)
    return Call(named, tuple(range(len(params))), is_array)


def _as_lane(param: Param) -> Param:
    return replace(param, kind="lane") if param.kind == "uniform" else param
