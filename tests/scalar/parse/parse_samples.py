"""Scalar functions in plain Python; the tests run each both ways."""

import math

import numpy as np

from mixad import special

TOLERANCE = 1e-10
WEIGHTS = (0.5, -1.25, 2.0)
PAIRS = ((1.0, 2.0), (3.0, 4.0))


def kepler(mean, e):
    E = mean
    while True:
        d = (E - e * math.sin(E) - mean) / (1 - e * math.cos(E))
        E -= d
        if abs(d) < TOLERANCE:
            break
    return E


def cell_update(z, zb, c, f, i, g):
    if z == 1.0:
        return special.sigmoid(i) * special.tanh(g)
    elif zb == 0.0:
        return c
    return special.sigmoid(f) * c + special.sigmoid(i) * special.tanh(g)


def early_returns(x, y):
    if x < 0:
        if y < 0:
            return -1.0
        x = -x
    t = x * y
    if t > 4:
        return t
    for k in range(3):
        t += k * x
        if t > 3:
            return t - 0.5
    return x + y


def for_else(x, y):
    for k in range(5):
        if k * x > y:
            break
        x += 0.25
    else:
        return -x
    return x + k


def while_else(x, y):
    n = 0
    while x < 5:
        x += 1
        n += 1
        if x > y:
            break
    else:
        n = -n
    return n + x


def nested_loops(x, y):
    t = 0
    for i in range(6):
        for j in range(i):
            if j * x > 7:
                break
            if i * j > 12:
                return t
            if j == 1:
                continue
            t += j * x - y
        else:
            t -= 1
        if t > 20:
            return t + i
    return t


def counts_down(x, y):
    s = 0
    for i in range(7, -2, -3):
        s = s * x + i
        i = 100  # does not change the iteration
        y += i
    return s + y + i


def runtime_range(x, y):
    s = 0.0
    for i in range(int(x), int(y), int(x) - 2 if int(x) != 2 else 1):
        s += i
        if s > 50:
            break
    return s


def swaps(x, y):
    x, y = y, x
    (a, b), c = (x, y), 3
    for _ in range(3):
        a, b = b, a + b
    a, *rest = a, b, c, x
    return a, rest[0] - rest[-1], len(rest)


def chained(x, y):
    inside = 0 < x < y <= 5 != x
    return 1.0 if (inside and not (x == 2 or y == 4)) or y == 3 else -1.0


def unrolled(x, y):
    s = 0
    for w in WEIGHTS:
        if w * x < -2:
            continue
        s += w * x
        if s > y:
            break
    for i, (a, b) in enumerate(PAIRS):
        s += a * x + b * y + i
    for k in range(3):
        s += WEIGHTS[k] * PAIRS[k % 2][1]
    return s + sum(WEIGHTS) + max(WEIGHTS) + len(PAIRS)


def helper(x, scale=2.0, *, shift=0.5):
    if x < 0:
        return shift
    return x * scale + shift


def calls_helpers(x, y):
    def inner(t, power=2):
        if t > y:
            return helper(t)
        return t**power

    double = lambda t: t + inner(t)  # noqa: E731
    return helper(double(x), shift=y) + inner(y, power=3) + helper(y, 3.0) - double(1.5)


def captured_variable(x, y):
    k = 1.0

    def scaled(t):
        return k * t

    for _ in range(3):
        k += x
        y = scaled(y)
    return y + scaled(1.0)


def branch_types(x, y):
    if x > y:
        n = 1
    elif x > 0:
        n = x
    else:
        n = True
    return n * y


def logic_of_numbers(x, y):
    a = int(x) and y
    b = int(y) or x
    return a + b + (not int(x))


def rounding(x, y):
    return (
        math.floor(x) + math.ceil(y) + math.trunc(x) + abs(x) + round(y) + np.around(x),
        int(x) + int(y),
        x // (abs(y) + 1),
        x % (abs(y) + 1),
        divmod(x, 3)[1],
        -7 // 2 + int(x) % 3,
    )


def powers(x, y):
    a = abs(x) + 0.5
    return a**2 + a**3 - a**-1 + a**0.5 + a**y + pow(a, 4) + x**0 + 2**3 + 10**-2 + math.pow(a, y)


def mathematics(x, y):
    a = abs(x) + 0.1
    return (
        math.exp(-a) + math.log(a) + math.log(a, 3) + math.log2(a) + math.log10(a) + math.log1p(a),
        math.sqrt(a) + math.hypot(x, y) + math.atan2(x, y) + math.copysign(a, y) + math.fabs(y),
        math.sin(math.pi * x) + math.cos(y) + math.tan(x / 10) + math.tanh(y) + math.erf(x),
        math.degrees(x) + math.radians(y) + math.expm1(x / 10) + math.fmod(x, a + 1),
        np.square(x)
        + np.maximum(x, y)
        - np.minimum(x, 1.0)
        + np.where(x > y, x, y)
        + np.clip(x, -1, 1),
        np.logaddexp(x, y) + np.arctan2(x, a) + np.sign(x) + np.rad2deg(x) + np.reciprocal(a),
        float(np.isfinite(x)) + float(np.logical_and(x > 0, y > 0)) + np.heaviside(x, 0.5),
    )


def bits(x, y):
    n, m = int(x), int(y)
    return (n & m) + (n | 3) ^ m, ~n, (n << 2) + (m >> 1)


def membership(x, y):
    return 1.0 if int(x) in (0, 2, 4) else 2.0 if int(y) not in (1, 3) else 3.0


def collatz(x, y):
    n, steps = abs(int(x)) + 1, 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
        if steps > 40 + y:
            return -1
    return steps


def returns_in_while_true(x, y):
    while True:
        x = x * 0.5 + 0.1
        if x < 1:
            if y > 0:
                return x
            continue_anyway = y
            while True:
                y += 1
                if y > 0:
                    break
            return continue_anyway + y


def assigned_in_all_paths(x, y):
    if x > 0:
        r = x
        s = 1
    else:
        if y > 0:
            return y
        r = -x
        s = 2
    while True:
        q = r * s
        r += 1
        if q > 3:
            last = q
            break
        if r > 50:
            last = 0.0
            break
    return last + r


TWO_ARGUMENTS = [
    kepler, early_returns, for_else, while_else, nested_loops, counts_down, runtime_range, swaps,
    chained, unrolled, calls_helpers, captured_variable, branch_types, logic_of_numbers, rounding,
    powers, mathematics, bits, membership, collatz, returns_in_while_true, assigned_in_all_paths,
]  # fmt: skip
