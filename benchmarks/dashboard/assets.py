"""What asv's pages ask for, beside the pages: files of other servers, and graphs without points."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from benchmarks.peers.report import write_atomically

FOLDER = Path(__file__).parent
"""Of ``package.json`` and ``package-lock.json``: packages, their versions and digests."""

PACKAGES = FOLDER / "node_modules"
_LOCK = "package-lock.json"

ASSETS: Mapping[str, str] = MappingProxyType({
    "bootstrap.min.css": "bootstrap/dist/css/bootstrap.min.css",
    "bootstrap.min.js": "bootstrap/dist/js/bootstrap.min.js",
    "jquery-3.3.1.min.js": "jquery/dist/jquery.min.js",
    "jquery.flot.categories.min.js": "flot/jquery.flot.categories.js",
    "jquery.flot.min.js": "flot/jquery.flot.js",
    "jquery.flot.orderBars.js": "flot-orderbars/js/jquery.flot.orderBars.js",
    "jquery.flot.selection.min.js": "flot/jquery.flot.selection.js",
    "jquery.flot.time.min.js": "flot/jquery.flot.time.js",
    "md5.min.js": "blueimp-md5/js/md5.min.js",
    "stupidtable.min.js": "stupid-table-plugin/stupidtable.min.js",
})  # fmt: skip
"""Where in the packages the files are that asv's pages ask for."""

_TAG = re.compile(r"<(?:script|link)\b[^>]*>")
_ELSEWHERE = re.compile(r'(src|href)="(?:https?:)?//[^"]*/([^/"]+)"')
_OF_ELSEWHERE = re.compile(r'\s+(?:integrity|crossorigin|referrerpolicy)="[^"]*"')


def vendored(page: str) -> tuple[str, set[str]]:
    """Return a page that loads its scripts and styles from ``vendor``, and their names.

    >>> vendored('<script src="https://cdn.example/x/a.js" integrity="sha"></script>')
    ('<script src="vendor/a.js"></script>', {'a.js'})
    """
    names: set[str] = set()

    def beside(tag: re.Match[str]) -> str:
        found = _ELSEWHERE.search(tag[0])
        if found is None:
            return tag[0]
        names.add(found[2])
        return _OF_ELSEWHERE.sub("", _ELSEWHERE.sub(r'\1="vendor/\2"', tag[0]))

    return _TAG.sub(beside, page), names


def install() -> None:
    """Have npm install the packages, unless they are there as ``package-lock.json`` has them.

    They are installed in a folder of their own, which takes its place once it is complete: who
    installs or copies at the same time never meets half of a file.

    Raises
    ------
    RuntimeError
        If there is no npm, or it fails.
    """
    if _are_installed():
        return
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("npm is not installed: what asv's pages load comes from its packages")
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    with tempfile.TemporaryDirectory(prefix="node_modules-", dir=FOLDER) as folder:
        for name in ("package.json", _LOCK):
            shutil.copyfile(FOLDER / name, Path(folder, name))
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"npm could not install what asv's pages load:\n{done.stderr}")
        try:
            Path(folder, "node_modules").rename(PACKAGES)
        except OSError:  # others of an earlier lock are there, or somebody else was faster
            if _are_installed():
                return
            PACKAGES.rename(Path(folder, "earlier"))
            Path(folder, "node_modules").rename(PACKAGES)


def _are_installed() -> bool:
    """Tell whether the packages are there as ``package-lock.json`` has them."""
    there = PACKAGES / ".package-lock.json"  # npm writes it last
    if not there.is_file():
        return False
    found, wanted = (
        json.loads(path.read_text(encoding="utf-8"))["packages"] for path in (there, FOLDER / _LOCK)
    )
    return all(_digest(found, name) == _digest(wanted, name) for name in wanted if name)


def _digest(packages: Mapping[str, Mapping[str, str]], name: str) -> str | None:
    return packages.get(name, {}).get("integrity")


def vendor(published: Path) -> None:
    """Have the page of a folder that asv published load nothing from elsewhere.

    Raises
    ------
    FileNotFoundError
        If it asks for a file that is not among `ASSETS`.
    RuntimeError
        If the packages of these cannot be installed.
    """
    page = published / "index.html"
    text, names = vendored(page.read_text(encoding="utf-8"))
    if missing := sorted(names - ASSETS.keys()):
        raise FileNotFoundError(
            f"asv's page loads {', '.join(missing)}: add packages to package.json and the files to "
            "ASSETS, or install the asv that constraints.txt names"
        )
    install()
    (published / "vendor").mkdir(exist_ok=True)
    for name in names:
        shutil.copyfile(PACKAGES / ASSETS[name], published / "vendor" / name)
    write_atomically(page, text)
    page.chmod(0o644)


def complete(published: Path) -> None:
    """Have every graph be there that the pages ask for: that one is not is an error to a browser.

    Benchmarks without a single graph are left out; where a machine has none of a benchmark, its
    graph is without a value.
    """
    path_of = importlib.import_module("asv.graph").Graph.get_file_path
    index = json.loads((published / "index.json").read_text(encoding="utf-8"))
    known = index["benchmarks"].items()
    found = {
        name: about
        for name, about in known
        if (published / f"{path_of({'summary': ''}, name)}.json").is_file()
    }
    write_atomically(published / "index.json", json.dumps(index | {"benchmarks": found}))
    (published / "index.json").chmod(0o644)
    empty = json.dumps([[max(map(int, index["revision_to_hash"])), None]])
    for name in found:
        for params in index["graph_param_list"]:
            path = published / f"{path_of(params, name)}.json"
            if not path.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(empty, encoding="utf-8")
