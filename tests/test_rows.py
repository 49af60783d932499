"""A table of rows is one test that names every row that fails; slow rows are another one."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TABLES = """
import pytest

TABLE = [1, pytest.param(2, id="two"), 3, pytest.param(4, marks=pytest.mark.slow)]


@pytest.mark.rows("x", TABLE)
def test_sum(x, tmp_path):
    assert tmp_path.exists()
    assert x not in (1, 3), "an odd number"


@pytest.mark.parametrize("last", [2, 3])
@pytest.mark.rows("name, y", [("a", 0), ("b", 1)], ids=["A", "B"])
@pytest.mark.rows("x", lambda last: range(last), ids=lambda x: f"={x}")
def test_product(name, y, x, last):
    assert (name, x) != ("b", 2)


@pytest.mark.rows("f", [abs, lambda x: x, lambda x: -x, lambda x: 2 * x], slow="<lambda>2")
def test_label(f):
    assert f(1) == 1


@pytest.mark.rows("x", [0, pytest.param(1, marks=pytest.mark.skip(reason="not here"))])
def test_skip(x):
    if x == 0:
        pytest.skip("nor here")
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Return the function that runs a file with the conftest files of this repository."""
    monkeypatch.setenv("MIXAD_CACHE_DIR", "")  # the run inside sets its own: put ours back after it
    tests = Path(__file__).parent
    for path in (tests.parent / "conftest.py", tests / "conftest.py"):
        target = pytester.path / path.relative_to(tests.parent)
        target.parent.mkdir(exist_ok=True)
        target.write_text(path.read_text("utf-8"), "utf-8")
    pytester.makeini("[pytest]\nmarkers = slow: it is slow")

    def run(text, *options):
        (pytester.path / "tests" / "test_file.py").write_text(text)
        return pytester.runpytest("-p", "no:xdist", "-rs", *options)

    return run


def test_all_rows_run_and_those_that_fail_are_named(run):
    result = run(TABLES, "-k", "test_sum")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.re_match_lines(
        [r"2 of 3 rows fail:", r"\[1\] test_file.py:10: Asser.* odd", r"\[3\]"]
    )


def test_several_tables_are_all_combinations(run):
    result = run(TABLES, "-k", "test_product")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.re_match_lines([r"1 of 6 rows fail:", r"\[=2-B\] "])


def test_rows_are_skipped_and_a_test_is_where_all_are(run):
    run(TABLES, "-k", "test_skip").stdout.re_match_lines([r"SKIPPED .* nor here"])


def test_rows_that_are_skipped_are_counted_by_reason(run, pytester):
    whole_file = pytester.path / "tests" / "test_skipped.py"
    whole_file.write_text("import pytest\npytest.skip('no file', allow_module_level=True)")
    table = """
import pytest

@pytest.mark.rows("x", [0, 1, 1, pytest.param(2, marks=pytest.mark.skip(reason="no two"))])
def test(x):
    if x == 1:
        pytest.skip("no one")

@pytest.mark.rows("x", [1, 1, 3])
def test_that_fails(x):
    test(x)
    assert x != 3
"""
    result = run(table)
    result.assert_outcomes(passed=1, failed=1, skipped=1)
    result.stdout.fnmatch_lines(["*rows of tables that are skipped*", "4 no one", "1 no two"])
    assert "rows of tables" not in run(table, "-rf").stdout.str()


def test_rows_of_equal_labels_are_numbered(run):
    result = run(TABLES, "-k", "test_label")
    result.assert_outcomes(failed=2)
    result.stdout.re_match_lines([r"1 of 3 rows fail:", r"\[<lambda>1\] "])
    result.stdout.re_match_lines([r"1 of 1 rows fail:", r"\[<lambda>2\] "])


@pytest.mark.slow
def test_a_slow_row_that_is_not_there_is_refused(run):
    result = run("import pytest\n@pytest.mark.rows('x', [1], slow='2')\ndef test(x): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no row is labelled {'2'}*"])


@pytest.mark.slow
def test_rows_are_selected_by_their_labels(run):
    run(TABLES, "-k", "test_sum", "--row", "tw|slow").assert_outcomes(passed=2)
    run(TABLES, "-k", "test_product", "--row", "=0-A").assert_outcomes(passed=2)
    run(TABLES, "--row", "test_label").assert_outcomes(failed=2, skipped=5)


def test_slow_rows_are_a_slow_test(run):
    run(TABLES, "-k", "test_sum", "-m", "slow").assert_outcomes(passed=1, deselected=6)


BUSY = """
import subprocess, sys, time, pytest

BUSY = "import time\\nwhile time.process_time() < {}: pass"


def test_in_a_child():
    subprocess.run([sys.executable, "-c", BUSY.format(0.6)], check=True)


@pytest.mark.rows("seconds", [0.0, 0.6, pytest.param(0.9, marks=pytest.mark.slow)])
def test_row(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_that_sleeps():
    time.sleep(0.7)
"""


@pytest.mark.slow
def test_long_tests_and_rows_that_are_not_marked_slow_are_named(run):
    result = run(BUSY, "--unmarked-limit", "5")
    assert result.ret == 0
    result.stdout.re_match_lines_random(
        [r"0\.\d+ s .*::test_in_a_child", r"0\.6\d s .*::test_row 0\.6"]
    )
    result.stdout.no_re_match_line(r".* s .*(slow|sleeps)")
    result = run(BUSY, "--unmarked-limit", "0.55")
    result.stdout.re_match_lines([r"FAILED 0\.6\d s .*::test_row 0\.6"])
    assert result.ret != 0


EMPTY = """
import pytest


@pytest.mark.rows("x", [])
def test_of_none(x):
    pass


@pytest.mark.rows("x", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.rows("y", [])
def test_of_some_and_none(x, y):
    pass


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.rows("x", lambda last: range(last))
def test_of_a_function(x, last):
    pass


@pytest.mark.rows("x", lambda: [pytest.param(1, marks=pytest.mark.slow)])
def test_of_a_function_that_gives_slow_rows(x):
    pass
"""


def test_a_table_without_rows_fails(run):
    result = run(EMPTY)
    result.assert_outcomes(failed=4, passed=1)
    result.stdout.fnmatch_lines(["*its table has no rows*"])


def test_a_table_that_is_asked_for_another_row_is_skipped(run):
    run(EMPTY, "--row", "another").assert_outcomes(skipped=5)
    run(EMPTY, "--row", "of_none").assert_outcomes(failed=1, skipped=4)
