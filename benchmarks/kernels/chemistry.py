"""A step of a cell's chemistry: Michaelis and Menten's four species, in sub-steps that adapt.

Enzyme and substrate make a complex and part again; the complex makes enzyme and product.
"""

from __future__ import annotations

import mixad


def rates(e, s, c, k1, k2, k3):
    """Return by how much substrate, complex and product change in a unit of time."""
    bound, parted, made = k1 * e * s, k2 * c, k3 * c
    return parted - bound, bound - parted - made, made


def after(e, s, c, p, k1, k2, k3, time, tolerance):
    """Return the concentrations after a time: enzyme, substrate, complex, product.

    The pair of orders 3 and 2 of Bogacki and Shampine (1989), whose error decides how long the next
    sub-step is; derivatives are those of the sub-steps that were made (Bock, 1981).
    """
    t, h = 0.0, 0.1 * time
    s1, c1, p1 = rates(e, s, c, k1, k2, k3)
    while t < time:
        h = min(h, time - t)
        s2, c2, p2 = rates(e - 0.5 * h * c1, s + 0.5 * h * s1, c + 0.5 * h * c1, k1, k2, k3)
        s3, c3, p3 = rates(e - 0.75 * h * c2, s + 0.75 * h * s2, c + 0.75 * h * c2, k1, k2, k3)
        ds = h * (2.0 * s1 + 3.0 * s2 + 4.0 * s3) / 9.0
        dc = h * (2.0 * c1 + 3.0 * c2 + 4.0 * c3) / 9.0
        dp = h * (2.0 * p1 + 3.0 * p2 + 4.0 * p3) / 9.0
        s4, c4, p4 = rates(e - dc, s + ds, c + dc, k1, k2, k3)
        off_s = h * (-5.0 * s1 + 6.0 * s2 + 8.0 * s3 - 9.0 * s4) / 72.0
        off_c = h * (-5.0 * c1 + 6.0 * c2 + 8.0 * c3 - 9.0 * c4) / 72.0
        off = max(abs(off_s), abs(off_c), 1e-3 * tolerance)
        if off <= tolerance:
            t = t + h
            e, s, c, p = e - dc, s + ds, c + dc, p + dp
            s1, c1, p1 = s4, c4, p4
        h = h * mixad.stop_gradient(max(0.2, 0.9 * (tolerance / off) ** (1.0 / 3.0)))
    return e, s, c, p
