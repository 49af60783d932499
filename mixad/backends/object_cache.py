"""Object code on disk, so that a kernel is compiled once and not in every process.

Code that is run must come from someone who may run code as this user. So the folder and each file
must belong to the user and be writable by nobody else, whatever made them; what is not is neither
read nor trusted. A file is complete or does not exist: it is written under another name and
renamed. What is damaged all the same does not match its checksum, counts as absent, and is
written anew. Nothing read is executed but the object code, and nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from mixad import config
from mixad.backends.warned import warn_user

__all__ = ["DEFAULT_LIMIT", "ObjectCache", "default", "digest"]

DEFAULT_LIMIT = 256 << 20
"""Most bytes of files."""

_MAGIC = b"mixadobj"
_FORMAT = 2
_HEADER = struct.Struct("<8sIQ32s32s")  # magic, format, size, key, checksum
_LARGEST_FILE = 64 << 20
_KEY = re.compile(r"[0-9a-f]{64}")
_TEMPORARY = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}\.tmp")

_HOUR = 3600.0
_TRIMMING_KEYS = "01"
"""To store a key less than this looks at all files: one in 256, in whatever process."""


def digest(*parts: str | bytes) -> str:
    """Return the key of what depends on `parts` and on nothing else.

    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    key = hashlib.sha256()
    for part in parts:
        encoded = part.encode() if isinstance(part, str) else part
        key.update(struct.pack("<Q", len(encoded)) + encoded)
    return key.hexdigest()


class _UnusableError(OSError):
    """A folder or file that others could write, or a folder that cannot be made."""


class ObjectCache:
    """A folder of object code, shared by all processes of a user and made when first needed.

    Beyond ``limit`` bytes the least recently used files are removed. Where the folder cannot be
    used, one warning says why, and nothing is stored.
    """

    def __init__(self, folder: Path, limit: int = DEFAULT_LIMIT) -> None:
        self.folder = folder
        self._limit = limit
        self._has_warned = False

    def load(self, key: str) -> bytes | None:
        """Return the object code of a key; None if there is none that can be trusted."""
        path = self._path(key)
        try:
            self._check_folder()
            content, age = _read_trusted(path)
            if age > _HOUR:
                os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(error)
            return None
        return _parse(content, key)

    def store(self, key: str, object_code: bytes) -> None:
        """Store object code under a key."""
        path = self._path(key)
        try:
            self._make_folder()
            self._check_folder()
            _write_at_once(path, _format(key, object_code))
        except FileNotFoundError:  # another process has just removed the folder
            return
        except OSError as error:
            self._warn(error)
            return
        if key < _TRIMMING_KEYS:
            self._trim()

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileNotFoundError as error:  # what a file system says that has no place for it
            raise _UnusableError(f"the folder cannot be made ({error})") from error

    def size(self) -> tuple[int, int]:
        """Return the number of files, and of their bytes."""
        sizes = [status.st_size for _, status in self._files()]
        return len(sizes), sum(sizes)

    def clear(self) -> int:
        """Remove all files with our names; return how many there were."""
        removed = 0
        for entry, _ in self._files():
            removed += _remove(entry)
        return removed

    def problem(self) -> str | None:
        """Return why the folder cannot be used, for people, or None; it is made if it is absent."""
        try:
            if not os.path.lexists(self.folder):
                self._make_folder()
            self._check_folder()
        except OSError as error:
            return str(error)
        return None

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is not a key: expected 64 hexadecimal digits, from `digest`")
        return self.folder / key

    def _check_folder(self) -> None:
        _check_owner(self.folder, os.stat(self.folder))

    def _files(self) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
        try:
            entries = os.scandir(self.folder)
        except OSError:
            return
        with entries:
            for entry in entries:
                if _KEY.fullmatch(entry.name) or _TEMPORARY.fullmatch(entry.name):
                    with contextlib.suppress(OSError):  # another process removed it
                        yield entry, entry.stat(follow_symlinks=False)

    def _trim(self) -> None:
        """Remove files of killed writers, and the least recently used until a quarter is free."""
        now = time.time()
        files = sorted(self._files(), key=lambda file: file[1].st_mtime)
        total = sum(status.st_size for _, status in files)
        target = total if total <= self._limit else self._limit * 3 // 4
        for entry, status in files:
            is_temporary = entry.name.endswith(".tmp")
            is_abandoned = is_temporary and now - status.st_mtime > _HOUR
            if is_abandoned or (total > target and not is_temporary):
                _remove(entry)
                total -= status.st_size

    def _warn(self, error: OSError) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        warn_user(
            f"compiled kernels are not kept on disk, in {self.folder}: {error}. "
            f"Set {config.CACHE_DIR.name} to a folder that only you can write"
        )


@functools.cache
def _cache_in(folder: Path) -> ObjectCache:
    return ObjectCache(folder)


def default() -> ObjectCache:
    """Return the cache in the user's cache folder, or in ``MIXAD_CACHE_DIR``."""
    return _cache_in(config.kernel_cache_folder())


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Refuse a path that another user owns or may write; a user's Windows folders are private."""
    if not hasattr(os, "geteuid"):
        return
    if status.st_uid != os.geteuid():
        raise _UnusableError(f"{path} belongs to another user (uid {status.st_uid})")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(status.st_mode)
        raise _UnusableError(f"{path} may be written by other users (mode {mode:o})")


def _read_trusted(path: Path) -> tuple[bytes, float]:
    """Return a file's bytes and age in seconds, after a check of the very file that is read."""
    # Without O_NONBLOCK, opening a pipe that someone put there would wait for ever.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _UnusableError(f"{path} is not a regular file")
        _check_owner(path, status)
        return file.read(_LARGEST_FILE + 1), time.time() - status.st_mtime


def _write_at_once(path: Path, content: bytes) -> None:
    """Write a file so that every reader, at any time, sees all of it or nothing."""
    temporary = path.with_name(f"{path.name}.{os.urandom(8).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        _remove(temporary)
        raise


def _remove(path: os.PathLike[str]) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def _format(key: str, object_code: bytes) -> bytes:
    size, checksum = len(object_code), _checksum(key, object_code)
    return _HEADER.pack(_MAGIC, _FORMAT, size, bytes.fromhex(key), checksum) + object_code


def _parse(content: bytes, key: str) -> bytes | None:
    """Return the object code in a file's bytes; None if a byte differs from what was written."""
    if not _HEADER.size <= len(content) <= _LARGEST_FILE:
        return None
    object_code = content[_HEADER.size :]
    header = _HEADER.unpack_from(content)
    size, checksum = len(object_code), _checksum(key, object_code)
    intact = header == (_MAGIC, _FORMAT, size, bytes.fromhex(key), checksum)
    return object_code if intact else None


def _checksum(key: str, object_code: bytes) -> bytes:
    return hashlib.sha256(bytes.fromhex(key) + object_code).digest()
