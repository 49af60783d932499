"""Check that links inside built documentation lead somewhere; those that leave it are not followed.

Usage: check_links.py FOLDER      (of HTML; fails if a link leads nowhere, and says which)
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class _Page(HTMLParser):
    """What one page links to, and the names in it that may be linked to."""

    links: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name == "id" or (tag == "a" and name == "name"):
                self.names.add(value or "")


def read(path: Path) -> _Page:
    """Return the links and names of a page."""
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def broken(root: Path) -> list[str]:
    """Return a line for each link between the pages of a folder that leads nowhere.

    Folders whose names begin with ``_`` are no pages of ours: templates of the theme, and source
    code, in which Sphinx guesses where a name is described.
    """
    root = root.resolve()
    pages = {path: read(path) for path in sorted(root.rglob("*.html"))}
    return [
        f"{path.relative_to(root)}: {link}"
        for path, page in pages.items()
        if not path.relative_to(root).parts[0].startswith("_")
        for link in sorted(page.links)
        if not leads_somewhere(link, path, pages)
    ]


def leads_somewhere(link: str, path: Path, pages: dict[Path, _Page]) -> bool:
    """Return whether a link on a page leaves the documentation, or has a target in it."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target not in pages:
        return target.is_file()
    return not parts.fragment or unquote(parts.fragment) in pages[target].names


def main(folder: str) -> None:
    """Exit with the links that lead nowhere, if there are any, or if there are no pages."""
    root = Path(folder)
    if not any(root.rglob("*.html")):
        sys.exit(f"{folder} has no HTML pages")
    found = broken(root)
    sys.exit("\n".join(found) or 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
