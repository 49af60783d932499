import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from mixad.backends import object_cache
from mixad.backends.object_cache import ObjectCache, digest

KEY = digest("a kernel")
ENTRY = b"\x7fELF" + bytes(range(256)) * 40

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give files away"
)


@pytest.fixture
def cache(tmp_path):
    return ObjectCache(tmp_path / "cache/objects")


@pytest.fixture
def stored(cache):
    cache.store(KEY, ENTRY)
    return cache


def file_of(cache):
    return cache.folder / KEY


def never():
    raise AssertionError("it is cached, so it is not made")


def get_or_make(cache, key, make):
    """Return what is kept for a key; if there is nothing, make it and keep it."""
    found = cache.load(key)
    if found is None:
        found = make()
        cache.store(key, found)
    return found


def test_what_is_stored_is_loaded(stored):
    assert stored.load(KEY) == ENTRY
    assert get_or_make(stored, KEY, never) == ENTRY


def test_nothing_is_loaded_for_an_unknown_key(cache):
    assert cache.load(KEY) is None
    assert not cache.folder.exists()


def test_what_is_made_is_kept(cache):
    assert get_or_make(cache, KEY, lambda: ENTRY) == ENTRY
    assert get_or_make(ObjectCache(cache.folder), KEY, never) == ENTRY


@posix
def test_folder_and_files_are_the_users_only(stored):
    assert stat.S_IMODE(stored.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file_of(stored).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "key", ["", "../" * 10 + "etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n"]
)
def test_file_names_are_digests_only(cache, key):
    with pytest.raises(ValueError, match="is not a key"):
        cache.store(key, ENTRY)
    with pytest.raises(ValueError, match="is not a key"):
        cache.load(key)


def corruptions():
    size = len(object_cache._format(KEY, ENTRY))
    places = [0, 8, 12, 16, 24, 50, 80, object_cache._HEADER.size, size // 2, size - 1]
    for place in places:
        yield f"flip{place}", lambda b, p=place: b[:p] + bytes([b[p] ^ 1]) + b[p + 1 :]
        yield f"cut{place}", lambda b, p=place: b[:p]
    yield "longer", lambda b: b + b"\0"
    yield "zeros", lambda b: bytes(len(b))
    yield "text", lambda b: b"not object code\n"
    yield "huge size", lambda b: b[:12] + b"\xff" * 8 + b[20:]
    yield "other key", lambda b: object_cache._format(digest("other"), ENTRY)


@pytest.mark.rows("damage", [pytest.param(c, id=name) for name, c in corruptions()])
def test_damaged_file_is_ignored_and_written_anew(stored, damage):
    file_of(stored).write_bytes(damage(file_of(stored).read_bytes()))
    assert stored.load(KEY) is None
    assert get_or_make(stored, KEY, lambda: ENTRY) == ENTRY
    assert stored.load(KEY) == ENTRY


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_folder_that_others_may_write_is_refused_with_one_warning(stored, mode):
    stored.folder.chmod(mode)
    with pytest.warns(RuntimeWarning, match=f"mode {mode:o}.*MIXAD_CACHE_DIR"):
        assert stored.load(KEY) is None
    assert "may be written by other users" in stored.problem()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert get_or_make(stored, KEY, lambda: ENTRY) == ENTRY
        stored.store(digest("more"), ENTRY)
    assert len(list(stored.folder.iterdir())) == 1


@posix
def test_file_that_others_may_write_is_refused_and_written_anew(stored):
    file_of(stored).chmod(0o666)
    with pytest.warns(RuntimeWarning, match="may be written by other users"):
        assert get_or_make(stored, KEY, lambda: ENTRY) == ENTRY
    assert stat.S_IMODE(file_of(stored).stat().st_mode) == 0o600
    assert get_or_make(stored, KEY, never) == ENTRY


@as_root
def test_folder_of_another_user_is_refused(stored):
    os.chown(stored.folder, 12345, 12345)
    with pytest.warns(RuntimeWarning, match="belongs to another user .uid 12345."):
        assert stored.load(KEY) is None
    assert "belongs to another user" in stored.problem()


@as_root
def test_file_of_another_user_is_refused_and_written_anew(stored):
    os.chown(file_of(stored), 12345, 12345)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        assert get_or_make(stored, KEY, lambda: ENTRY) == ENTRY
    assert get_or_make(stored, KEY, never) == ENTRY


@posix
def test_link_in_place_of_a_file_is_not_followed(stored, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    file_of(stored).rename(elsewhere)
    file_of(stored).symlink_to(elsewhere)
    with pytest.warns(RuntimeWarning, match="not kept on disk"):
        assert stored.load(KEY) is None


@posix
def test_pipe_in_place_of_a_file_does_not_block(stored):
    file_of(stored).unlink()
    os.mkfifo(file_of(stored), 0o600)
    with pytest.warns(RuntimeWarning, match="not a regular file"):
        assert stored.load(KEY) is None


def test_folder_that_cannot_be_made_leaves_us_without_a_cache(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = ObjectCache(tmp_path / "file/objects")
    with pytest.warns(RuntimeWarning, match="not kept on disk"):
        assert get_or_make(cache, KEY, lambda: ENTRY) == ENTRY
    assert get_or_make(cache, KEY, lambda: ENTRY) == ENTRY


def test_failed_write_leaves_nothing(cache, monkeypatch):
    def refuse(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.warns(RuntimeWarning, match="No space left"):
        cache.store(KEY, ENTRY)
    assert list(cache.folder.iterdir()) == []


def test_folder_removed_amid_a_write_is_not_worth_a_warning(cache, monkeypatch):
    def vanish(path, content):
        path.parent.rmdir()
        path.write_bytes(content)

    monkeypatch.setattr(object_cache, "_write_at_once", vanish)
    cache.store(KEY, ENTRY)
    assert cache.load(KEY) is None


def test_size_and_clear(stored):
    stored.store(digest("more"), ENTRY)
    (stored.folder / "a users file").write_text("not ours")
    assert stored.size() == (2, 2 * file_of(stored).stat().st_size)
    assert stored.clear() == 2
    assert stored.size() == (0, 0)
    assert (stored.folder / "a users file").exists()
    assert stored.problem() is None


def test_least_recently_used_go_first(tmp_path):
    cache = ObjectCache(tmp_path / "objects", limit=50_000)
    keys = [digest(str(k)) for k in range(8)]
    for age, key in enumerate(keys):
        cache.store(key, ENTRY)
        then = time.time() - 100_000 + 10_000 * age
        os.utime(cache.folder / key, (then, then))
    assert cache.load(keys[0]) == ENTRY
    cache._trim()
    assert cache.size()[1] <= 50_000 * 3 // 4
    assert cache.load(keys[0]) == ENTRY
    assert cache.load(keys[1]) is None
    assert cache.load(keys[-1]) == ENTRY


def test_cache_does_not_grow_beyond_its_limit(tmp_path):
    cache = ObjectCache(tmp_path / "objects", limit=100_000)
    for k in range(2000):
        cache.store(digest(str(k)), ENTRY)
    trims = sum(digest(str(k)) < object_cache._TRIMMING_KEYS for k in range(2000))
    assert 2000 / 512 < trims < 2000 / 128
    cache.store("0" * 64, ENTRY)
    assert cache.size()[1] <= 100_000


def test_what_killed_writers_left_is_removed_in_time(stored):
    left = [stored.folder / f"{KEY}.{k:016x}.tmp" for k in range(2)]
    for path in left:
        path.write_bytes(b"half")
    os.utime(left[0], (0, 0))
    stored._trim()
    assert [path.exists() for path in left] == [False, True]
    assert stored.load(KEY) == ENTRY


WRITER = """
import sys
from pathlib import Path
from mixad.backends.object_cache import ObjectCache, digest
cache = ObjectCache(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    cache.store(digest("shared"), bytes(500_000))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
def test_killed_writers_leave_no_broken_entry(cache):
    for delay in (0.0, 0.003, 0.01, 0.02, 0.035):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(cache.folder)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout.readline() == "ready\n"
            time.sleep(delay)
            writer.kill()
        entry = cache.load(digest("shared"))
        assert entry is None or entry == bytes(500_000)


def use_shared_cache(folder, seed, results):
    cache = ObjectCache(Path(folder), limit=100_000)  # a third of what is stored
    wrong = 0
    for k in range(300):
        name = str((k * 7 + seed) % 40)
        expected = name.encode() * 5000
        wrong += get_or_make(cache, digest(name), lambda e=expected: e) != expected
        if k % 50 == seed:
            cache.clear()
    results.put(wrong)


@pytest.mark.slow
def test_processes_share_one_cache(tmp_path):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [
        context.Process(target=use_shared_cache, args=(str(tmp_path / "objects"), seed, results))
        for seed in range(4)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert found == [0] * 4
    assert [process.exitcode for process in processes] == [0] * 4


def test_default_cache_is_in_the_folder_of_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("MIXAD_CACHE_DIR", str(tmp_path))
    assert object_cache.default().folder == tmp_path / "kernels"
    assert object_cache.default() is object_cache.default()


def test_digest_depends_on_every_part_and_its_bounds():
    keys = {
        digest(),
        digest(""),
        digest("a"),
        digest("a", ""),
        digest("ab", "c"),
        digest("a", "bc"),
    }
    assert len(keys) == 6
    assert digest("a") == digest(b"a")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no file system that takes no folder")
def test_folder_that_cannot_be_made_is_said():
    """The file system of processes says that there is no such folder, whoever wants to make it."""
    unmade = ObjectCache(Path("/proc/nope/kernels"))
    assert "cannot be made" in unmade.problem()
    with pytest.warns(RuntimeWarning, match=r"not kept on disk.*cannot be made.*MIXAD_CACHE_DIR"):
        unmade.store(digest("key"), b"code")
    assert unmade.load(digest("key")) is None
