"""The dashboard is complete in its folder, tells a slow commit, and says nothing of a machine.

A project of a few commits is published with results that are made up: every number is known, among
them a step of a half at one commit.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import importlib.util
import json
import math
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from benchmarks.dashboard import assets, devices, landing, results
from benchmarks.dashboard.__main__ import main
from benchmarks.gpu import report as gpu_report
from benchmarks.gpu.run import Outcome, Result
from benchmarks.gpu.work import Contender, Work
from benchmarks.peers.harness import Comparison, Measurement, Summary
from benchmarks.peers.report import as_compact_json

sys.path.insert(0, str(Path(__file__).parent))

import headless_chromium

needs_asv = pytest.mark.skipif(
    importlib.util.find_spec("asv") is None, reason='asv is not installed: ".[bench]" has it'
)
BROWSER = headless_chromium.executable()
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason=f"no browser is installed: one of {', '.join(headless_chromium.NAMES)}"
)

COMMITS, SLOW = 12, 7  # the one that is half as slow again
HOST, RAM = "a-host-of-ours", "25276502016"
INTERPRETER = "/somewhere/bin/python"
BACKENDS = ["'reference'", "'cpu'", "'torch'"]
SIZES = ["64", "1024"]
STEPPED, STEADY = "suite.Kernels.time_call", "suite.Kernels.time_other"
NEVER_RUN = "suite.Kernels.time_never"


def git(folder, *arguments):
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def benchmark(name):
    return {"name": name, "code": "", "type": "time", "unit": "seconds", "version": "1",
            "params": [BACKENDS, SIZES], "param_names": ["backend", "size"],
            "timeout": 60}  # fmt: skip


def seconds(name, at):
    """Return the times of a commit: of the interpreter, of the CPU, of a device that is not here.

    Each differs by half a percent from commit to commit.
    """
    jitter = 1 + 0.005 * (-1) ** at
    slow = 1.5 if name == STEPPED and at >= SLOW else 1.0
    return [0.1, 1.6, 1e-3 * slow * jitter, 0.016 * jitter, math.nan, math.nan]


def result(commit, date, at):
    rows = {name: [seconds(name, at), [BACKENDS, SIZES], "1", date] for name in (STEPPED, STEADY)}
    return {
        "commit_hash": commit, "date": date, "python": INTERPRETER,
        "env_name": "existing-py_somewhere_bin_python", "requirements": {}, "env_vars": {},
        "params": {"machine": HOST, "python": INTERPRETER, "ram": RAM, "cpu": "Fast(R) 9000",
                   "num_cpu": "2", "os": f"Linux 6.1.{at}", "arch": "x86_64"},
        "result_columns": ["result", "params", "version", "started_at"],
        "results": rows, "durations": {}, "version": 2,
    }  # fmt: skip


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    """A repository with asv's configuration and results for every commit."""
    folder = tmp_path_factory.mktemp("project")
    git(folder, "init", "-q", "-b", "main")
    configuration = Path(__file__).parents[2] / "asv.conf.json"
    (folder / "asv.conf.json").write_text(configuration.read_text("utf-8"))
    (folder / ".gitignore").write_text(".asv\n")
    stored = folder / ".asv" / "results" / HOST
    stored.mkdir(parents=True)
    for at in range(COMMITS):
        (folder / "number").write_text(str(at))
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"commit {at}", "--date", f"2026-01-{at + 1:02d}T12:00")
        commit, date = git(folder, "rev-parse", "HEAD"), 1_767_268_800_000 + at * 86_400_000
        text = json.dumps(result(commit, date, at))
        (stored / f"{commit[:8]}-existing-py_somewhere_bin_python.json").write_text(text)
    about = {"machine": HOST, "cpu": "Fast(R) 9000 CPU @ 2.00GHz", "num_cpu": "2",
             "arch": "x86_64", "os": "Linux 6.1.99", "ram": RAM, "version": 1}  # fmt: skip
    (stored / "machine.json").write_text(json.dumps(about))
    known = {name: benchmark(name) for name in (STEPPED, STEADY, NEVER_RUN)}
    (stored.parent / "benchmarks.json").write_text(json.dumps({**known, "version": 2}))
    write_reports(folder / "benchmarks" / "results", git(folder, "rev-parse", "HEAD"))
    return folder


def device_report(commit, case="8192², z of shape (n,)"):
    """Return what `benchmarks.gpu` writes of a work that one of two contenders does."""
    contenders = {
        "mixad": Contender(lambda device: None),
        "JAX jit": Contender(lambda device: None),
    }
    work = Work("HM-LSTM", case, contenders, list)
    times = Summary(1e-4, 0.9e-4, 1.1e-4, 0.8e-4, 1.2e-4, 9)
    outcomes = {"mixad": Outcome(0.5, times=times), "JAX jit": Outcome(None, "not installed")}
    about = gpu_report.environment("Accelerator X1", 0, commit)
    return json.loads(gpu_report.as_json([Result(work, outcomes)], about))


def write_reports(folder, commit):
    folder.mkdir(parents=True)
    for day, described in (("01", commit[:12]), ("02", "0123456789ab"), ("03", f"{commit}-dirty")):
        path = folder / f"accelerator-x1-2026-01-{day}.json"
        path.write_text(json.dumps(device_report(described)))
    time, other, ratio = (Summary(x, 0.9 * x, 1.1 * x, x, x, 9) for x in (0.002, 0.004, 0.5))
    compared = [(Comparison("mixad", "Other"), ratio), (Comparison("mixad", "Another"), None)]
    series, absent = {"mixad": time, "Other": other}, {"Another": "not installed (another)"}
    measured = Measurement("hm_lstm", "1024²", 0, series, absent, {}, {}, compared)
    about = {"versions": {"mixad": "1.0", "other": "not installed"}, "cpu": "Fast", "threads": 2}
    (folder / "peers.json").write_text(as_compact_json([measured], about))


@pytest.fixture(scope="session")
def built(project):
    """The dashboard of the project."""
    assert main(["build", "--project", str(project)]) == 0
    return project / ".asv" / "dashboard"


def slow_commit(project):
    return git(project, "rev-parse", f"HEAD~{COMMITS - 1 - SLOW}")


# --- what is in the folder


@pytest.mark.slow
@needs_asv
def test_nothing_published_names_the_host_or_a_path(project, built):
    texts = {path: path.read_bytes() for path in built.rglob("*") if path.is_file()}
    assert len(texts) > 20
    for told in (HOST, "/somewhere", "_somewhere", str(project), project.name, "6.1."):
        assert [path.name for path, text in texts.items() if told.encode() in text] == []


@needs_asv
def test_labels_are_of_the_processor_and_the_version(built):
    index = json.loads((built / "asv" / "index.json").read_text("utf-8"))
    assert index["params"]["machine"] == ["accelerator-x1", "fast-9000-2"]
    assert "Linux" in index["params"]["os"]
    assert "24 GiB" in index["params"]["ram"]
    assert len(index["graph_param_list"]) == 2  # one of each machine, whatever its kernel was


@needs_asv
def test_a_device_is_a_machine_with_its_works(built):
    graphs = (built / "asv" / "graphs").rglob("devices.hm_lstm.json")
    by_machine = {
        part: json.loads(path.read_text("utf-8"))
        for path in graphs
        for part in path.parts
        if part.startswith("machine-")
    }
    ((_, (ours, peer)),) = by_machine["machine-accelerator-x1"]
    assert (ours, peer) == (1e-4, None)
    assert by_machine["machine-fast-9000-2"] == [[COMMITS - 1, None]]


@needs_asv
def test_what_is_left_out_is_told_with_the_reason(built):
    text = (built / "index.html").read_text("utf-8")
    assert "Accelerator X1: 0123456789ab is no commit of this repository" in text
    assert "-dirty is no commit of this repository" in text


@needs_asv
def test_the_first_page_has_the_last_values_of_every_backend(built):
    text = (built / "index.html").read_text("utf-8")
    rows = re.findall(r"<tr>(.*?)</tr>", text.partition(STEPPED)[2])
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows[:3]]
    assert cells == [
        ["size", "reference", "cpu", "torch"],
        ["64", "100 ms", "1.49 ms", "n/a"],
        ["1024", "1.60 s", "15.9 ms", "n/a"],
    ]


@needs_asv
def test_the_first_page_has_the_last_report_of_a_device(built):
    text = (built / "index.html").read_text("utf-8")
    section = text.partition("id='devices'")[2].partition("<h2")[0]
    assert section.count("Accelerator X1, at ") == 1
    assert "-dirty" in section  # as the report tells it
    rows = re.findall(r"<tr>(.*?)</tr>", section)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
    assert cells == [
        ["case", "mixad", "JAX jit"],
        ["8192², z of shape (n,)", "100 µs", "n/a"],
    ]


@needs_asv
def test_the_first_page_has_the_peers(built):
    text = (built / "index.html").read_text("utf-8").partition("id='peers'")[2]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", r) for r in re.findall("<tr>(.*?)</tr>", text)]
    assert rows[1] == ["mixad", "2.00 ms", "1.80 ms … 2.20 ms", ""]
    assert rows[2] == ["Other", "4.00 ms", "3.60 ms … 4.40 ms", "0.500"]
    assert rows[3] == ["Another", "n/a: not installed (another)", "", ""]


@needs_asv
def test_a_benchmark_that_never_ran_is_not_shown(built):
    index = json.loads((built / "asv" / "index.json").read_text("utf-8"))
    assert sorted(index["benchmarks"]) == ["devices.hm_lstm", STEPPED, STEADY]


@pytest.mark.slow
@needs_asv
def test_a_commit_beside_the_history_is_told(project, tmp_path):
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(project), str(clone))
    git(clone, "checkout", "-q", "-b", "aside")
    git(clone, "commit", "-q", "--allow-empty", "-m", "aside")
    commit = git(clone, "rev-parse", "HEAD")
    shutil.copytree(project / ".asv" / "results", clone / ".asv" / "results")
    one = next((clone / ".asv" / "results" / HOST).glob("*-existing-*.json"))
    content = json.dumps({**json.loads(one.read_text()), "commit_hash": commit})
    one.with_name(f"{commit[:8]}-{one.name.partition('-')[2]}").write_text(content)
    assert main(["build", "--project", str(clone), "--html", str(tmp_path / "html")]) == 0
    told = (tmp_path / "html" / "index.html").read_text("utf-8")
    assert f"{commit[:8]} is not on main: it has no points in the graphs" in told


SUITE = """
class Sums:
    params = (["cpu", "absent"], [10, 1000])
    param_names = ["backend", "elements"]

    def setup(self, backend, elements):
        if backend == "absent":
            raise NotImplementedError("absent")

    def time_sum(self, backend, elements):
        sum(range(elements))

    def track_sum(self, backend, elements):
        return sum(range(elements))
"""


@pytest.mark.slow
@needs_asv
def test_a_commit_without_results_is_measured_once(tmp_path, monkeypatch):
    """As asv documents it: in this environment, with the commit's hash."""
    monkeypatch.setenv("HOME", str(tmp_path))  # asv keeps there what it knows of the machine
    folder = tmp_path / "project"
    (folder / "benchmarks" / "suites").mkdir(parents=True)
    (folder / "benchmarks" / "suites" / "__init__.py").touch()
    (folder / "benchmarks" / "suites" / "sums.py").write_text(SUITE)
    shutil.copyfile(Path(__file__).parents[2] / "asv.conf.json", folder / "asv.conf.json")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    build = ["build", "--quick", "--project", str(folder)]
    assert main(build) == 0
    (made,) = (folder / ".asv" / "results").glob("*/*-existing-*.json")
    text = (folder / ".asv" / "dashboard" / "index.html").read_text("utf-8")
    rows = re.findall(r"<tr>(.*?)</tr>", text.partition("sums.Sums.track_sum")[2])
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows[:3]]
    assert cells == [["elements", "cpu", "absent"], ["10", "45.0", "n/a"],
                     ["1000", "499500", "n/a"]]  # fmt: skip
    before = made.stat().st_mtime_ns
    assert main(build) == 0
    assert made.stat().st_mtime_ns == before


@needs_asv
def test_results_stay_as_asv_wrote_them(project, built):
    stored = next((project / ".asv" / "results" / HOST).glob("*-existing-py*.json"))
    assert json.loads(stored.read_text("utf-8"))["python"] == INTERPRETER
    assert not list(built.parent.glob(".dashboard-*"))


@needs_asv
def test_a_changed_tree_is_not_measured(project, capsys):
    (project / "number").write_text("changed")
    try:
        assert main(["build", "--run", "--project", str(project)]) == 1
    finally:
        git(project, "checkout", "number")
    assert "commit them, so that results are of a commit" in capsys.readouterr().err


# --- what asv's page loads


@needs_asv
def test_what_asv_pins_is_what_is_there():
    """asv's page has digests: those of files that npm has as they are must be the same."""
    page = Path(importlib.util.find_spec("asv").origin).parent / "www" / "index.html"
    tags = re.findall(r'(?:src|href)="https:[^"]*/([^/"]+)" integrity="(\w+)-([^"]+)"',
                      page.read_text("utf-8"))  # fmt: skip
    same = set()
    assets.install()
    for name, kind, digest in tags:
        content = (assets.PACKAGES / assets.ASSETS[name]).read_bytes()
        if base64.b64encode(hashlib.new(kind, content).digest()).decode() == digest:
            same.add(name)
    assert same >= {"jquery-3.3.1.min.js", "jquery.flot.orderBars.js", "md5.min.js",
                    "bootstrap.min.js", "bootstrap.min.css"}  # fmt: skip
    assert {name for name, *_ in tags} == set(assets.ASSETS)


def test_packages_are_told_by_their_digests():
    """Whoever builds the dashboard gets the files that were tried here, from any registry."""
    lock = json.loads((assets.FOLDER / "package-lock.json").read_text("utf-8"))["packages"]
    packages = {name: found for name, found in lock.items() if name}
    assert {f"node_modules/{path.split('/')[0]}" for path in assets.ASSETS.values()} == set(
        packages
    )
    assert all(found["integrity"].startswith("sha512-") for found in packages.values())
    assert not any("resolved" in found for found in packages.values())


def test_without_npm_the_way_out_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(assets, "PACKAGES", tmp_path)
    monkeypatch.setattr(assets.shutil, "which", lambda _: None)
    with pytest.raises(RuntimeError, match="npm is not installed"):
        assets.install()


NPM = """#!/bin/sh
test -f ../node_modules/in_use.js && mkdir node_modules && {meanwhile}
cp package-lock.json node_modules/.package-lock.json
"""


@pytest.mark.parametrize("meanwhile", ["true", "cp package-lock.json ../node_modules/.{}"])
def test_packages_are_installed_whole(monkeypatch, tmp_path, meanwhile):
    """Whoever copies files of the packages meets those before or those after, never parts."""
    packages = tmp_path / "node_modules"
    packages.mkdir()
    (packages / "in_use.js").touch()
    (tmp_path / "package.json").write_text("{}")
    lock = json.dumps({"packages": {"": {}, "node_modules/one": {"integrity": "sha512-a"}}})
    (tmp_path / "package-lock.json").write_text(lock)
    npm = tmp_path / "npm"
    npm.write_text(NPM.format(meanwhile=meanwhile.format("package-lock.json")))
    npm.chmod(0o755)
    monkeypatch.setattr(assets, "FOLDER", tmp_path)
    monkeypatch.setattr(assets, "PACKAGES", packages)
    monkeypatch.setattr(assets.shutil, "which", lambda _: str(npm))
    assets.install()
    assert (packages / ".package-lock.json").read_text() == lock
    assert (packages / "in_use.js").exists() == (meanwhile != "true")  # others' is left alone
    assert {path.name for path in tmp_path.iterdir()} == {
        "node_modules", "npm", "package.json", "package-lock.json"
    }  # fmt: skip


def test_what_cannot_be_installed_is_told_in_a_line(monkeypatch, tmp_path, capsys):
    def without_npm(options):
        raise RuntimeError("npm is not installed")

    monkeypatch.setattr("benchmarks.dashboard.__main__.build", without_npm)
    assert main(["build", "--project", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "the dashboard was not built: npm is not installed\n"


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    page = '<script src="https://cdn.example/new.js"></script>'
    (tmp_path / "index.html").write_text(page)
    with pytest.raises(FileNotFoundError, match=r"asv's page loads new\.js"):
        assets.vendor(tmp_path)
    assert (tmp_path / "index.html").read_text() == page


def test_links_for_readers_stay_links():
    page = '<a href="https://example.org/about.js">x</a><link rel="stylesheet" href="asv.css">'
    assert assets.vendored(page) == (page, set())


# --- labels and merging


@pytest.mark.parametrize(
    ("cpu", "count", "label"),
    [
        ("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "2", "intel-xeon-platinum-8481c-2"),
        ("AMD EPYC 9B14 96-Core Processor", "4", "amd-epyc-9b14-96-core-processor-4"),
        ("", "8", "aarch64-8"),
    ],
)
def test_a_machine_is_its_processor(cpu, count, label):
    about = {"machine": HOST, "cpu": cpu, "num_cpu": count, "arch": "aarch64"}
    assert results.labelled_machine(about)["machine"] == label


def test_an_interpreter_is_its_version():
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert results.python_label(sys.executable) == here
    assert results.python_label("3.12") == "3.12"
    assert results.python_label("/not/here/python3.9") == "of another machine"


def test_of_two_results_of_a_benchmark_the_later_one_stays():
    def made(value, began, *more):
        columns = ["result", "params", "version", "started_at"]
        rows = {"a": [[value], [], "1", began], **{name: [[0.0], [], "1", 0] for name in more}}
        return {"commit_hash": "c" * 40, "env_name": "e", "result_columns": columns,
                "results": rows}  # fmt: skip

    for first, second in ((1, 2), (2, 1)):
        machine = results.Machine({}, {})
        results.add(machine, made(float(first), first, "b"))
        results.add(machine, made(float(second), second, "c"))
        (found,) = machine.results.values()
        assert found["results"]["a"][0] == [2.0]
        assert found["results"].keys() == {"a", "b", "c"}


def test_files_of_another_form_are_refused(tmp_path):
    path = tmp_path / "machine.json"
    path.write_text('{"version": 9}')
    with pytest.raises(ValueError, match=r"machine\.json .* is of version 9 of asv's files, not 1"):
        results.read_json(path, 1)


def test_cases_that_a_report_lacks_are_not_applicable():
    earlier, later = device_report("a"), device_report("b", case="new")
    machines = {}
    known, left_out = devices.merged([earlier, later], machines, lambda text: (text * 40, 0))
    assert left_out == []
    assert known["devices.hm_lstm"]["params"][0] == ["'8192², z of shape (n,)'", "'new'"]
    of_a, of_b = machines["accelerator-x1"].results.values()
    (row,), (later_row,) = of_a["results"].values(), of_b["results"].values()
    assert [math.isnan(x) for x in row[0]] == [False, True, True, True]
    assert [math.isnan(x) for x in later_row[0]] == [True, True, False, True]


def test_failed_and_not_applicable_differ_on_the_first_page():
    params = [BACKENDS, ["1"]]
    rows = list(landing.by_backend(params, [None, 2048.0, math.nan], 0, "bytes"))
    assert rows == [["1", "failed", "2.00 KiB", "n/a"]]


# --- in a browser


@pytest.fixture(scope="module")
def address(built):
    """The address of the dashboard, served by this process."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *told):
            pass

    handler = partial(Quiet, directory=str(built))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def page(address, tmp_path):
    """A page; once the test is over, it has asked this host alone and told no problem."""
    with headless_chromium.page(BROWSER, tmp_path) as opened:
        yield opened
        opened.value("document.readyState")  # what is on its way has been told
        assert opened.requests
        own = (address, "data:", "about:")
        assert [url for url in opened.requests if not url.startswith(own)] == []
        assert opened.problems == []


@needs_asv
@needs_browser
def test_the_grid_shows_every_benchmark(page, address):
    page.open(f"{address}/asv/index.html")
    page.wait_for(f"document.querySelectorAll('#summarygrid-display a').length >= {3}")
    shown = page.value("document.getElementById('summarygrid-display').innerText")
    for name in ("time_call", "time_other", "hm_lstm"):
        assert name in shown


DRAWN = """(() => {
  const canvas = document.querySelector('#main-graph canvas.flot-base');
  const overlaid = document.querySelector('#main-graph canvas.flot-overlay');
  if (!canvas || !overlaid || !canvas.width) return 0;
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  for (let k = 0; k < data.length; k += 4)
    if (data[k + 3]) colours.add(data[k] << 16 | data[k + 1] << 8 | data[k + 2]);
  return colours.size;
})()"""


@needs_asv
@needs_browser
def test_a_graph_is_drawn(page, address):
    page.open(f"{address}/asv/index.html#{STEPPED}?p-backend='cpu'&p-size=64")
    assert page.wait_for(DRAWN) > 3  # the grid, the line, its marks
    assert "time_call" in page.value("document.getElementById('title').innerText")
    assert page.value("document.querySelectorAll('#main-graph .legend tr').length") >= 1


SHOWN_ROWS = """
[...document.querySelector('#regressions-body table').querySelectorAll('tbody tr')].map(
  row => [...row.cells].map(cell => cell.innerText))"""


@needs_asv
@needs_browser
def test_a_step_is_told_at_its_commit(page, address, project):
    page.open(f"{address}/asv/index.html#/regressions")
    page.wait_for("document.querySelectorAll('#regressions-body tbody tr').length")
    rows = page.value(SHOWN_ROWS)
    ((name, _, commits, factor, *_),) = rows
    assert name == f"{STEPPED}('cpu', 64)"
    assert commits == slow_commit(project)[:8]
    assert float(factor.removesuffix("x")) == pytest.approx(1.5, abs=0.02)


@needs_asv
@needs_browser
def test_the_first_page_leads_to_the_graphs(page, address):
    page.open(f"{address}/index.html")
    page.wait_for("document.querySelectorAll('details').length >= 3")
    page.value("document.querySelector('a').click()")
    page.wait_for("location.pathname == '/asv/index.html' && !!document.getElementById('nav-li-')")


@needs_browser
def test_a_page_that_asks_elsewhere_is_found(tmp_path):
    """The fixture's own test: it would not be silent."""
    (tmp_path / "page").mkdir()
    told = "<script src='http://example.org/a.js'></script><script>console.error('told')</script>"
    (tmp_path / "page" / "index.html").write_text(told)
    with headless_chromium.page(BROWSER, tmp_path / "profile") as opened:
        opened.open((tmp_path / "page" / "index.html").as_uri())
        opened.wait_for("document.readyState == 'complete'")
        assert "http://example.org/a.js" in opened.requests
        assert any("told" in problem for problem in opened.problems)
        assert any("ERR_NAME_NOT_RESOLVED" in problem for problem in opened.problems)
