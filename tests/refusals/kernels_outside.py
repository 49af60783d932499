# ruff: noqa
"""Kernels that are refused: values from outside of them."""

import functools
import linecache
import math
import random
import statistics

import numpy as np
from refused import refused

import mixad

LIST = [1.0, 2.0]
POINT = (1.5, 2.0)
ENDLESS = [1.0]
ENDLESS.append(ENDLESS)


@refused("""
KernelTypeError: a f64 and a list of 2 have no such operator
  File "...", line 2, column 12
    return x * LIST
           ^^^^^^^^
  Instead: unpack the tuple
""")
def refuse_captured_list(x):
    return x * LIST


@refused("""
KernelSyntaxError: a kernel cannot assign elements
  File "...", line 2, column 5
    LIST[0] = x
    ^^^^^^^
  Instead: return the value
""")
def refuse_assignment_to_a_captured_list(x):
    LIST[0] = x
    return x


@refused("""
KernelSyntaxError: `LIST.append` is a method of a list from outside
  File "...", line 2, column 5
    LIST.append(x)
    ^^^^^^^^^^^^^^
  Instead: return the value, as one more output
""")
def refuse_append_to_a_captured_list(x):
    LIST.append(x)
    return x


@refused("""
KernelTypeError: a list holds itself, or 32 others in one another
  Instead: give what the kernel reads of it a name of its own
""")
def refuse_list_that_holds_itself(x):
    return x * ENDLESS[0]


@refused("""
KernelSyntaxError: dictionaries are not supported in a kernel
  File "...", line 2, column 12
    return {"a": x}["a"]
           ^^^^^^^^
  Instead: use names, or a tuple
""")
def refuse_dict(x):
    return {"a": x}["a"]


DICT = {"k": 1.0}


@refused("""
KernelTypeError: `DICT` is a dict: it cannot be indexed
  File "...", line 2, column 12
    return DICT["k"] * x
           ^^^^^^^^^
  Instead: read its numbers before the call, into names of their own
""")
def refuse_captured_dict(x):
    return DICT["k"] * x


@refused("""
KernelSyntaxError: `random.random`: random numbers in a kernel would differ each time it runs
  File "...", line 2, column 16
    return x * random.random()
               ^^^^^^^^^^^^^^^
  Instead: draw them before, and pass them as an argument
""")
def refuse_random(x):
    return x * random.random()


@refused("""
KernelSyntaxError: `np.random.rand`: random numbers in a kernel would differ each time it runs
  File "...", line 2, column 16
    return x * np.random.rand()
               ^^^^^^^^^^^^^^^^
  Instead: draw them before, and pass them as an argument
""")
def refuse_numpy_random(x):
    return x * np.random.rand()


@refused("""
KernelTypeError: 'x' is a f64 here: it has no attribute 'sum'
  File "...", line 2, column 12
    return x.sum()
           ^^^^^
  Instead: use functions and operators of numbers
""")
def refuse_method(x):
    return x.sum()


@refused("""
KernelTypeError: 'x' is a f64 here: it has no attribute 'shape'
  File "...", line 2, column 12
    return x.shape
           ^^^^^^^
  Instead: use functions and operators of numbers
""")
def refuse_attribute(x):
    return x.shape


@refused("""
KernelSyntaxError: a kernel works on numbers: they have no attributes and methods
  File "...", line 2, column 12
    return (x + 1).sum()
           ^^^^^^^^^^^
  Instead: use functions and operators
""")
def refuse_method_of_expression(x):
    return (x + 1).sum()


@refused("""
KernelTypeError: `x` is a f64: it cannot be indexed
  File "...", line 2, column 12
    return x[0]
           ^^^^
  Instead: index before the call, and pass x[..., 0] as an argument; annotate x as mixad.Array to \
pass it whole, or give a signature, by which its last axes belong to each element
""")
def refuse_indexing_argument(x):
    return x[0]


ARRAY = np.arange(6.0).reshape(2, 3)


@refused("""
KernelTypeError: `for` runs over range(...) or a constant tuple, not over a captured array of f64
  File "...", line 3, column 14
    for v in ARRAY:
             ^^^^^
  Instead: for i in range(ARRAY.shape[0]), and ARRAY[i] in the loop
""")
def refuse_loop_over_array(x):
    s = x
    for v in ARRAY:
        s += v
    return s


@refused("""
KernelSyntaxError: 'undefined_name' is not defined
  File "...", line 2, column 16
    return x + undefined_name
               ^^^^^^^^^^^^^^
  Instead: define it before the call, or mend its spelling
""")
def refuse_unknown_name(x):
    return x + undefined_name


@refused("""
KernelSyntaxError: 'math.no_such_function' is not defined
  File "...", line 2, column 12
    return math.no_such_function(x)
           ^^^^^^^^^^^^^^^^^^^^^
  Instead: define it before the call, or mend its spelling
""")
def refuse_unknown_attribute(x):
    return math.no_such_function(x)


@refused("""
KernelSyntaxError: 'POINT' is a tuple at this call, without a field 'a'
  File "...", line 2, column 16
    return x * POINT.a
               ^^^^^^^
  Instead: make it a named tuple that has it, or read an item by its number: POINT[0]
""")
def refuse_field_of_a_tuple(x):
    return x * POINT.a


@refused("""
KernelTypeError: `DICT` is a dict, a number is needed here
  File "...", line 2, column 33
    return x + ARRAY.shape[0] + DICT
                                ^^^^
  Instead: read its numbers before the call, into names of their own
""")
def refuse_array_without_index(x):
    return x + ARRAY.shape[0] + DICT


@refused("""
KernelTypeError: 'ARRAY' has 2 axes, it is indexed by 1
  File "...", line 2, column 12
    return ARRAY[0] * x
           ^^^^^^^^
  Instead: give one integer for each axis
""")
def refuse_array_rank(x):
    return ARRAY[0] * x


@refused("""
KernelTypeError: an index is an integer, not f64
  File "...", line 2, column 18
    return ARRAY[x, 0] * x
                 ^
  Instead: use int(...)
""")
def refuse_array_float_index(x):
    return ARRAY[x, 0] * x


TEXT = "text"


@refused("""
KernelTypeError: `TEXT` is a str, a number is needed here
  File "...", line 2, column 16
    return x * TEXT
               ^^^^
  Instead: a number or a bool stands for it; strings are only compared, with == and !=
""")
def refuse_captured_text(x):
    return x * TEXT


NOTHING = None


@refused("""
KernelTypeError: `NOTHING` is None, a number is needed here
  File "...", line 2, column 16
    return x * NOTHING
               ^^^^^^^
  Instead: a number, or test it with `is None`
""")
def refuse_captured_none(x):
    return x * NOTHING


COMPLEX = np.clongdouble(1.0 + 2.0j)


@refused("""
KernelTypeError: `COMPLEX` is a clongdouble, a number is needed here
  File "...", line 2, column 16
    return x * COMPLEX
               ^^^^^^^
  Instead: complex(COMPLEX)
""")
def refuse_captured_long_complex(x):
    return x * COMPLEX


SET = {1.0}


@refused("""
KernelTypeError: `SET` is a set, a number is needed here
  File "...", line 2, column 16
    return x * SET
               ^^^
  Instead: make it a tuple
""")
def refuse_captured_set(x):
    return x * SET


@refused("""
KernelTypeError: `for` runs over range(...) or a constant tuple, not over a set
  File "...", line 2, column 14
    for v in SET:
             ^^^
  Instead: make it a tuple
""")
def refuse_captured_set_loop(x):
    for v in SET:
        x += v
    return x


@refused("""
KernelSyntaxError: a kernel reads single elements: a slice of 'ARRAY' is an array
  File "...", line 2, column 25
    return x * ARRAY[0, 1:]
                        ^^
  Instead: read one element after another in a loop over range(...)
""")
def refuse_array_slice(x):
    return x * ARRAY[0, 1:]


@refused("""
KernelSyntaxError: a kernel reads single elements: a slice of 'ARRAY' is an array
  File "...", line 2, column 29
    return x * sum(ARRAY[0, :2])
                            ^^
  Instead: read one element after another in a loop over range(...)
""")
def refuse_array_part(x):
    return x * sum(ARRAY[0, :2])


@refused("""
KernelTypeError: `len` takes a tuple here, got captured array of f64
  File "...", line 2, column 16
    return x * len(ARRAY)
               ^^^^^^^^^^
  Instead: ARRAY.shape[0]
""")
def refuse_length_of_array(x):
    return x * len(ARRAY)


@refused("""
KernelTypeError: `sum` takes a tuple here, got captured array of f64
  File "...", line 2, column 16
    return x * sum(ARRAY)
               ^^^^^^^^^^
  Instead: a loop over range(ARRAY.shape[0]), or the array's result before the call
""")
def refuse_sum_of_array(x):
    return x * sum(ARRAY)


@refused("""
KernelSyntaxError: `ARRAY.sum` is of a whole array
  File "...", line 2, column 16
    return x + ARRAY.sum()
               ^^^^^^^^^^^
  Instead: compute it before the kernel, result = ARRAY.sum(), and read the result in the kernel
""")
def refuse_method_of_captured_array(x):
    return x + ARRAY.sum()


@refused("""
KernelSyntaxError: `np.dot` works on whole arrays: a kernel sees one element
  File "...", line 2, column 16
    return x + np.dot(x, x)
               ^^^^^^^^^^^^
  Instead: call it before, or on the kernel's results; of a small array in the kernel, a loop
""")
def refuse_array_function(x):
    return x + np.dot(x, x)


class Base:
    def f(self, x):
        return x


class Child(Base):
    def f(self, x):
        return super().f(x) * 2


CHILD = Child()


@refused("""
KernelSyntaxError: `super()` has no attributes in a kernel
  File "...", line 3 of Child, column 16
    return super().f(x) * 2
           ^^^^^^^^^
  Instead: a function of numbers; what classes share, in a function outside them
""")
def refuse_super(x):
    return CHILD.f(x)


PARTIAL = functools.partial(math.pow, 2.0)


@refused("""
KernelSyntaxError: `PARTIAL` is a functools.partial
  File "...", line 2, column 12
    return PARTIAL(x)
           ^^^^^^^^^^
  Instead: a function, or a lambda, that fills them in
""")
def refuse_partial(x):
    return PARTIAL(x)


GRADIENT = mixad.grad(math.sin)


@refused("""
KernelSyntaxError: `GRADIENT` is of mixad, for use outside kernels: a kernel cannot call it
  File "...", line 2, column 12
    return GRADIENT(x)
           ^^^^^^^^^^^
  Instead: apply it outside, to a function that calls the kernel
""")
def refuse_gradient(x):
    return GRADIENT(x)


@refused("""
KernelSyntaxError: `NOTHING` is None, not a function
  File "...", line 2, column 12
    return NOTHING(x)
           ^^^^^^^^^^
  Instead: define the function before the call
""")
def refuse_calling_none(x):
    return NOTHING(x)


class Doubled:
    def __call__(self, x):
        return 2 * x


DOUBLED = Doubled()


@refused("""
KernelTypeError: `DOUBLED` is a Doubled object: it cannot be indexed
  File "...", line 2, column 12
    return DOUBLED[0] * x
           ^^^^^^^^^^
  Instead: index what it returns
""")
def refuse_indexing_object(x):
    return DOUBLED[0] * x


@refused("""
KernelTypeError: `DOUBLED` is a Doubled object, a number is needed here
  File "...", line 2, column 12
    return DOUBLED * x
           ^^^^^^^
  Instead: call it
""")
def refuse_object_as_number(x):
    return DOUBLED * x


CACHED = functools.update_wrapper(functools.lru_cache(lambda x: 2 * math.sin(x)), math.sin)


@refused("""
KernelSyntaxError: `CACHED` is a _lru_cache_wrapper that wraps 'sin': what it does besides calling \
it is unknown
  File "...", line 2, column 12
    return CACHED(x)
           ^^^^^^^^^
  Instead: 'sin' itself, or a function that does what the object does
""")
def refuse_wrapper(x):
    return CACHED(x)


def variadic_by_name(x, **options):
    return x


@refused("""
KernelSyntaxError: 'variadic_by_name' takes `**options`, which is not supported
  File "...", line 2, column 12
    return variadic_by_name(x, a=1.0)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: name its parameters
""")
def refuse_helper_that_takes_any_keywords(x):
    return variadic_by_name(x, a=1.0)


@refused("""
KernelTypeError: `in` works on constant tuples, not on a set
  File "...", line 2, column 19
    return 1.0 if x in SET else 0.0
                  ^^^^^^^^
  Instead: make it a tuple, or compare with == and `or`
""")
def refuse_membership_of_set(x):
    return 1.0 if x in SET else 0.0


def _made(text, shown=None):
    """Return a function made from a text, whose file is said to hold another one, or none."""
    name = "<text>" if shown is None else "<file>"
    if shown is not None:
        linecache.cache[name] = (len(shown), None, shown.splitlines(True), name)
    space = {}
    exec(compile(text, name, "exec"), space)
    return space["made"]


WITHOUT_SOURCE = _made("def made(x):\n    return x\n")


@refused("""
KernelSyntaxError: the source of function 'made' is not available (it was defined in <text>)
  File "...", line 2, column 12
    return WITHOUT_SOURCE(x)
           ^^^^^^^^^^^^^^^^^
  Instead: define it in a file or a notebook cell
""")
def refuse_helper_without_source(x):
    return WITHOUT_SOURCE(x)


EDITED = _made("def made(x):\n    return x\n", "def made(x):\n    return 2 * x\n")


@refused("""
KernelSyntaxError: the source of function 'made' in <file>, line 1, is not what it was compiled \
from: the file was edited since it was imported
  File "...", line 2, column 12
    return EDITED(x)
           ^^^^^^^^^
  Instead: reload the module, or restart Python
""")
def refuse_edited_helper(x):
    return EDITED(x)


SPECIAL = __import__("scipy.special").special


@refused("""
KernelSyntaxError: `SPECIAL.dawsn` is not supported in a kernel
  File "...", line 2, column 12
    return SPECIAL.dawsn(x)
           ^^^^^^^^^^^^^
  Instead: its formula, written with operators; or its value, computed before the call
""")
def refuse_function_of_another_library(x):
    return SPECIAL.dawsn(x)


@refused("""
KernelSyntaxError: `SPECIAL.k0` is not supported in a kernel
  File "...", line 2, column 16
    return x * SPECIAL.k0(x)
               ^^^^^^^^^^
  Instead: its formula, written with operators; or its value, computed before the call
""")
def refuse_bessel_function(x):
    return x * SPECIAL.k0(x)


@refused("""
KernelSyntaxError: `statistics.mode` is not supported in a kernel
  File "...", line 2, column 12
    return statistics.mode((x, y, 1.0))
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: a `for` loop over a tuple that counts with ==
""")
def refuse_mode_in_a_kernel(x, y):
    return statistics.mode((x, y, 1.0))


@refused("""
KernelSyntaxError: `statistics.median` is not supported in a kernel
  File "...", line 2, column 12
    return statistics.median((x, y, 1.0))
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: of three numbers, max(min(x, y), min(max(x, y), z))
""")
def refuse_median_in_a_kernel(x, y):
    return statistics.median((x, y, 1.0))
