"""Bundle adjustment: what a camera sees of a point, and where it was observed.

The projection of ADBench (Srajer, Kukelova and Fitzgibbon, 2018): Rodrigues' rotation, a pinhole
with two radial terms, a weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mixad

INPUTS = ("r0", "r1", "r2", "c0", "c1", "c2", "focal", "u0", "v0", "k1", "k2", "x", "y", "z", "w")
"""Rotation vector, centre, focal length, principal point, radial terms; the point; the weight."""

CAMERA, POINT = 11, 3
"""How many of them are a camera's, and how many a point's."""


def rotated(r0, r1, r2, x, y, z):
    """Return a point turned about a vector by its length in radians."""
    angle2 = r0 * r0 + r1 * r1 + r2 * r2
    if angle2 < 1e-20:  # to first order: no rotation has no axis
        return x + r1 * z - r2 * y, y + r2 * x - r0 * z, z + r0 * y - r1 * x
    angle = math.sqrt(angle2)
    s, c = math.sin(angle) / angle, math.cos(angle)
    dot = (r0 * x + r1 * y + r2 * z) * (1.0 - c) / angle2
    return (
        c * x + s * (r1 * z - r2 * y) + dot * r0,
        c * y + s * (r2 * x - r0 * z) + dot * r1,
        c * z + s * (r0 * y - r1 * x) + dot * r2,
    )


def residual(r0, r1, r2, c0, c1, c2, focal, u0, v0, k1, k2, x, y, z, w, u_seen, v_seen):
    """Return by how much the projection of a point misses where it was seen, weighted."""
    px, py, pz = rotated(r0, r1, r2, x - c0, y - c1, z - c2)
    u, v = px / pz, py / pz
    radius2 = u * u + v * v
    zoom = focal * (1.0 + radius2 * (k1 + radius2 * k2))
    return w * (u0 + zoom * u - u_seen), w * (v0 + zoom * v - v_seen)


def residual_of_arrays(
    xp, r0, r1, r2, c0, c1, c2, focal, u0, v0, k1, k2, x, y, z, w, u_seen=0.0, v_seen=0.0
):
    """Return the same of arrays, by the functions of their library; there must be a rotation."""
    x, y, z = x - c0, y - c1, z - c2
    angle2 = r0 * r0 + r1 * r1 + r2 * r2
    angle = xp.sqrt(angle2)
    s, c = xp.sin(angle) / angle, xp.cos(angle)
    dot = (r0 * x + r1 * y + r2 * z) * (1.0 - c) / angle2
    px = c * x + s * (r1 * z - r2 * y) + dot * r0
    py = c * y + s * (r2 * x - r0 * z) + dot * r1
    pz = c * z + s * (r0 * y - r1 * x) + dot * r2
    u, v = px / pz, py / pz
    radius2 = u * u + v * v
    zoom = focal * (1.0 + radius2 * (k1 + radius2 * k2))
    return w * (u0 + zoom * u - u_seen), w * (v0 + zoom * v - v_seen)


def gathered(cameras: Any, points: Any, weights: Any) -> Callable[..., Any]:
    """Return the kernel of an observation's residual, which looks its inputs up.

    Parameters
    ----------
    cameras, points, weights : array
        Of shapes (n, 11), (m, 3), (p,).

    Returns
    -------
    BroadcastFunction
        Of indices of camera, point and weight, of the observed point, and of a displacement of each
        of the `INPUTS`: partials with respect to these are those with respect to what was looked
        up.
    """

    @mixad.broadcast
    def observation(camera, point, weight, u_seen, v_seen,
                    r0, r1, r2, c0, c1, c2, focal, u0, v0, k1, k2, x, y, z, w):  # fmt: skip
        return residual(
            cameras[camera, 0] + r0,
            cameras[camera, 1] + r1,
            cameras[camera, 2] + r2,
            cameras[camera, 3] + c0,
            cameras[camera, 4] + c1,
            cameras[camera, 5] + c2,
            cameras[camera, 6] + focal,
            cameras[camera, 7] + u0,
            cameras[camera, 8] + v0,
            cameras[camera, 9] + k1,
            cameras[camera, 10] + k2,
            points[point, 0] + x,
            points[point, 1] + y,
            points[point, 2] + z,
            weights[weight] + w,
            u_seen,
            v_seen,
        )

    return observation
