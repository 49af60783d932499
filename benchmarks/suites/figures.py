"""Figures that are the same on every machine: see `benchmarks.figures` and `benchmarks.tracked`."""

from __future__ import annotations

from benchmarks.figures import CASES, call_figures, device_figures
from mixad.errors import BackendError


class Figures:
    """What a call records and launches, whatever launches it; counted once for all benchmarks."""

    params = (tuple(CASES),)
    param_names = ("call",)

    def setup_cache(self):
        return {name: call_figures(make()) for name, make in CASES.items()}

    def track_kernels_launched(self, found, call):
        return found[call]["kernels launched"]

    def track_bytes_moved(self, found, call):
        return found[call]["bytes moved"]

    def track_program_equations(self, found, call):
        return found[call]["program equations"]

    def track_tape_nodes(self, found, call):
        return found[call]["tape nodes"]

    setup_cache.timeout = 300
    track_kernels_launched.unit = "launches"
    track_bytes_moved.unit = "bytes"
    track_program_equations.unit = "equations"
    track_tape_nodes.unit = "nodes"


class DeviceFigures:
    """What the machine code for a CUDA device uses, of the kernel that uses most."""

    params = (tuple(CASES),)
    param_names = ("call",)

    def setup_cache(self):
        try:
            return {name: device_figures(make()) for name, make in CASES.items()}
        except BackendError as error:  # no compiler for devices is here
            return str(error)

    def setup(self, found, call):
        if isinstance(found, str):
            raise NotImplementedError(found)

    def track_registers(self, found, call):
        return found[call]["registers"]

    def track_local_bytes(self, found, call):
        return found[call]["local bytes"]

    setup_cache.timeout = 300
    track_registers.unit = "registers"
    track_local_bytes.unit = "bytes"
