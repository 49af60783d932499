"""The inlined functions: programs of the ops whose lowering is ``"program"``.

Each is a formula in instruction-level ops, written once for f32 and f64; what it computes, op by
op, is the function's definition on every platform.  `expand` puts them in place of the ops.

Polynomials are derived by ``tools/derive_maths.py``; errors are measured by
``tools/measure_accuracy.py`` and stated in ``docs/reference/accuracy.md``.
"""

from mixad.scalar.math.expand import PROGRAMS, expand, program_of

__all__ = ["PROGRAMS", "expand", "program_of"]
