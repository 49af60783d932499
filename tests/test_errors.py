"""Every exception is also the builtin that users catch, and says where, what, and the way out."""

import copy
import pickle
import traceback

import pytest

from mixad import errors
from mixad.errors import KernelError, MixadError, SourceLocation, format_at

PLACE = SourceLocation("cell.py", 3, 11, 16, "    return a @ b")


@pytest.mark.rows(
    ("name", "builtin"),
    [
        ("ConfigurationError", ValueError),
        ("KernelSyntaxError", SyntaxError),
        ("KernelTypeError", TypeError),
        ("KernelGradientError", TypeError),
        ("KernelOverflowError", OverflowError),
        ("KernelIndexError", IndexError),
        ("TracerError", TypeError),
        ("BackendError", RuntimeError),
    ],
)
def test_each_error_is_a_mixad_error_and_a_builtin(name, builtin):
    with pytest.raises(builtin, match="what is wrong") as caught:
        raise getattr(errors, name)("what is wrong")
    assert isinstance(caught.value, MixadError)


def test_warnings_are_user_warnings():
    assert issubclass(errors.ZeroDerivativeWarning, errors.MixadWarning)
    assert issubclass(errors.MixadWarning, UserWarning)


KERNEL_ERRORS = [errors.KernelSyntaxError, errors.KernelTypeError, errors.KernelGradientError]


@pytest.mark.parametrize("cls", [*KERNEL_ERRORS, errors.TracerError, errors.BackendError])
def test_what_an_error_is_about_comes_before_its_message(cls):
    about = cls("what is wrong").about("f: argument 'x'")
    assert (type(about), str(about)) == (cls, "f: argument 'x': what is wrong")


@pytest.mark.parametrize("cls", KERNEL_ERRORS)
def test_what_a_kernel_error_is_about_leaves_its_place_and_the_way_out(cls):
    about = cls.at(PLACE, "what is wrong", "write a * b").about("f")
    assert str(about) == format_at(PLACE, "f: what is wrong", "write a * b")


@pytest.mark.parametrize("cls", KERNEL_ERRORS)
def test_a_kernel_error_prints_its_place_the_line_a_caret_and_the_way_out(cls):
    assert str(cls.at(PLACE, "scalars have no `@`", hint="write a * b")) == (
        "scalars have no `@`\n"
        '  File "cell.py", line 3, column 12\n'
        "    return a @ b\n"
        "           ^^^^^\n"
        "  Instead: write a * b"
    )


@pytest.mark.parametrize("cls", KERNEL_ERRORS)
def test_a_kernel_error_without_a_place_prints_message_and_hint(cls):
    assert str(cls("no source")) == "no source"
    assert str(cls("no source", hint="use def")) == "no source\n  Instead: use def"


@pytest.mark.rows("cls", KERNEL_ERRORS)
@pytest.mark.rows("through", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
def test_a_kernel_error_keeps_its_place_across_processes(cls, through):
    error = cls.at(PLACE, "no", hint="yes")
    again = through(error)
    assert type(again) is cls
    assert isinstance(again, KernelError)
    assert (again.location, again.hint, str(again)) == (PLACE, "yes", str(error))


def test_python_prints_a_kernel_syntax_error_with_the_users_line():
    error = errors.KernelSyntaxError.at(PLACE, "scalars have no `@`", hint="write a * b")
    printed = "".join(traceback.format_exception(error))
    assert 'File "cell.py", line 3' in printed
    assert "    return a @ b\n           ^^^^^\n" in printed
    assert "Instead: write a * b" in printed


@pytest.mark.parametrize(
    ("column", "end_column", "text", "marked"),
    [
        (0, 3, "abc = 1", "^^^"),
        (4, 4, "    x", "^"),  # an empty span still has a caret
        (4, 99, "    xyz   ", "^^^"),  # and none goes past the text
    ],
)
def test_the_caret_stands_below_the_span(column, end_column, text, marked):
    place = SourceLocation("f.py", 1, column, end_column, text)
    source, carets = format_at(place, "m").splitlines()[2:4]
    assert carets.strip() == marked
    assert source[carets.index("^")] == text[column]


def test_tabs_before_the_span_are_kept_below_it():
    place = SourceLocation("f.py", 1, 4, 5, "\tif\tx:")
    source, carets = format_at(place, "m").splitlines()[2:4]
    assert source == "    if\tx:"
    assert carets == "      \t^"


def test_a_location_is_a_value():
    assert SourceLocation("cell.py", 3, 11, 16, "    return a @ b") == PLACE
    with pytest.raises(AttributeError):
        PLACE.line = 4
