"""Eigenvalues of symmetric matrices of three rows, as of diffusion tensors and of stresses."""

from __future__ import annotations

import math


def eigenvalues(xx, xy, xz, yy, yz, zz):
    """Return the three, largest first, by the cosine of a third of an angle (Smith, 1961).

    Where all three are equal, so are their derivatives; where two nearly are, they lose half of
    their digits.
    """
    off = xy * xy + xz * xz + yz * yz
    mean = (xx + yy + zz) / 3.0
    a, b, c = xx - mean, yy - mean, zz - mean
    square = (a * a + b * b + c * c + 2.0 * off) / 6.0
    if square == 0.0:
        return mean, mean, mean
    p = math.sqrt(square)
    determinant = a * (b * c - yz * yz) - xy * (xy * c - yz * xz) + xz * (xy * yz - b * xz)
    half = 0.5 * determinant / (square * p)
    third = math.acos(min(max(half, -1.0), 1.0)) / 3.0
    largest = mean + 2.0 * p * math.cos(third)
    smallest = mean + 2.0 * p * math.cos(third + 2.0943951023931953)
    return largest, 3.0 * mean - largest - smallest, smallest
