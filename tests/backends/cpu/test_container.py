"""Limits of control groups, from files as the system writes them."""

import os
import sys

import pytest

from mixad.backends.cpu.container import core_quota, memory_bytes

MEGABYTE = 1 << 20
NO_LIMIT = "9223372036854771712"  # what version 1 writes
if sys.platform == "win32":
    pytest.skip("control groups are Linux's", allow_module_level=True)
PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def failures(tmp_path, cases, asked):
    """Return which cases go wrong: a membership, what files say, and what is to be found."""
    wrong = []
    for number, (membership, files, expected) in enumerate(cases):
        root = tmp_path / str(number)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text + "\n")
        own = root / "membership"
        root.mkdir(exist_ok=True)
        own.write_text(membership)
        if asked(root, own) != expected:
            wrong.append((membership, files, expected, asked(root, own)))
    return wrong


def test_memory_is_the_least_that_the_groups_around_a_process_allow(tmp_path):
    two, one = "0::/outer/inner\n", "5:cpu,cpuacct:/c\n4:memory:/docker/abc\n0::/docker/abc\n"
    cases = [
        (two, {"memory.max": "max"}, PHYSICAL),
        (two, {"outer/inner/memory.max": "1048576"}, MEGABYTE),
        (two, {"outer/memory.max": "2097152", "outer/inner/memory.max": "max"}, 2 * MEGABYTE),
        (two, {"outer/memory.max": "1048576", "outer/inner/memory.max": "4194304"}, MEGABYTE),
        (two, {"outer/inner/memory.max": "4194304", "outer/memory.high": "1048576"}, MEGABYTE),
        (two, {"outer/other/memory.max": "1048576"}, PHYSICAL),  # another process's
        ("0::/\n", {"memory.max": "1048576"}, MEGABYTE),  # in a container: its group is the root
        ("0::/docker/abc\n", {"memory.max": "1048576"}, MEGABYTE),  # with the path outside
        (two, {"unified/outer/inner/memory.max": "1048576"}, MEGABYTE),
        (one, {"memory/docker/abc/memory.limit_in_bytes": "1048576"}, MEGABYTE),
        (one, {"memory/docker/memory.limit_in_bytes": "1048576",
               "memory/docker/abc/memory.limit_in_bytes": NO_LIMIT}, MEGABYTE),
        (one, {"memory/memory.limit_in_bytes": "1048576"}, MEGABYTE),
        (one, {"memory/memory.limit_in_bytes": NO_LIMIT}, PHYSICAL),
        (one, {"memory/c/memory.limit_in_bytes": "1048576"}, PHYSICAL),  # of another resource
        ("4:memory:/a:b\n", {"memory/a:b/memory.limit_in_bytes": "1048576"}, MEGABYTE),
        ("", {}, PHYSICAL),
        ("junk\n", {"memory.max": "junk"}, PHYSICAL),
        (two, {"memory.max": str(2 * PHYSICAL)}, PHYSICAL),
    ]  # fmt: skip
    assert not failures(tmp_path, cases, memory_bytes)


def test_cores_are_the_least_that_the_groups_around_a_process_pay_for(tmp_path):
    two, one = "0::/outer/inner\n", "1:cpu,cpuacct:/job\n"
    cases = [
        (two, {"cpu.max": "max 100000"}, None),
        (two, {"cpu.max": "150000 100000"}, 1.5),
        (two, {"outer/cpu.max": "150000 100000", "outer/inner/cpu.max": "max 100000"}, 1.5),
        (two, {"outer/cpu.max": "50000 100000", "outer/inner/cpu.max": "200000 100000"}, 0.5),
        (two, {"cpu.max": "junk"}, None),
        (one, {"cpu/job/cpu.cfs_quota_us": "-1", "cpu/job/cpu.cfs_period_us": "100000"}, None),
        (one, {"cpu/job/cpu.cfs_quota_us": "50000", "cpu/job/cpu.cfs_period_us": "100000"}, 0.5),
        (one, {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
        (one, {}, None),
    ]
    assert not failures(tmp_path, cases, core_quota)
