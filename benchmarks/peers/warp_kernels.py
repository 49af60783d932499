"""Warp's kernels, in a module of their own because Warp must be there to define them."""

import warp as wp


@wp.func
def sigmoid(x: float):
    return 1.0 / (1.0 + wp.exp(-x))


@wp.kernel
def cell_update(
    z: wp.array2d(dtype=float),
    zb: wp.array2d(dtype=float),
    row_step: int,
    column_step: int,
    c: wp.array2d(dtype=float),
    f: wp.array2d(dtype=float),
    i: wp.array2d(dtype=float),
    g: wp.array2d(dtype=float),
    value: wp.array2d(dtype=float),
):
    r, k = wp.tid()
    if z[r * row_step, k * column_step] == 1.0:
        value[r, k] = sigmoid(i[r, k]) * wp.tanh(g[r, k])
    else:
        if zb[r * row_step, k * column_step] == 0.0:
            value[r, k] = c[r, k]
        else:
            value[r, k] = sigmoid(f[r, k]) * c[r, k] + sigmoid(i[r, k]) * wp.tanh(g[r, k])


@wp.kernel
def eccentric_anomaly(
    mean_anomaly: wp.array(dtype=wp.float64),
    eccentricity: wp.array(dtype=wp.float64),
    result: wp.array(dtype=wp.float64),
):
    k = wp.tid()
    m = mean_anomaly[k]
    e = eccentricity[k]
    x = m
    if e >= wp.float64(0.8):
        x = wp.float64(wp.PI)
    step = wp.float64(1.0)
    while wp.abs(step) > wp.float64(1e-10):
        step = (x - e * wp.sin(x) - m) / (wp.float64(1.0) - e * wp.cos(x))
        x = x - step
    result[k] = x


@wp.kernel
def chain(x: wp.array(dtype=float), total: wp.array(dtype=wp.float64)):
    v = x[wp.tid()]
    a = wp.sin(v)
    d = wp.tanh(a * v + 0.5)
    j = wp.exp(-(v / wp.sqrt(d * d + 1.0)))
    wp.atomic_add(total, 0, wp.float64(j * d - a))


@wp.kernel
def broadcast_term(
    column: wp.array2d(dtype=float),
    row: wp.array(dtype=float),
    scalar: wp.array(dtype=float),
    full: wp.array2d(dtype=float),
    total: wp.array(dtype=wp.float64),
):
    r, k = wp.tid()
    term = wp.tanh(column[r, 0] * full[r, k] + row[k]) * scalar[0]
    wp.atomic_add(total, 0, wp.float64(term))


@wp.kernel
def tiny_term(x: wp.array(dtype=wp.float64), total: wp.array(dtype=wp.float64)):
    v = x[wp.tid()]
    wp.atomic_add(total, 0, wp.sin(v) * v + wp.exp(-v))
