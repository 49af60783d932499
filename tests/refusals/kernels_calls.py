# ruff: noqa
"""Kernels that are refused: what they call, and with what."""

import functools
import math
import operator

import numpy as np
from refused import refused

import mixad


@refused("""
KernelTypeError: which function this is depends on a condition
  File "...", line 2, column 9
    f = math.sin if x > 0 else math.cos
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: call the function in each case, and choose between the results
""")
def refuse_choosing_functions(x):
    f = math.sin if x > 0 else math.cos
    return f(x)


def recursive(x):
    return x if x < 1 else recursive(x - 1)


@refused("""
KernelSyntaxError: 'recursive' calls itself: recursion cannot be compiled
  File "...", line 2 of recursive, column 28
    return x if x < 1 else recursive(x - 1)
                           ^^^^^^^^^^^^^^^^
  Instead: use a loop
""")
def refuse_recursion(x):
    return recursive(x)


def odd(n):
    return False if n == 0 else even(n - 1)


def even(n):
    return True if n == 0 else odd(n - 1)


@refused("""
KernelSyntaxError: 'even' calls itself: recursion cannot be compiled
  File "...", line 2 of odd, column 33
    return False if n == 0 else even(n - 1)
                                ^^^^^^^^^^^
  Instead: use a loop
""")
def refuse_mutual_recursion(x):
    return even(int(x)) * 1.0


@refused("""
KernelSyntaxError: `math.factorial` is not supported in a kernel
  File "...", line 2, column 12
    return math.factorial(x)
           ^^^^^^^^^^^^^^
  Instead: math.gamma(n + 1.0), or the number, computed before the call
""")
def refuse_unknown_function(x):
    return math.factorial(x)


@refused("""
KernelSyntaxError: `isinstance` is not supported in a kernel
  File "...", line 2, column 19
    return 1.0 if isinstance(x, float) else 0.0
                  ^^^^^^^^^^
  Instead: leave it out: a kernel is compiled for each combination of types
""")
def refuse_isinstance(x):
    return 1.0 if isinstance(x, float) else 0.0


@refused("""
KernelTypeError: `x` is a f64, not a function
  File "...", line 2, column 12
    return x(1)
           ^
  Instead: x * (...)
""")
def refuse_calling_number(x):
    return x(1)


@refused("""
KernelTypeError: `math.sin` takes 1 argument, got 2
  File "...", line 2, column 12
    return math.sin(x, x)
           ^^^^^^^^^^^^^^
  Instead: math.sin(x)
""")
def refuse_wrong_number_of_arguments(x):
    return math.sin(x, x)


@refused("""
KernelTypeError: 'recursive' needs an argument for 'x'
  File "...", line 2, column 12
    return recursive()
           ^^^^^^^^^^^
  Instead: recursive(x)
""")
def refuse_missing_argument(x):
    return recursive()


@refused("""
KernelTypeError: 'recursive' gets its argument twice: 'x'
  File "...", line 2, column 12
    return recursive(x, x=x)
           ^^^^^^^^^^^^^^^^^
  Instead: recursive(x)
""")
def refuse_argument_twice(x):
    return recursive(x, x=x)


@refused("""
KernelSyntaxError: `np.sin` takes no keyword arguments in a kernel
  File "...", line 2, column 12
    return np.sin(x, where=True)
           ^^^^^^^^^^^^^^^^^^^^^
  Instead: leave `where` out, and convert or choose its result
""")
def refuse_keyword_of_builtin(x):
    return np.sin(x, where=True)


@refused("""
KernelTypeError: 'recursive' takes 1 argument by position, got 2
  File "...", line 2, column 12
    return recursive(x, x)
           ^^^^^^^^^^^^^^^
  Instead: recursive(x)
""")
def refuse_too_many_arguments(x):
    return recursive(x, x)


@refused("""
KernelSyntaxError: `max` takes numbers, or a tuple of them, and nothing else
  File "...", line 2, column 12
    return max(x, 1.0, key=abs)
           ^^^^^^^^^^^^^^^^^^^^
  Instead: compare with `if` in a loop over the numbers
""")
def refuse_key_of_max(x):
    return max(x, 1.0, key=abs)


@refused("""
KernelSyntaxError: `min` takes numbers, or a tuple of them, and nothing else
  File "...", line 2, column 12
    return min((), default=x)
           ^^^^^^^^^^^^^^^^^^
  Instead: compare with `if` in a loop over the numbers
""")
def refuse_default_of_min(x):
    return min((), default=x)


@refused("""
KernelTypeError: `len` takes a tuple here, got f64
  File "...", line 2, column 12
    return len(x)
           ^^^^^^
  Instead: a tuple, such as (x, y)
""")
def refuse_length_of_number(x):
    return len(x)


@refused("""
KernelTypeError: a f64 cannot be unpacked
  File "...", line 2, column 23
    return math.hypot(*x)
                      ^^
  Instead: leave the `*` out
""")
def refuse_unpacked_argument(x):
    return math.hypot(*x)


@refused("""
KernelSyntaxError: `mixad.grad` is of mixad, for use outside kernels: a kernel cannot call it
  File "...", line 2, column 12
    return mixad.grad(lambda u: u * u)(x)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: apply it outside, to a function that calls the kernel
""")
def refuse_transform(x):
    return mixad.grad(lambda u: u * u)(x)


@refused("""
KernelSyntaxError: `mixad.broadcast` is of mixad, for use outside kernels: a kernel cannot call it
  File "...", line 2, column 12
    return mixad.broadcast(lambda u: u * u)(x)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: call the function itself: it is compiled with the kernel
""")
def refuse_broadcast(x):
    return mixad.broadcast(lambda u: u * u)(x)


@refused("""
KernelSyntaxError: `operator.mul` is not supported in a kernel
  File "...", line 2, column 12
    return operator.mul(x, x)
           ^^^^^^^^^^^^
  Instead: the operator itself, such as a * b
""")
def refuse_operator(x):
    return operator.mul(x, x)


@refused("""
KernelSyntaxError: `functools.partial` is not supported in a kernel
  File "...", line 2, column 12
    return functools.partial(math.pow, 2.0)(x)
           ^^^^^^^^^^^^^^^^^
  Instead: a function, or a lambda, that fills them in
""")
def refuse_making_partial(x):
    return functools.partial(math.pow, 2.0)(x)


@refused("""
KernelSyntaxError: `functools.reduce` is not supported in a kernel
  File "...", line 2, column 12
    return functools.reduce(max, (x, x))
           ^^^^^^^^^^^^^^^^
  Instead: a `for` loop over a tuple
""")
def refuse_reduce(x):
    return functools.reduce(max, (x, x))


@refused("""
KernelSyntaxError: `getattr` is not supported in a kernel
  File "...", line 2, column 12
    return getattr(x, "real")
           ^^^^^^^
  Instead: the attribute itself, such as self.rate
""")
def refuse_getattr(x):
    return getattr(x, "real")


@refused("""
KernelSyntaxError: `type` is not supported in a kernel
  File "...", line 2, column 12
    return type(x)(2)
           ^^^^
  Instead: leave it out: a kernel is compiled for each combination of types
""")
def refuse_type(x):
    return type(x)(2)


@refused("""
KernelSyntaxError: `np.sum` works on whole arrays: a kernel sees one element
  File "...", line 2, column 12
    return np.sum(x)
           ^^^^^^^^^
  Instead: call it before, or on the kernel's results; of a small array in the kernel, sum(v)
""")
def refuse_numpy_sum(x):
    return np.sum(x)


@refused("""
KernelSyntaxError: `np.linalg.norm` works on whole arrays: a kernel sees one element
  File "...", line 2, column 12
    return np.linalg.norm(x)
           ^^^^^^^^^^^^^^^^^
  Instead: call it before, or on the kernel's results; of a small array in the kernel, a loop
""")
def refuse_numpy_norm(x):
    return np.linalg.norm(x)


@refused("""
KernelSyntaxError: `np.add.reduce` works on whole arrays: a kernel sees one element
  File "...", line 2, column 12
    return np.add.reduce(x)
           ^^^^^^^^^^^^^^^^
  Instead: call it before, or on the kernel's results; of a small array in the kernel, a loop
""")
def refuse_ufunc_reduction(x):
    return np.add.reduce(x)


@refused("""
KernelSyntaxError: `np.sin` takes no keyword arguments in a kernel
  File "...", line 2, column 12
    return np.sin(x, dtype=np.float32)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: leave `dtype` out, and convert or choose its result
""")
def refuse_option_of_numpy(x):
    return np.sin(x, dtype=np.float32)


@refused("""
KernelTypeError: which function this is depends on an index that is known at run time only
  File "...", line 2, column 12
    return (math.sin, math.cos)[int(x > 1)](x)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: call each of them, and index the tuple of their results
""")
def refuse_choosing_functions_by_index(x):
    return (math.sin, math.cos)[int(x > 1)](x)


@refused("""
KernelSyntaxError: `np.nan_to_num` is not supported in a kernel
  File "...", line 2, column 12
    return np.nan_to_num(x) * 2
           ^^^^^^^^^^^^^^^^
  Instead: 0.0 if np.isnan(x) else x, and np.clip for what is infinite
""")
def refuse_nan_to_num(x):
    return np.nan_to_num(x) * 2
