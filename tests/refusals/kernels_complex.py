# ruff: noqa
"""Kernels that are refused: complex numbers."""

import math

import numpy as np
from refused import refused

from mixad.scalar.types import F32, I32


@refused("""
KernelTypeError: `<` of complex numbers: they have no order
  File "...", line 2, column 12
    return x * 1j < 2
           ^^^^^^^^^^
  Instead: compare sizes, abs(z) < abs(w), or a part, such as z.real
""")
def refuse_complex_order(x):
    return x * 1j < 2


@refused("""
KernelSyntaxError: `np.clongdouble`: its precision is not one of kernels
  File "...", line 2, column 12
    return np.clongdouble(x) * x
           ^^^^^^^^^^^^^^^^^
  Instead: np.complex128(z)
""")
def refuse_long_complex_function(x):
    return np.clongdouble(x) * x


@refused("""
KernelTypeError: `%` of complex numbers is not defined
  File "...", line 2, column 12
    return (x * 1j) % 2
           ^^^^^^^^^^^^
  Instead: abs(z), z.real and z.imag are real numbers
""")
def refuse_complex_remainder(x):
    return (x * 1j) % 2


@refused("""
KernelTypeError: `//` of complex numbers is not defined
  File "...", line 2, column 12
    return (x * 1j) // 2
           ^^^^^^^^^^^^^
  Instead: z / w
""")
def refuse_complex_floor_division(x):
    return (x * 1j) // 2


@refused("""
KernelTypeError: `~` of complex numbers is not defined
  File "...", line 2, column 12
    return ~(x * 1j)
           ^^^^^^^^^
  Instead: z.conjugate() is the conjugate
""")
def refuse_complex_inversion(x):
    return ~(x * 1j)


@refused("""
KernelTypeError: `z` is a c128, a real number is needed here
  File "...", line 3, column 18
    return round(z)
                 ^
  Instead: its size, abs(z), or a part of it, such as z.real
""")
def refuse_complex_rounding(x):
    z = x + 1j
    return round(z)


@refused("""
KernelTypeError: `x + 1j` is a c128, a real number is needed here
  File "...", line 2, column 16
    return int(x + 1j)
               ^^^^^^
  Instead: its size, abs(x + 1j), or a part of it, such as (x + 1j).real
""")
def refuse_complex_as_integer(x):
    return int(x + 1j)


@refused("""
KernelTypeError: `x + 1j` is a c128, a real number is needed here
  File "...", line 2, column 19
    return min(x, x + 1j)
                  ^^^^^^
  Instead: its size, abs(x + 1j), or a part of it, such as (x + 1j).real
""")
def refuse_complex_minimum(x):
    return min(x, x + 1j)


@refused("""
KernelTypeError: `math.exp` takes real numbers, not c128
  File "...", line 3, column 12
    return math.exp(z)
           ^^^^^^^^^^^
  Instead: cmath.exp(z)
""")
def refuse_complex_in_math(x):
    z = x + 1j
    return math.exp(z)


@refused("""
KernelTypeError: `math.floor` takes real numbers, not c128
  File "...", line 3, column 12
    return math.floor(z)
           ^^^^^^^^^^^^^
  Instead: abs(z), z.real or z.imag
""")
def refuse_complex_floor_in_math(x):
    z = x + 1j
    return math.floor(z)


@refused("""
KernelTypeError: `complex` has the options `real` and `imag`
  File "...", line 2, column 12
    return complex(x, side=1)
           ^^^^^^^^^^^^^^^^^^
  Instead: complex(x, y)
""")
def refuse_complex_with_an_option(x):
    return complex(x, side=1)


@refused("""
KernelTypeError: `complex` takes a number, or two real ones
  File "...", line 2, column 12
    return complex(x, x, x)
           ^^^^^^^^^^^^^^^^
  Instead: complex(x, y)
""")
def refuse_complex_of_three(x):
    return complex(x, x, x)


@refused("""
KernelTypeError: c64 and i32 do not mix here
  File "...", line 2, column 12
    return x * 1j + y
           ^^^^^^^^^^
  Instead: convert one, such as with float(...)
""")
def refuse_strict_complex(x: F32, y: I32):
    return x * 1j + y


NUMBER = 1.0 + 2.0j


@refused("""
KernelSyntaxError: `NUMBER.conjugate` is a method of a number from outside
  File "...", line 2, column 16
    return x * NUMBER.conjugate()
               ^^^^^^^^^^^^^^^^^^
  Instead: np.conj(z)
""")
def refuse_conjugate_of_captured_complex(x):
    return x * NUMBER.conjugate()


@refused("""
KernelTypeError: 'z' is a tuple of 2 on one path (line 4) and a Python complex on the other (line 2)
  File "...", line 3, column 5
    if x > 0:
    ^^^^^^^^^
  Instead: give both paths values of one type
""")
def refuse_complex_or_tuple(x):
    z = 1j
    if x > 0:
        z = (x, x)
    return z


@refused("""
KernelTypeError: 'z' is a c128 when the loop starts and a tuple of 2 after an iteration (line 4)
  File "...", line 3, column 5
    while abs(z) < 10:
    ^^^^^^^^^^^^^^^^^^
  Instead: give it one type before and in the loop
""")
def refuse_complex_loop_that_changes_kind(x):
    z = x + 1j
    while abs(z) < 10:
        z = (z, z)
    return x


@refused("""
KernelTypeError: `z` is a c128, a real number is needed here
  File "...", line 3, column 22
    return np.arcsin(z)
                     ^
  Instead: its size, abs(z), or a part of it, such as z.real
""")
def refuse_inverse_function_of_complex(x):
    z = x + 1j
    return np.arcsin(z)
