"""The experiments of Revels et al. (2018), by mixad and what it is compared with.

Revels, Besard, Churavy, De Sutter and Vielma, *Dynamic Automatic Differentiation of GPU Broadcast
Kernels*, arXiv:1810.08297.  ``python -m benchmarks.paper [experiment ...]`` runs

- ``hm_lstm``: the cell update of a hierarchical multiscale LSTM, in mixed mode, in pure reverse
  mode with selections for branches, by other libraries, and by the paper's own kernel;
- ``divergence``: the same with control values that neighbours share, or do not;
- ``arity``: a product of 1 … 24 factors, with what the compiler makes of it for a CUDA device;
- ``placement``: partials stored with the value or computed when the cotangent comes, in time and in
  bytes that are held in between.

on a CUDA device if there is one, else on the host.  Every contender's values are compared with
formulas in float64 before it is timed; contenders are timed in turns (`benchmarks.peers.harness`).
What the paper published stands beside: `benchmarks.paper.published`.
"""

EXPERIMENTS = ("hm_lstm", "divergence", "arity", "placement")
