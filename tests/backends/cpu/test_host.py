import dataclasses
import sys

import pytest

from mixad import config
from mixad.backends.cpu import host as host_module
from mixad.backends.cpu.cache_size import cache_bytes
from mixad.backends.cpu.host import VECTOR_FUNCTIONS, address_of, detect, usable_cpus
from mixad.errors import BackendError
from mixad.kernel.plan import DEFAULT_CACHE_BYTES


def test_host_is_detected_once():
    assert detect() is detect()


def test_host_has_a_width_and_a_cache():
    assert detect().vector_bits in (128, 256, 512)
    assert cache_bytes() >= 1 << 18


def test_scalar_maths_is_found():
    assert all(address_of(name) for name in ("exp", "expf", "tgamma", "erfc", "fmaf"))


def test_unknown_symbol_has_no_address():
    assert address_of("mixad_no_such_symbol") is None


@pytest.mark.rows("bits", [128, 256, 512])
@pytest.mark.rows("element_bits", [32, 64])
def test_vector_functions_exist_and_fill_a_register(bits, element_bits):
    host = detect()
    if host.vector_library is None or bits > host.vector_bits:
        pytest.skip(f"no vector maths of {bits} bits here")
    host = host.with_vector_bits(bits)
    found = [host.vector_function(name, element_bits) for name in VECTOR_FUNCTIONS]
    present = [f for f in found if f is not None]
    assert {"exp", "sin", "pow"} <= {f.symbol.rpartition("_")[2].rstrip("f") for f in present}
    assert all(f.lanes * element_bits == bits and address_of(f.symbol) for f in present)
    assert host.vector_function("pow", element_bits).arity == 2


def test_vector_functions_are_asked_for_one_by_one(monkeypatch):
    host = dataclasses.replace(detect(), vector_library="libmvec.so.1", vector_bits=128)
    monkeypatch.setattr(host_module, "address_of", lambda symbol: 1 if "expf" in symbol else None)
    assert host.vector_function("exp", 32).symbol == "_ZGVbN4v_expf"
    assert host.vector_function("exp", 64) is None
    assert host.vector_function("lgamma", 64) is None


def test_no_vector_function_without_a_library():
    assert dataclasses.replace(detect(), vector_library=None).vector_function("exp", 32) is None


def test_width_beyond_the_host_is_refused():
    with pytest.raises(BackendError, match="cannot compile for 1024-bit vectors"):
        detect().with_vector_bits(1024)


def test_own_width_is_the_same_host():
    assert detect().with_vector_bits(detect().vector_bits) is detect()


def test_fingerprint_tells_hosts_apart():
    host = detect()
    others = [
        dataclasses.replace(host, features=host.features + ",+more"),
        dataclasses.replace(host, cpu="other"),
        dataclasses.replace(host, vector_bits=64),
    ]
    prints = {h.fingerprint() for h in [host, *others]}
    assert len(prints) == 4


@pytest.mark.parametrize(
    ("features", "bits"),
    [
        ({}, 128),
        ({"avx": True}, 128),
        ({"avx2": True}, 256),
        ({"avx2": True, "avx512f": True}, 256),
        (
            dict.fromkeys(
                ("avx2", "avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512cd"), True
            ),
            512,
        ),
    ],
)
def test_width_follows_from_features(features, bits):
    assert host_module._vector_bits(features) == bits


def test_number_of_threads_is_the_users(monkeypatch):
    monkeypatch.setenv("MIXAD_NUM_THREADS", "7")
    assert usable_cpus() == 7


def test_number_of_threads_is_no_more_than_the_quota(monkeypatch):
    monkeypatch.delenv("MIXAD_NUM_THREADS", raising=False)
    monkeypatch.setattr(host_module, "core_quota", lambda: 0.5)
    assert usable_cpus() == 1


MACHINES = {
    # cores we may use; level, size and CPUs of each cache of the first; MiB moved at most
    "a server of 480 MiB, of which a virtual machine has two cores": (
        2, [(1, "48K", "0"), (2, "2M", "0"), (3, "480M", "0-1")], 32),
    "the same, with threads as CPUs": (2, [(2, "2M", "0-1"), (3, "480M", "0-1")], 16),
    "two cores of a small server": (2, [(1, "32K", "0"), (2, "1M", "0"), (3, "32M", "0-1")], 16),
    "all of it": (8, [(1, "32K", "0"), (2, "1M", "0"), (3, "32M", "0-7")], 32),
    "a desktop with threads": (16, [(2, "2M", "0,8"), (3, "25M", "0-15")], 25),
    "a phone's cluster": (8, [(1, "64K", "0"), (2, "4M", "0-3"), (3, "8M", "0-7")], 8),
    "no third level": (4, [(1, "64K", "0"), (2, "12M", "0-3")], 12),
    "a size that is none": (2, [(2, "odd", "0"), (3, "6M", "0-1")], 6),
    "CPUs that are none": (2, [(2, "1M", "all"), (3, "6M", "0-1")], 6),
    "nothing to read": (2, [], DEFAULT_CACHE_BYTES >> 20),
}  # fmt: skip


@pytest.mark.rows("name", MACHINES)
def test_results_go_past_caches_by_what_is_ours_of_them(name, tmp_path_factory, monkeypatch):
    cores, caches, expected = MACHINES[name]
    root = tmp_path_factory.mktemp("cache")
    for number, texts in enumerate(caches):
        (root / f"index{number}").mkdir()
        for what, text in zip(("level", "size", "shared_cpu_list"), texts, strict=True):
            (root / f"index{number}/{what}").write_text(f"{text}\n")
    monkeypatch.delenv("MIXAD_STREAM_BYTES", raising=False)
    monkeypatch.setattr(config, "available_cores", lambda: cores)
    assert cache_bytes(root) == expected << 20
    monkeypatch.setenv("MIXAD_STREAM_BYTES", "3M")
    assert cache_bytes(root) == 3 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is set on Linux")
def test_affinity_is_respected(monkeypatch):
    import os

    monkeypatch.delenv("MIXAD_NUM_THREADS", raising=False)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert usable_cpus() == 1
    finally:
        os.sched_setaffinity(0, cores)
