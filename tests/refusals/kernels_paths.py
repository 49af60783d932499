# ruff: noqa
"""Kernels that are refused: what paths assign and return."""

import math

import numpy as np
from refused import refused


@refused("""
KernelSyntaxError: 'y' may be unassigned here: not every path through line 2 (`if x > 0:`) assigns \
it
  File "...", line 4, column 16
    return x * y
               ^
  Instead: assign 'y' on every path, for instance before that line
""")
def refuse_unassigned(x):
    if x > 0:
        y = 1.0
    return x * y


@refused("""
KernelSyntaxError: 'y' may be unassigned here: not every path through line 2 (`for i in \
range(int(x)):`) assigns it
  File "...", line 4, column 12
    return y
           ^
  Instead: assign 'y' on every path, for instance before that line
""")
def refuse_unassigned_after_loop(x):
    for i in range(int(x)):
        y = i
    return y


@refused("""
KernelSyntaxError: 'w' may be unassigned here: not every path through line 2 (`while x < 3:`) \
assigns it
  File "...", line 10, column 16
    return z + w
               ^
  Instead: assign 'w' on every path, for instance before that line
""")
def refuse_unassigned_else(x):
    while x < 3:
        x += 1
        if x == 2:
            z = x
            break
    else:
        z = 0.0
        w = 1.0
    return z + w


@refused("""
KernelSyntaxError: 'y' is read before it is assigned
  File "...", line 2, column 9
    y = y + x
        ^
  Instead: assign 'y' first
""")
def refuse_read_before_assigned(x):
    y = y + x
    y = 1.0
    return y


@refused("""
KernelSyntaxError: 'later' is read before it is assigned
  File "...", line 5, column 9
    r = inner()
        ^^^^^
  Instead: assign 'later' first
""")
def refuse_unassigned_in_closure(x):
    def inner():
        return later * 2

    r = inner()
    later = x
    return r


@refused("""
KernelSyntaxError: function 'refuse_falling_off_the_end' can end without a `return`: here is the \
end of such a path
  File "...", line 4, column 5
    y = x
    ^^^^^
  Instead: return a value on every path
""")
def refuse_falling_off_the_end(x):
    if x > 0:
        return x
    y = x


def without_return(x):
    if x > 0:
        return x


@refused("""
KernelSyntaxError: function 'without_return' can end without a `return`: here is the end of such a \
path
  File "...", line 2 of without_return, column 5
    if x > 0:
    ^^^^^^^^^
  Instead: return a value on every path
""")
def refuse_helper_that_falls_off_the_end(x):
    return without_return(x)


@refused("""
KernelSyntaxError: `return` without a value
  File "...", line 3, column 9
    return
    ^^^^^^
  Instead: return a number, or a tuple of numbers
""")
def refuse_bare_return(x):
    if x > 0:
        return
    return x


@refused("""
KernelTypeError: 'y' is a tuple of 2 on one path (line 3) and a f64 on the other (line 5)
  File "...", line 2, column 5
    if x > 0:
    ^^^^^^^^^
  Instead: give both paths values of one type
""")
def refuse_tuple_or_number(x):
    if x > 0:
        y = (x, x)
    else:
        y = x
    return y


@refused("""
KernelTypeError: the result is a tuple of 2 on one path (line 3) and a tuple of 3 on the other \
(line 4)
  File "...", line 2, column 5
    if x > 0:
    ^^^^^^^^^
  Instead: give both paths values of one type
""")
def refuse_results_of_different_length(x):
    if x > 0:
        return x, x
    return x, x, x


@refused("""
KernelTypeError: this is a function or a f64, depending on a condition
  File "...", line 2, column 9
    f = math.sin if x > 0 else x
        ^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: call the function in each case, and choose between the results
""")
def refuse_function_or_number(x):
    f = math.sin if x > 0 else x
    return f


@refused("""
KernelTypeError: 't' is a f64 when the loop starts and a tuple of 2 after an iteration (line 4)
  File "...", line 3, column 5
    for _ in range(3):
    ^^^^^^^^^^^^^^^^^^
  Instead: give it one type before and in the loop
""")
def refuse_loop_that_changes_kind(x):
    t = x
    for _ in range(3):
        t = (t, x)
    return x if x > 0 else t


@refused("""
KernelTypeError: 'without_return' has no parameter 'scale'
  File "...", line 2, column 12
    return without_return(x, scale=2)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: without_return(x)
""")
def refuse_unknown_keyword(x):
    return without_return(x, scale=2)


@refused("""
KernelTypeError: a f64 cannot be unpacked
  File "...", line 2, column 5
    a, b = x
    ^^^^
  Instead: assign it to one name
""")
def refuse_unpacking_number(x):
    a, b = x
    return a


@refused("""
KernelTypeError: a tuple of 3 is unpacked into 2 names
  File "...", line 2, column 5
    a, b = x, x, x
    ^^^^
  Instead: one name for each item, or a name with `*` for the rest
""")
def refuse_unpacking_wrong_length(x):
    a, b = x, x, x
    return a


@refused("""
KernelSyntaxError: a function defined in a kernel cannot be returned
  File "...", line 3, column 9
    return lambda t: t + x
    ^^^^^^^^^^^^^^^^^^^^^^
  Instead: call it here
""")
def refuse_returning_function(x):
    def make():
        return lambda t: t + x

    return make()(x)


TEXT = "text"


@refused("""
KernelTypeError: `return TEXT` is a str, a number is needed here
  File "...", line 2, column 5
    return TEXT
    ^^^^^^^^^^^
  Instead: a number or a bool stands for it; strings are only compared, with == and !=
""")
def refuse_returning_text(x):
    return TEXT


@refused("""
KernelTypeError: `TEXT` is a str, a number is needed here
  File "...", line 2, column 8
    if TEXT < "u":
       ^^^^
  Instead: a number or a bool stands for it; strings are only compared, with == and !=
""")
def refuse_text_in_a_test(x):
    if TEXT < "u":
        return x
    return 2 * x


@refused("""
KernelTypeError: a kernel returns a number or a flat tuple of numbers, this tuple holds a tuple
  File "...", line 2, column 5
    return x, (x, 2.0)
    ^^^^^^^^^^^^^^^^^^
  Instead: return (a, b, c)
""")
def refuse_nested_result(x):
    return x, (x, 2.0)


class Doubled:
    def __call__(self, x):
        return 2 * x


DOUBLED = Doubled()


@refused("""
KernelTypeError: this is a Doubled object or a Python float, depending on a condition
  File "...", line 2, column 13
    return (DOUBLED if x > 0 else 1.0) * x
            ^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: call the function in each case, and choose between the results
""")
def refuse_object_or_number(x):
    return (DOUBLED if x > 0 else 1.0) * x


@refused("""
KernelTypeError: a kernel without a result
  File "...", line 2, column 5
    return ()
    ^^^^^^^^^
  Instead: return a number
""")
def refuse_no_result(x):
    return ()


DICT = {"k": 1.0}


@refused("""
KernelSyntaxError: `**` is not supported in a kernel
  File "...", line 2, column 29
    return without_return(**DICT)
                            ^^^^
  Instead: write the arguments out
""")
def refuse_unpacked_keywords(x):
    return without_return(**DICT)


ARRAY = np.arange(6.0).reshape(2, 3)


@refused("""
KernelSyntaxError: `*` is not supported here
  File "...", line 2, column 18
    return ARRAY[*(1,), 0] * x
                 ^^^^^
  Instead: write the items out
""")
def refuse_unpacked_index(x):
    return ARRAY[*(1,), 0] * x


PAIR = (1.0, 2.0)


@refused("""
KernelSyntaxError: slices work on tuples with constant bounds only
  File "...", line 2, column 21
    return sum(PAIR[int(x) :])
                    ^^^^^^
  Instead: index one item after another
""")
def refuse_slice_of_argument(x):
    return sum(PAIR[int(x) :])


MANY = tuple(float(k) for k in range(200))


def many_cases(x):
    for v in MANY:
        if x < v:
            return v
    return x


@refused("""
KernelSyntaxError: conditions are nested 120 deep here, as deep as can be compiled: what follows \
an `elif`, or an `if` that returns, is inside its `else`
  File "...", line 3 of many_cases, column 9
    if x < v:
    ^^^^^^^^^
  Instead: `if`s that assign to a name, one after the other, or a loop over a captured array
""")
def refuse_deep_conditions(x):
    return many_cases(x)


@refused("""
KernelTypeError: element 0 of element 1 of the result is None on one path (line 3) and a f64 on \
the other (line 4)
  File "...", line 2, column 5
    if x > 0:
    ^^^^^^^^^
  Instead: give both paths values of one type
""")
def refuse_element_that_is_none_on_one_path(x):
    if x > 0:
        return x, (None, x)
    return x, (x, x)
