"""The exceptions of mixad, each derived also from the builtin that users catch.

::

    MixadError
    ├── ConfigurationError      ValueError      an environment variable or option has a wrong value
    ├── KernelError                             something about the user's scalar function
    │   ├── KernelSyntaxError   SyntaxError     the function uses what cannot be compiled
    │   ├── KernelTypeError     TypeError       its types do not fit
    │   │   └── KernelShapeError ValueError     its arguments do not broadcast
    │   ├── KernelOverflowError OverflowError   a Python integer does not fit the array beside it
    │   ├── KernelIndexError    IndexError      an element reads outside an array or a tuple
    │   └── KernelGradientError TypeError       its gradient needs what mixad cannot give
    ├── TracerError             TypeError       a traced value was used as a plain one, or too late
    │   └── NoRuleError                         a function of a library has no derivative here
    └── BackendError            RuntimeError    no backend can serve, or one failed
        └── AuditError                          a backend computed something else than it should

    MixadWarning                UserWarning
    └── ZeroDerivativeWarning                   a derivative is zero where it is hardly meant to be
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

__all__ = [
    "AuditError",
    "BackendError",
    "ConfigurationError",
    "KernelError",
    "KernelGradientError",
    "KernelIndexError",
    "KernelOverflowError",
    "KernelShapeError",
    "KernelSyntaxError",
    "KernelTypeError",
    "MixadError",
    "MixadWarning",
    "NoRuleError",
    "SourceLocation",
    "TracerError",
    "ZeroDerivativeWarning",
    "format_at",
]


@dataclass(frozen=True)
class SourceLocation:
    """A span within one line of the user's source.

    Attributes
    ----------
    filename : str
        The file, as the function's code object names it.
    line : int
        The line, counted from 1.
    column, end_column : int
        The span is ``text[column:end_column]``: counted from 0, in characters. Messages count
        columns from 1, as editors do.
    text : str
        The whole line, with its indentation, without its end of line.
    """

    filename: str
    line: int
    column: int
    end_column: int
    text: str

    def __str__(self) -> str:
        return f'File "{self.filename}", line {self.line}, column {self.column + 1}'


def format_at(location: SourceLocation, message: str, hint: str | None = None) -> str:
    """Return `message` with its place in the source, a caret below the span, and the way out.

    Parameters
    ----------
    location : SourceLocation
        What the message is about.
    message : str
        What is wrong.
    hint : str, optional
        What to write instead.

    Returns
    -------
    str
        Several lines, none of them ending in white space.

    Examples
    --------
    >>> where = SourceLocation("cell.py", 3, 11, 16, "    return a @ b")
    >>> print(format_at(where, "`@` works on arrays, a and b are scalars", "write a * b"))
    `@` works on arrays, a and b are scalars
      File "cell.py", line 3, column 12
        return a @ b
               ^^^^^
      Instead: write a * b
    """
    lines = [message, f"  {location}", *_underline(location)]
    if hint is not None:
        lines.append(f"  Instead: {hint}")
    return "\n".join(lines)


def _underline(location: SourceLocation) -> list[str]:
    """Return the source line and its carets, both without the line's indentation."""
    text = location.text.rstrip()
    source = text.lstrip()
    start = max(location.column - (len(text) - len(source)), 0)
    # Tabs inside the line are repeated, so that the carets stand below them in any terminal.
    padding = "".join("\t" if character == "\t" else " " for character in source[:start])
    width = min(location.end_column, len(text)) - location.column
    return [f"    {source}", f"    {padding}{'^' * max(width, 1)}"]


class MixadError(Exception):
    """Base of every exception that mixad raises on purpose."""

    def about(self, what: str) -> Self:
        """Return the same error with what it is about in front.

        Parameters
        ----------
        what : str
            Such as the function and its argument.

        Returns
        -------
        MixadError
            Of the same class, to be raised.
        """
        return self._saying(f"{what}: {self.args[0]}")

    def _saying(self, message: str) -> Self:
        """Return the same error with another message: what else it knows is kept."""
        return type(self)(message)


class ConfigurationError(MixadError, ValueError):
    """An environment variable or an option has a value that mixad cannot use."""


class KernelError(MixadError):
    """Something is wrong with the user's scalar function, at a known place if `location` is set.

    Parameters
    ----------
    message : str
        What is wrong.
    location : SourceLocation, optional
        Where.
    hint : str, optional
        What to write instead.
    """

    def __init__(
        self,
        message: str,
        *,
        location: SourceLocation | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.hint = hint

    @classmethod
    def at(cls, location: SourceLocation, message: str, hint: str | None = None) -> Self:
        """Return the error for `message` at `location`.

        Parameters
        ----------
        location : SourceLocation
            What the message is about.
        message : str
            What is wrong.
        hint : str, optional
            What to write instead.

        Returns
        -------
        KernelError
            An instance of the class this is called on, to be raised.
        """
        return cls(message, location=location, hint=hint)

    def _saying(self, message: str) -> Self:
        return type(self)(message, location=self.location, hint=self.hint)

    def __str__(self) -> str:
        if self.location is not None:
            return format_at(self.location, self.message, self.hint)
        if self.hint is not None:
            return f"{self.message}\n  Instead: {self.hint}"
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # The default passes `args` only, which would drop the place when crossing a process.
        return _rebuilt, (type(self), self.message, self.location, self.hint), self.__dict__


def _rebuilt(
    cls: type[KernelError], message: str, location: SourceLocation | None, hint: str | None
) -> KernelError:
    return cls(message, location=location, hint=hint)


class KernelSyntaxError(KernelError, SyntaxError):
    """The function uses a construct that cannot be compiled.

    Parameters
    ----------
    message : str
        What is wrong.
    location : SourceLocation, optional
        Where; also in the fields of SyntaxError, from which Python prints it.
    hint : str, optional
        What to write instead.
    """

    def __init__(
        self,
        message: str,
        *,
        location: SourceLocation | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, location=location, hint=hint)
        # Python, IDEs and notebooks print a SyntaxError from these fields, not from str().
        self.msg = message if hint is None else f"{message}\n  Instead: {hint}"
        if location is not None:
            self.filename = location.filename
            self.lineno = self.end_lineno = location.line
            self.offset = location.column + 1
            self.end_offset = location.end_column + 1
            self.text = location.text


class KernelTypeError(KernelError, TypeError):
    """The types or dtypes in the function, or those of its arguments, do not fit."""


class KernelShapeError(KernelTypeError, ValueError):
    """The arguments do not broadcast: a ValueError, as NumPy raises, and a TypeError too."""


class KernelOverflowError(KernelError, OverflowError):
    """A Python integer from outside does not fit the integer type of the array that it meets."""


class KernelIndexError(KernelError, IndexError):
    """An element reads an array or a tuple from outside at an index that it does not have."""


class KernelGradientError(KernelError, TypeError):
    """The gradient asked for does not exist or needs what mixad cannot give."""


class TracerError(MixadError, TypeError):
    """A traced value was used where only a plain one is right, or after its transform ended.

    Parameters
    ----------
    message : str
        What is wrong.
    operation : str
        What the message begins with, if users may have called a function that is made of it.
    """

    def __init__(self, message: str, operation: str = "") -> None:
        super().__init__(message)
        self.operation = operation

    def of_call(self, called: str) -> Self:
        """Return the same error under the name of what users called.

        Parameters
        ----------
        called : str
            Such as ``"numpy.interp()"``.

        Returns
        -------
        TracerError
            To be raised.
        """
        return self._saying(f"{called}{str(self).removeprefix(self.operation)}")


class NoRuleError(TracerError):
    """There is no rule for a call of a library's function: a plugin may take the library's own."""


class BackendError(MixadError, RuntimeError):
    """No backend can serve a request, or the one asked for failed; the message has the reason."""


class AuditError(BackendError):
    """A kernel computed something else than the reference interpreter, found by ``MIXAD_AUDIT``.

    The message has function, element, both results, the inputs and the line.
    """


class MixadWarning(UserWarning):
    """Base of the warnings that tell of something in the user's function."""


class ZeroDerivativeWarning(MixadWarning):
    """The result of a loop depends on an input through comparisons only, as that of bisection does.

    Its derivative is zero.  One step of Newton's method from the result has the derivative of the
    root; ``mixad.stop_gradient`` around the result says that a constant is meant.
    """
