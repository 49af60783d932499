"""What a user may override of the choices made for a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from mixad.errors import ConfigurationError
from mixad.scalar.core_dimensions import read_signature
from mixad.scalar.dual import MAX_PARTIALS

__all__ = ["DEFAULT_OPTIONS", "KernelOptions", "Loops", "Mode", "Placement", "Strategy"]

Strategy = Literal["auto", "forward", "reverse"]
Placement = Literal["auto", "forward", "reverse"]
Loops = Literal["unrolled", "implicit"]


class Mode(NamedTuple):
    """How the derivative of one kernel is computed: see `KernelOptions`."""

    strategy: Strategy = "auto"
    chunk: int | None = None


@dataclass(frozen=True)
class KernelOptions:
    """Overrides of one decorated function; "auto" is mixad's choice.

    ConfigurationError for a value that is not allowed, and for partials both with the primal and in
    reverse. The program has its own `loops` and `signature`, so options that differ in these alone
    are equal.
    """

    strategy: Strategy = "auto"  # how: dual chunks, or reverse accumulation
    placement: Placement = "auto"  # when: with the primal, or in the backward pass
    chunk: int | None = None  # most inputs in a pass; None: as few passes as possible
    backend: str | None = None  # its name; None: the best one for the arrays
    loops: Loops = field(default="unrolled", compare=False)  # of loops that converge
    signature: str | None = field(default=None, compare=False)  # as of NumPy's gufuncs

    @property
    def mode(self) -> Mode:
        """How a derivative is computed: a number of partials means dual chunks."""
        is_free = self.strategy == "auto" and self.chunk is not None
        return Mode("forward" if is_free else self.strategy, self.chunk)

    def __post_init__(self) -> None:
        for name, (allows, expects) in _ALLOWED.items():
            value = getattr(self, name)
            if not allows(value):
                raise ConfigurationError(f"{name} must be {expects}, not {value!r}")
        if self.signature is not None:
            read_signature(self.signature)
        if self.placement == "forward" and self.strategy == "reverse":
            raise ConfigurationError(
                "placement='forward' with strategy='reverse': partials are computed with the "
                "values by dual numbers alone; leave one of both at 'auto'"
            )


def _one_of(choices: Any) -> tuple[Callable[[Any], bool], str]:
    names = get_args(choices)

    def is_name(value: Any) -> bool:
        return isinstance(value, str) and value in names

    return is_name, f"one of {', '.join(map(repr, names))}"


def _is_chunk(value: Any) -> bool:
    return value is None or (type(value) is int and 1 <= value <= MAX_PARTIALS)


def _may_be_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _may_name_a_backend(value: Any) -> bool:
    """Whether a backend may have such a name; it need not exist before the first call."""
    return value is None or (isinstance(value, str) and value != "")


_ALLOWED: Mapping[str, tuple[Callable[[Any], bool], str]] = MappingProxyType({
    "strategy": _one_of(Strategy),
    "placement": _one_of(Placement),
    "chunk": (_is_chunk, f"None or an int from 1 to {MAX_PARTIALS}"),
    "loops": _one_of(Loops),
    "signature": (_may_be_text, "None or text, such as '(3),()->(3)'"),
    "backend": (_may_name_a_backend, "None or the name of a backend, such as 'cpu'"),
})  # fmt: skip
"""For each field, a test of its values, and these in words."""

DEFAULT_OPTIONS = KernelOptions()
