"""Lambert's W: the solution of w exp(w) = x, its principal branch."""

from __future__ import annotations

import math


def lambert_w(x):
    """Return W₀(x), nan below -1/e: Halley's steps from what is near (Corless et al., 1996)."""
    q = 2.0 * (math.e * x + 1.0)
    if not q >= 0.0:
        return math.nan
    if q < 1e-6:  # beside the branch point the equation itself has lost half of the digits
        p = math.sqrt(q)
        return -1.0 + p * (1.0 - p * (1.0 / 3.0 - p * (11.0 / 72.0 - p * (43.0 / 540.0))))
    if q < 1.0:
        p = math.sqrt(q)
        w = -1.0 + p * (1.0 - p / 3.0)
    elif x < 3.0:
        w = math.log1p(x) * (1.0 - 0.3 * math.log1p(x) / (1.0 + math.log1p(x)))
    else:
        w = math.log(x) - math.log(math.log(x))
    for _ in range(10):
        exp = math.exp(w)
        f = w * exp - x
        step = f / (exp * (w + 1.0) - 0.5 * (w + 2.0) * f / (w + 1.0))
        w = w - step
        if abs(step) <= 1e-9 * (1.0 + abs(w)):  # cubic: the step after it would be nothing
            break
    return w
