"""Functions with complex numbers that the parser refuses; `test_refusals` stores what it says."""

import math

import numpy as np

NUMBER = 1.0 + 2.0j


def refuse_complex_remainder(x):
    return (x * 1j) % 2


def refuse_complex_floor_division(x):
    return (x * 1j) // 2


def refuse_complex_inversion(x):
    return ~(x * 1j)


def refuse_complex_rounding(x):
    z = x + 1j
    return round(z)


def refuse_complex_as_integer(x):
    return int(x + 1j)


def refuse_complex_minimum(x):
    return min(x, x + 1j)


def refuse_complex_in_math(x):
    z = x + 1j
    return math.exp(z)


def refuse_complex_floor_in_math(x):
    z = x + 1j
    return math.floor(z)


def refuse_complex_with_an_option(x):
    return complex(x, side=1)


def refuse_complex_of_three(x):
    return complex(x, x, x)


def refuse_strict_complex(x, y):
    return x * 1j + y


def refuse_conjugate_of_captured_complex(x):
    return x * NUMBER.conjugate()


def refuse_complex_or_tuple(x):
    z = 1j
    if x > 0:
        z = (x, x)
    return z


def refuse_complex_loop_that_changes_kind(x):
    z = x + 1j
    while abs(z) < 10:
        z = (z, z)
    return x


def refuse_inverse_function_of_complex(x):
    z = x + 1j
    return np.arcsin(z)
