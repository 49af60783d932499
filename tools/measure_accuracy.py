"""Measure the errors of the inlined functions and write the accuracy page.

Run from the repository root; mpmath is the reference::

    python tools/measure_accuracy.py [--points 20000]

The points, the reference and the evaluator are those of ``tests/scalar/math``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "scalar" / "math"))

from ulp_reference import CLAIMS, FLOATS, MAX_ULP, worst  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "accuracy.md"
SEED = 20260101

INTRODUCTION = """\
---
orphan: true
---

# Accuracy of the inlined functions

<!-- Written by tools/measure_accuracy.py. -->

These functions are programs of mixad's own (`mixad.scalar.math`), inlined into every kernel: their
results are the same bits on every CPU, operating system and vector width. Errors are in units in
the last place against mpmath, the largest of {points:,} random points of each kind (ordinary
arguments, the whole range of exponents, denormal numbers included) and of edge points: powers of
two, floats around breakpoints, overflow and underflow thresholds, multiples of π/4 up to 2^1000.
Claimed are at most {f32:g} ulp in float32 and {f64:g} ulp in float64, and tests hold them to it.

| function | float32 | float64 | |
|---|---|---|---|
"""

CONCLUSION = """
Subnormal results are rounded, never flushed. Infinities, signed zeros and nan follow C23, annex F.
`sign`, `relu`, `minimum`, `maximum`, `nextafter`, `isnan`, `isinf`, `isfinite` and integer powers
are exact, and so are `exp2` and `log2` of powers of two, `pow(x, 1)`, and whole powers of whole
numbers that are representable.

Where the terms of `logaddexp` cancel, and beside the roots of `digamma` and `polygamma` on the
negative axis, the error is small beside the terms, not beside the result. Orders of `polygamma`
beyond 30, up to 100, add the rounding of n!: up to 8 ulp in float64.
"""


def rows(points: int) -> list[str]:
    """Return one line of the table per function; progress goes to the terminal."""
    lines = []
    for name, claim in CLAIMS.items():
        errors = [worst(name, type, points, SEED)[0] for type in FLOATS]
        lines.append(f"| `{name}` | {errors[0]:.2f} | {errors[1]:.2f} | {claim.note} |\n")
        print(lines[-1], end="", flush=True)
    return lines


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=20_000)
    points = parser.parse_args().points
    f32, f64 = (MAX_ULP[type] for type in FLOATS)
    introduction = INTRODUCTION.format(points=points, f32=f32, f64=f64)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("".join([introduction, *rows(points), CONCLUSION]), encoding="utf-8")


if __name__ == "__main__":
    main()
