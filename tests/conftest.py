"""Tables of rows as one test each: all rows run, and the test names all that fail.

``@pytest.mark.rows(names, table, ids=None, slow="")`` is written as ``@pytest.mark.parametrize``
is, and costs a run less: nothing is collected, reported or sent between processes for a row.
Several of them, above each other, stand for all combinations.  Rows that are marked slow, or named
in ``slow``, are slow tests of their own, up to eight, that processes share out.  Where the table
depends on parameters of the test, it is a function of them.  A test without rows fails.
``--row PATTERN`` runs what has a regular expression in its name: a test, or the rows with it in
their labels or marks.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

collect_ignore = ["typed_program.py", "shards"]  # programs that no test imports

MAX_PARTS = 8
"""Tests that the slow rows of a table are shared out among."""

SHOWN = 3
"""Rows whose tracebacks are shown; the others that fail are named, with where and why."""


class Row(NamedTuple):
    """A label, arguments and marks: of a row of one table, or of several together."""

    label: str
    arguments: dict[str, Any]
    marks: tuple[pytest.Mark, ...]

    @property
    def is_slow(self) -> bool:
        return any(mark.name == "slow" for mark in self.marks)

    @property
    def name(self) -> str:
        """The label and the names of the marks."""
        return " ".join([self.label, *(mark.name for mark in self.marks)])

    def skip_by_marks(self) -> None:
        """Skip it as pytest skips a test with these marks."""
        for mark in self.marks:
            assert mark.name in {"skip", "skipif", "slow", "torch"}, (
                f"rows know no mark {mark.name!r}"
            )
            if mark.name == "skip" or (mark.name == "skipif" and mark.args[0]):
                pytest.skip(mark.kwargs.get("reason", ""))


class Part(NamedTuple):
    """Rows that are one test: of the slow ones, or of the others, every so many-th."""

    is_slow: bool
    number: int = 0
    count: int = 1

    def of(self, rows: Iterable[Row]) -> list[Row]:
        """Return them."""
        return [row for row in rows if row.is_slow == self.is_slow][self.number :: self.count]

    def as_param(self, names: int) -> Any:
        """Return the parameters of the test: all its names stand for this."""
        if not self.is_slow:
            return pytest.param(*[self] * names, id=pytest.HIDDEN_PARAM)
        number = str(self.number) if self.count > 1 else ""
        return pytest.param(*[self] * names, id=f"slow{number}", marks=pytest.mark.slow)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--row",
        metavar="PATTERN",
        type=re.compile,
        default="",
        help="run the tests, and the rows of tables, with this in their names or marks",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "rows(names, table, ids=None, slow=''): all rows, as one test"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests without rows that ``--row`` does not name."""
    kept = [i for i in items if is_named(i) or next(i.iter_markers("rows"), None)]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[i for i in items if i not in {*kept}])
        items[:] = kept


def is_named(item: pytest.Item) -> bool:
    """Whether ``--row`` names a whole test."""
    names = [item.nodeid, *(mark.name for mark in item.iter_markers())]
    return bool(item.config.getoption("--row").search(" ".join(names)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of the rows, and tests of those that are slow; values are set row by row."""
    marks = list(metafunc.definition.iter_markers("rows"))
    if marks:
        names = [name for mark in marks for name in names_of(mark)]
        tables = [list(rows_of(mark, {})) for mark in marks if not is_function(mark.args[1])]
        counts = Counter(row.is_slow for row in combined(tables))
        # Of tables that depend on parameters, how many rows there are is not known yet.
        slow = min(counts[True], MAX_PARTS if len(tables) == len(marks) else 1)
        parts = [Part(True, k, slow) for k in range(slow)]
        if counts[False] or not slow:
            parts.insert(0, Part(False))
        metafunc.parametrize(names, [part.as_param(len(names)) for part in parts])


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Call a test once for each row."""
    marks = list(pyfuncitem.iter_markers("rows"))
    if not marks:
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    given = {name: pyfuncitem.funcargs[name] for name in names}
    part = given[names_of(marks[0])[0]]
    pattern, whole = pyfuncitem.config.getoption("--row"), is_named(pyfuncitem)
    own = part.of(combined([list(rows_of(mark, given)) for mark in marks]))
    rows = [row for row in own if whole or pattern.search(row.name)]
    if whole and not rows:
        pytest.fail("its table has no rows", pytrace=False)
    clock = pyfuncitem.config.processor_seconds
    failed, skipped, pyfuncitem.taken_by_row = [], [], []
    for row in rows:
        start = clock()
        try:
            row.skip_by_marks()
            pyfuncitem.obj(**(given | row.arguments))
        except pytest.skip.Exception as why:
            skipped.append(str(why))
        except (Exception, pytest.fail.Exception) as error:
            failed.append((row.label, pytest.ExceptionInfo.from_exception(error)))
        pyfuncitem.taken_by_row.append((row.label, clock() - start))
    pyfuncitem.user_properties.append(("rows skipped", skipped))
    if failed:
        pytest.fail(report(failed, len(rows)), pytrace=False)
    if len(skipped) == len(rows):
        pytest.skip(skipped[0] if skipped else f"no row is named {pattern.pattern}")
    return True


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Count rows that are skipped, by reason, where pytest is to name skipped tests (``-rs``)."""
    reports = map(terminalreporter.getreports, ("passed", "failed", "skipped"))
    known = [dict(getattr(r, "user_properties", ())) for r in itertools.chain(*reports)]
    whys = Counter(why for found in known for why in found.get("rows skipped", ()))
    if whys and terminalreporter.hasopt("skipped"):
        terminalreporter.section("rows of tables that are skipped")
        for why, count in whys.most_common():
            terminalreporter.line(f"{count} {why}")


# -- tables ----------------------------------------------------------------------------------------


def is_function(table: Any) -> bool:
    return inspect.isfunction(table)


def names_of(mark: pytest.Mark) -> list[str]:
    names = mark.args[0]
    return [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)


def rows_of(mark: pytest.Mark, given: dict[str, Any]) -> Iterator[Row]:
    """Yield the rows of a table, or of what a function returns for the arguments of a test."""
    names, table, slow = names_of(mark), mark.args[1], mark.kwargs.get("slow", ())
    slow = slow.split() if isinstance(slow, str) else slow
    if is_function(table):
        table = table(**{name: given[name] for name in inspect.signature(table).parameters})
    params = [
        row if isinstance(row, PARAM) else pytest.param(*([row] if len(names) == 1 else row))
        for row in table
    ]
    labels = labels_of(names, params, mark.kwargs.get("ids"))
    assert set(slow) <= set(labels), f"no row is labelled {set(slow) - set(labels)}"
    for param, label in zip(params, labels, strict=True):
        marks = [getattr(mark, "mark", mark) for mark in param.marks]
        marks += [pytest.mark.slow.mark] * (label in slow)
        yield Row(label, dict(zip(names, param.values, strict=True)), tuple(marks))


def labels_of(names: list[str], params: list[Any], ids: Any) -> list[str]:
    """Return what pytest would call rows: those of equal labels are numbered."""
    made: list[str] = []
    given = itertools.repeat("") if ids is None or callable(ids) else map(str, ids)
    for number, (param, label) in enumerate(zip(params, given, strict=False)):
        values = zip(names, param.values, strict=True)
        parts = [label_of(name, value, number, ids) for name, value in values]
        made.append(param.id or label or "-".join(parts))
    counts, seen = Counter(made), Counter[str]()
    for number, label in enumerate(made):
        if counts[label] > 1:
            made[number] = f"{label}{seen[label]}"
            seen[label] += 1
    return made


PARAM = type(pytest.param())


def label_of(name: str, value: Any, number: int, ids: Any) -> str:
    """Return what pytest would call a value."""
    found = ids(value) if callable(ids) else value
    if isinstance(found, str | int | float | complex | None):
        return str(found)
    return getattr(found, "__name__", None) or f"{name}{number}"


def combined(tables: list[list[Row]]) -> Iterator[Row]:
    """Yield all combinations of rows, one of each table."""
    for rows in itertools.product(*tables):
        arguments = {name: value for row in rows for name, value in row.arguments.items()}
        marks = tuple(mark for row in rows for mark in row.marks)
        yield Row("-".join(row.label for row in rows), arguments, marks)


# -- reports ---------------------------------------------------------------------------------------


def report(failed: list[tuple[str, Any]], ran: int) -> str:
    """Name every row that fails, and show the first ones."""
    shown = [f"--- {label}\n{info.getrepr(style='short')}\n" for label, info in failed[:SHOWN]]
    listed = [f"[{label}] {line_of(info)}" for label, info in failed]
    return "\n".join([*shown, f"{len(failed)} of {ran} rows fail:", *listed])


def line_of(info: Any) -> str:
    """Return where an error comes from, the last line in a file of tests, and its first line."""
    entries = [entry for entry in info.traceback if Path(entry.path).name.startswith("test_")]
    where = f"{entries[-1].path.name}:{entries[-1].lineno + 1}: " if entries else ""
    return where + next(iter(f"{info.typename}: {info.value}".splitlines()), "")
