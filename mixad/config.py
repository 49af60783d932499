"""The environment variables of mixad: one table, read nowhere else.

A variable is read when asked for, so a test or a program may set it after the import; what is
on the launch path keeps the value it read when it was compiled.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import platformdirs

from mixad.errors import ConfigurationError

__all__ = [
    "AUDIT",
    "BACKEND_ALLOW",
    "BACKEND_BLOCK",
    "CACHE_DIR",
    "CHECK",
    "LOOP_MEMORY",
    "NUM_THREADS",
    "POOL_BYTES",
    "STREAM_BYTES",
    "TRACEBACK",
    "VARIABLES",
    "CheckMode",
    "TracebackMode",
    "Variable",
    "available_cores",
    "byte_count",
    "kernel_cache_folder",
    "show_bytes",
    "unknown_variables",
]

T = TypeVar("T")

CheckMode = Literal["off", "sample", "full"]
_CHECK_MODES: tuple[CheckMode, ...] = ("off", "sample", "full")

TracebackMode = Literal["short", "full"]
_TRACEBACK_MODES: tuple[TracebackMode, ...] = ("short", "full")

_MAX_THREADS = 4096  # more is a slip of the keyboard, and would start as many


@dataclass(frozen=True)
class Variable(Generic[T]):
    """One environment variable.

    Attributes
    ----------
    name : str
        Its name.
    meaning : str
        What it does, in one sentence.
    expects : str
        What a value looks like, for messages and for the documentation.
    default : callable
        Gives the value where the variable is unset or empty.
    parse : callable
        Gives the value of its text; raises ValueError where the text is no such thing.
    """

    name: str
    meaning: str
    expects: str
    default: Callable[[], T]
    parse: Callable[[str], T]

    def is_set(self, environ: Mapping[str, str] | None = None) -> bool:
        """Whether the user has chosen a value: the variable is there and not empty.

        Parameters
        ----------
        environ : mapping of str to str, optional
            Read instead of the process's environment.

        Returns
        -------
        bool
            False where `read` returns the default.
        """
        return bool(self._text(environ))

    def read(self, environ: Mapping[str, str] | None = None) -> T:
        """Return the value now.

        Parameters
        ----------
        environ : mapping of str to str, optional
            Read instead of the process's environment.

        Returns
        -------
        T
            The value, or the default where the variable is unset or empty.

        Raises
        ------
        ConfigurationError
            The text is not what the variable expects.

        Examples
        --------
        >>> NUM_THREADS.read({"MIXAD_NUM_THREADS": "3"})
        3
        """
        text = self._text(environ)
        if not text:
            return self.default()
        try:
            return self.parse(text)
        except ValueError:
            raise ConfigurationError(
                f"environment variable {self.name}={text!r}: expected {self.expects}; "
                f"unset it to get the default"
            ) from None

    def suggest(self, text: str) -> None:
        """Set the variable in this process, unless the user has chosen a value.

        Parameters
        ----------
        text : str
            What `parse` takes.
        """
        if not self.is_set():
            os.environ[self.name] = text

    def _text(self, environ: Mapping[str, str] | None) -> str:
        """Return the value of the variable, empty if it is not set.

        `os.environ` raises two exceptions to say so, which takes 1 µs; on POSIX it has a dictionary
        by encoded names.
        """
        if environ is None:
            environ = os.environ
            by_bytes = getattr(environ, "_data", None)
            if type(by_bytes) is dict and os.name == "posix" and self._key not in by_bytes:
                return ""
        return environ.get(self.name, "").strip()

    @functools.cached_property
    def _key(self) -> bytes:
        return self.name.encode()


def available_cores() -> int:
    """Return how many cores this process may run on, by its affinity.

    Returns
    -------
    int
        At least 1.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def byte_count(text: str) -> int:
    """Return the bytes that are meant by a number with or without a unit.

    Parameters
    ----------
    text : str
        A whole number, with K, M or G after it for so many times 1024, 1024² or 1024³.

    Returns
    -------
    int
        At least 0.

    Raises
    ------
    ValueError
        If the text is nothing of the kind.

    Examples
    --------
    >>> byte_count("32K")
    32768
    """
    text = text.strip()
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    digits = text if unit == 1 else text[:-1]
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(text)
    return int(digits) * unit


def show_bytes(count: int) -> str:
    """Return a number of bytes for people, in the largest unit that it has one of.

    Parameters
    ----------
    count : int
        At least 0.

    Returns
    -------
    str
        With three digits that count, or all of them.

    Examples
    --------
    >>> [show_bytes(count) for count in (1, 1536, 32 << 20)]
    ['1 B', '1.5 KiB', '32 MiB']
    """
    power = min(max(count.bit_length() - 1, 0) // 10, 3)
    return f"{count / (1 << 10 * power):.4g} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def _thread_count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= _MAX_THREADS:
        raise ValueError(text)
    return value


def _absolute_path(text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:  # ~someone, and there is no such user
        raise ValueError(text) from None


def _user_cache() -> Path:
    """Return the folder for caches in the user's home, or one of the user's own if there is none.

    Readers of it refuse what another user may have put there.
    """
    try:
        return platformdirs.user_cache_path("mixad", appauthor=False).expanduser()
    except RuntimeError:  # a container's user without HOME and without an account
        return Path(tempfile.gettempdir()) / f"mixad-{os.getuid()}"


def _one_of(modes: tuple[T, ...]) -> Callable[[str], T]:
    """Return a parser of some words, in capitals or not."""

    def parse(text: str) -> T:
        for mode in modes:
            if text.lower() == mode:
                return mode
        raise ValueError(text)

    return parse


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise ValueError(text)
    return value


def _names(text: str) -> frozenset[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError(text)
    return frozenset(names)


NUM_THREADS: Variable[int] = Variable(
    name="MIXAD_NUM_THREADS",
    meaning="How many threads a CPU kernel may use; results have the same bits for any number.",
    expects=f"a whole number from 1 to {_MAX_THREADS}",
    default=available_cores,
    parse=_thread_count,
)

POOL_BYTES: Variable[int] = Variable(
    name="MIXAD_POOL_BYTES",
    meaning="How much memory the CPU backend keeps for results to come while no array uses it; 0 "
    "keeps none. By default 1G, and no more than an eighth of what the machine has or the "
    "process's control groups allow.",
    expects="a number of bytes, or one with K, M or G after it, for example 256M",
    default=lambda: 1 << 30,
    parse=byte_count,
)

LOOP_MEMORY: Variable[int] = Variable(
    name="MIXAD_LOOP_MEMORY",
    meaning="How much memory a loop (mixad.scan and its kin) takes for the carries that its "
    "derivative reads; where they need more, steps run again. By default 1G.",
    expects="a number of bytes, or one with K, M or G after it, for example 256M",
    default=lambda: 1 << 30,
    parse=byte_count,
)

STREAM_BYTES: Variable[int | None] = Variable(
    name="MIXAD_STREAM_BYTES",
    meaning="CPU kernels that read and write more than this store their results past the caches; "
    "they have the same bits either way. By default the size of the last-level cache, and no more "
    "than eight times what the second level gives to the cores that the process may run on. Read "
    "once.",
    expects="a number of bytes, or one with K, M or G after it, for example 32M",
    default=lambda: None,
    parse=byte_count,
)

CACHE_DIR: Variable[Path] = Variable(
    name="MIXAD_CACHE_DIR",
    meaning="Folder in which compiled kernels are kept from process to process.",
    expects="the path of a folder, made when first needed",
    default=_user_cache,
    parse=_absolute_path,
)

CHECK: Variable[CheckMode] = Variable(
    name="MIXAD_CHECK",
    meaning="How arrays held for the backward pass are checked for changes: not at all, by a "
    "fingerprint of samples, or element by element.",
    expects="one of " + ", ".join(_CHECK_MODES),
    default=lambda: "sample",
    parse=_one_of(_CHECK_MODES),
)

AUDIT: Variable[float] = Variable(
    name="MIXAD_AUDIT",
    meaning="Share of the elements of each launch that the reference interpreter computes again; "
    "what differs raises AuditError. Read when a kernel is first called.",
    expects="a number from 0 to 1, for example 1e-4",
    default=lambda: 0.0,
    parse=_share,
)

BACKEND_ALLOW: Variable[frozenset[str]] = Variable(
    name="MIXAD_BACKEND_ALLOW",
    meaning="If set, only these backends are used.",
    expects="names of backends with commas between, for example cpu,reference",
    default=frozenset,
    parse=_names,
)

BACKEND_BLOCK: Variable[frozenset[str]] = Variable(
    name="MIXAD_BACKEND_BLOCK",
    meaning="These backends are not used, and plugins of these names are not imported.",
    expects="names of backends with commas between, for example cupy,torch",
    default=frozenset,
    parse=_names,
)

TRACEBACK: Variable[TracebackMode] = Variable(
    name="MIXAD_TRACEBACK",
    meaning="What tracebacks show of mixad: one frame, the function that was called, or all. Read "
    "when an error passes.",
    expects="one of " + ", ".join(_TRACEBACK_MODES),
    default=lambda: "short",
    parse=_one_of(_TRACEBACK_MODES),
)

VARIABLES: tuple[Variable[Any], ...] = (
    NUM_THREADS,
    POOL_BYTES,
    LOOP_MEMORY,
    STREAM_BYTES,
    CACHE_DIR,
    CHECK,
    AUDIT,
    BACKEND_ALLOW,
    BACKEND_BLOCK,
    TRACEBACK,
)


def kernel_cache_folder() -> Path:
    """Return the folder of compiled kernels: all that is in it is ours and may be removed.

    Returns
    -------
    pathlib.Path
        A folder inside that of `CACHE_DIR`, which may hold other things; it need not exist.
    """
    return CACHE_DIR.read() / "kernels"


def unknown_variables(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the names that start as ours do and that mixad never reads: most likely misspelt.

    Parameters
    ----------
    environ : mapping of str to str, optional
        Read instead of the process's environment.

    Returns
    -------
    tuple of str
        The names, sorted.

    Examples
    --------
    >>> unknown_variables({"MIXAD_NUM_THREAD": "3", "MIXAD_CHECK": "full"})
    ('MIXAD_NUM_THREAD',)
    """
    known = {variable.name for variable in VARIABLES}
    present = os.environ if environ is None else environ
    return tuple(sorted(n for n in present if n.startswith("MIXAD_") and n not in known))
