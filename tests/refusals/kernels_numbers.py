# ruff: noqa
"""Kernels that are refused: numbers, their types and operators."""

import math

import numpy as np
from refused import refused

from mixad.scalar.types import BF16, BOOL, F16, F32, I32, I64, U8, U64


@refused("""
KernelTypeError: `'a'` is a str, a number is needed here
  File "...", line 2, column 16
    return x + "a"
               ^^^
  Instead: a number or a bool stands for it; strings are only compared, with == and !=
""")
def refuse_string(x):
    return x + "a"


@refused("""
KernelSyntaxError: strings are not made in a kernel
  File "...", line 2, column 9
    y = f"{x}"
        ^^^^^^
  Instead: leave it out, or return the number
""")
def refuse_f_string(x):
    y = f"{x}"
    return x


@refused("""
KernelSyntaxError: `@` works on arrays, a kernel on their elements
  File "...", line 2, column 12
    return x @ y
           ^^^^^
  Instead: write a * b
""")
def refuse_matmul(x, y):
    return x @ y


ARRAY = np.arange(6.0).reshape(2, 3)


@refused("""
KernelSyntaxError: `is` has no meaning for numbers
  File "...", line 2, column 17
    return x if x is ARRAY else 1.0
                ^^^^^^^^^^
  Instead: use ==
""")
def refuse_is(x):
    return x if x is ARRAY else 1.0


@refused("""
KernelTypeError: 10000000000000000000000 does not fit into int64
  File "...", line 2, column 16
    return x + 10000000000000000000000
               ^^^^^^^^^^^^^^^^^^^^^^^
  Instead: write it as a float
""")
def refuse_large_integer(x):
    return x + 10000000000000000000000


@refused("""
KernelTypeError: `&` takes integers, not f64
  File "...", line 2, column 12
    return x & 1
           ^^^^^
  Instead: convert with int(...)
""")
def refuse_bits_of_floats(x):
    return x & 1


@refused("""
KernelTypeError: `+` of booleans: libraries disagree about its type
  File "...", line 2, column 12
    return x + y
           ^^^^^
  Instead: use int(...), or `and`, `or`, `not`
""")
def refuse_adding_booleans(x: BOOL, y: BOOL):
    return x + y


@refused("""
KernelOverflowError: Python integer 300 out of bounds for uint8
  File "...", line 2, column 12
    return n + 300
           ^^^^^^^
  Instead: np.int16(300), for a result that is wide enough
""")
def refuse_large_literal(n: U8, x: F32):
    return n + 300


@refused("""
KernelTypeError: an integer to a negative power is not an integer
  File "...", line 2, column 12
    return n**-1
           ^^^^^
  Instead: convert the base: float(...)
""")
def refuse_negative_power_of_integer(n: I32, x: F32):
    return n**-1


@refused("""
KernelTypeError: u64 and signed integers would be compared as floats, which loses digits
  File "...", line 2, column 19
    return 1.0 if n < m else 0.0
                  ^^^^^
  Instead: convert one of them, for instance with np.int64(...)
""")
def refuse_u64_comparison(n: U64, m: I64):
    return 1.0 if n < m else 0.0


@refused("""
KernelTypeError: f16 and bf16 do not mix here
  File "...", line 2, column 12
    return x + y
           ^^^^^
  Instead: convert one of them, for instance with float(...)
""")
def refuse_mixture_of_narrow_floats(x: F16, y: BF16):
    return x + y


@refused("""
KernelTypeError: i32 and f32 do not mix here
  File "...", line 2, column 12
    return n + x
           ^^^^^
  Instead: convert one of them, for instance with float(...)
""")
def refuse_strict_mixture(n: I32, x: F32):
    return n + x


@refused("""
KernelTypeError: `/` takes floats here, not i32
  File "...", line 2, column 12
    return n / m
           ^^^^^
  Instead: convert first, or use //
""")
def refuse_strict_division(n: I32, m: I32):
    return n / m


@refused("""
KernelTypeError: `sin` takes floats here, not i32
  File "...", line 2, column 12
    return math.sin(n) + m
           ^^^^^^^^^^^
  Instead: convert first, for instance with np.float32(...)
""")
def refuse_strict_sine(n: I32, m: I32):
    return math.sin(n) + m


@refused("""
KernelSyntaxError: `round` to a number of digits is not supported in a kernel
  File "...", line 2, column 12
    return round(x, 2)
           ^^^^^^^^^^^
  Instead: round(100 * x) / 100
""")
def refuse_round_to_digits(x):
    return round(x, 2)


@refused("""
KernelTypeError: 10000000000000000000 does not fit into int64
  File "...", line 2, column 16
    return n + 10000000000000000000
               ^^^^^^^^^^^^^^^^^^^^
  Instead: np.uint64(10000000000000000000), or write it as a float
""")
def refuse_unsigned_literal(n: U64):
    return n + 10000000000000000000


@refused("""
KernelOverflowError: Python integer 100000000000000000000 out of bounds for uint64
  File "...", line 2, column 26
    return n + np.uint64(100000000000000000000)
                         ^^^^^^^^^^^^^^^^^^^^^
  Instead: a float, 1e+20, for a result of floats
""")
def refuse_too_large_unsigned_literal(n: U64):
    return n + np.uint64(100000000000000000000)


@refused("""
KernelTypeError: `reciprocal` of i32 is 0 nearly everywhere in NumPy
  File "...", line 2, column 12
    return np.reciprocal(n)
           ^^^^^^^^^^^^^^^^
  Instead: write 1 / x
""")
def refuse_reciprocal_of_integers(n: I32):
    return np.reciprocal(n)


@refused("""
KernelTypeError: i32 and bf16 do not mix here
  File "...", line 2, column 12
    return n + x
           ^^^^^
  Instead: convert one of them, for instance with float(...)
""")
def refuse_integers_beside_bfloat16(n: I32, x: BF16):
    return n + x


@refused("""
KernelTypeError: in `np.square`: `*` of booleans: libraries disagree about its type
  File "...", line 2, column 12
    return np.square(b)
           ^^^^^^^^^^^^
  Instead: use int(...), or `and`, `or`, `not`
""")
def refuse_square_of_booleans(b: BOOL):
    return np.square(b)


@refused("""
KernelTypeError: `np.clip` takes a number and its bounds
  File "...", line 2, column 12
    return np.clip(x, 0, 1, 2)
           ^^^^^^^^^^^^^^^^^^^
  Instead: np.clip(x, low, high)
""")
def refuse_bounds_of_clip(x):
    return np.clip(x, 0, 1, 2)


@refused("""
KernelTypeError: -9223372036854775809 does not fit into int64
  File "...", line 2, column 16
    return x + -9223372036854775809
               ^^^^^^^^^^^^^^^^^^^^
  Instead: write it as a float
""")
def refuse_large_negative_literal(x):
    return x + -9223372036854775809


@refused("""
KernelTypeError: 100000000000000000000 does not fit into int64
  File "...", line 2, column 16
    return x * 10**20
               ^^^^^^
  Instead: write it as a float
""")
def refuse_large_power(x):
    return x * 10**20


@refused("""
KernelTypeError: 9223372036854775808 does not fit into int64
  File "...", line 2, column 17
    return x * (1 << 63)
                ^^^^^^^
  Instead: np.uint64(9223372036854775808), or write it as a float
""")
def refuse_large_shift(x):
    return x * (1 << 63)


@refused("""
KernelTypeError: `10 ** 10 ** 10` does not fit into int64
  File "...", line 2, column 16
    return x + 10**10**10
               ^^^^^^^^^^
  Instead: a number that floats hold: those up to 1.8e308
""")
def refuse_very_large_power(x):
    return x + 10**10**10


@refused("""
KernelTypeError: the second argument of `math.ldexp` is a whole number, got Python float
  File "...", line 2, column 12
    return math.ldexp(x, 2.5)
           ^^^^^^^^^^^^^^^^^^
  Instead: convert with int(...), or x * 2.0**n
""")
def refuse_ldexp(x):
    return math.ldexp(x, 2.5)


@refused("""
KernelSyntaxError: `math.remainder` is not supported in a kernel
  File "...", line 2, column 12
    return math.remainder(x, x)
           ^^^^^^^^^^^^^^
  Instead: its formula, written with operators; or its value, computed before the call
""")
def refuse_remainder(x):
    return math.remainder(x, x)


@refused("""
KernelTypeError: `np.floor` of booleans: libraries disagree about its type
  File "...", line 2, column 12
    return np.floor(b)
           ^^^^^^^^^^^
  Instead: use int(...), or `and`, `or`, `not`
""")
def refuse_floor_of_booleans(b: BOOL):
    return np.floor(b)


@refused("""
KernelTypeError: `**` of booleans: libraries disagree about its type
  File "...", line 2, column 12
    return a**b
           ^^^^
  Instead: use int(...), or `and`, `or`, `not`
""")
def refuse_power_of_booleans(a: BOOL, b: BOOL):
    return a**b


@refused("""
KernelTypeError: `+` of booleans: libraries disagree about its type
  File "...", line 2, column 12
    return +b
           ^^
  Instead: use int(...), or `and`, `or`, `not`
""")
def refuse_plus_of_booleans(b: BOOL):
    return +b
