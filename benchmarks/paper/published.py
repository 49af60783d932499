"""What the paper and the raw data of its published benchmark repository say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SOURCE = "Revels, Besard, Churavy, De Sutter, Vielma (2018), arXiv:1810.08297, and its raw data"

HM_LSTM = {
    "1080Ti": {"TensorFlow XLA": 852, "reverse mode, Julia": 1233, "fused forward mode": 463},
    "P100": {"TensorFlow XLA": 870, "reverse mode, Julia": 1513, "fused forward mode": 568},
    "V100": {"TensorFlow XLA": 807, "reverse mode, Julia": 826, "fused forward mode": 193},
}
"""Kernel time of the cell at 2048² elements, in microseconds, by device."""

DIVERGENCE = {"random": 192.8, "32 neighbours alike": 146.2}
"""Kernel time on the V100, 2048² elements, in microseconds."""

ARITY = {"N": (1, 10), "registers": (22, 56), "occupancy": (0.94, 0.53)}
"""At the smallest and the largest number of inputs; about 820 GB/s from N = 3 on, on the V100."""

Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def hm_lstm() -> Table:
    """Return the published kernel times, each over that of the fused forward mode."""
    rows = []
    for device, times in HM_LSTM.items():
        fused = times["fused forward mode"]
        for name, microseconds in times.items():
            rows.append([device, name, f"{microseconds}", f"{microseconds / fused:.2f}"])
    return ("GPU, 2048²", "contender", "kernel, µs", "× fused forward mode"), rows


def divergence() -> Table:
    """Return the published cost of control values that neighbours do not share."""
    alike = DIVERGENCE["32 neighbours alike"]
    rows = [[c, f"{t}", f"{t / alike:.2f}"] for c, t in DIVERGENCE.items()]
    return ("V100, 2048²: control", "kernel, µs", "× alike"), rows


def arity() -> Table:
    """Return the published registers and occupancy."""
    rows = [
        [str(n), str(registers), f"{occupancy:.2f}"]
        for n, registers, occupancy in zip(*ARITY.values(), strict=True)
    ]
    return ("N", "registers", "occupancy"), rows


TABLES: Mapping[str, Table] = {
    "hm_lstm": hm_lstm(),
    "divergence": divergence(),
    "arity": arity(),
}
