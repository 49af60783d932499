"""A warning where arrays that deserve a compiled kernel are served by an interpreter."""

from __future__ import annotations

from mixad.backends.warned import warn_user

__all__ = ["LARGE", "warn_if_large"]

LARGE = 10_000
"""Elements above which running without a compiled kernel is worth a warning."""

_WAYS_OUT = {
    "cupy": "install mixad-cupy",
    "torch": "install mixad-torch",
    "numpy": "`python -m mixad doctor` says why",
}
_warned: set[tuple[str, str]] = set()


def warn_if_large(size: int, library: str, device: str) -> None:
    """Warn, once for each library and device, that many elements have no compiled kernel."""
    if size <= LARGE or (library, device) in _warned:
        return
    _warned.add((library, device))
    suggestion = _WAYS_OUT.get(library, "convert them to NumPy arrays")
    warn_user(
        f"{size} elements of {library} on {device} are computed op by op with array functions, "
        f"which is slow: no backend that compiles serves them; {suggestion}, or name a backend to "
        "accept this"
    )
