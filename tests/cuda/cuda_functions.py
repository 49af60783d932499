"""Functions whose kernels are both run by the emulator and compiled by NVRTC."""

import math

import mixad
from mixad.special import sigmoid, tanh


@mixad.broadcast
def cell_update(z, zb, c, f, i, g):
    if z == 1.0:
        return sigmoid(i) * tanh(g)
    elif zb == 0.0:
        return c
    return sigmoid(f) * c + sigmoid(i) * tanh(g)


@mixad.broadcast
def anomaly(mean, eccentricity):
    e = mean
    while True:
        step = (e - eccentricity * math.sin(e) - mean) / (1.0 - eccentricity * math.cos(e))
        e = e - step
        if abs(step) < 1e-12:
            return e
