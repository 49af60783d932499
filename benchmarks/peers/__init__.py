"""The same work in mixad and in its peers, paired call by call.

``python -m benchmarks.peers [workload ...]`` runs every implementation of a workload in one
process. Each is first checked against a float64 NumPy reference that was derived by hand, then
all are timed in turns (see `benchmarks.peers.harness`), so that what disturbs the machine disturbs
all of them. A peer that cannot run is listed with the reason.

One module per workload. Each has

- ``TARGETS``: the ratios and times that mixad must reach, as data;
- ``SIZES``: the sizes it runs when none are given;
- ``cases(sizes, seed)``: what is to be timed and compared.
"""

THREAD_VARIABLES = (
    "MIXAD_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
