# ruff: noqa
"""Kernels that are refused: statements and loops."""

import math

import numpy as np
from refused import refused


@refused("""
KernelSyntaxError: `assert` cannot stop a kernel
  File "...", line 2, column 5
    assert x > 0
    ^^^^^^^^^^^^
  Instead: check the arrays before the call
""")
def refuse_assert(x):
    assert x > 0
    return x


@refused("""
KernelSyntaxError: a kernel cannot raise exceptions
  File "...", line 3, column 9
    raise ValueError("negative")
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: return math.nan, or check the arrays before the call
""")
def refuse_raise(x):
    if x < 0:
        raise ValueError("negative")
    return x


@refused("""
KernelSyntaxError: `try` has no meaning in a kernel: arithmetic never raises, x / 0 is inf
  File "...", line 2, column 5
    try:
    ^^^^
  Instead: test with `if`
""")
def refuse_try(x):
    try:
        return 1 / x
    except ZeroDivisionError:
        return 0.0


@refused("""
KernelSyntaxError: `with` is not supported in a kernel
  File "...", line 2, column 5
    with np.errstate(all="ignore"):
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: put it around the call
""")
def refuse_with(x):
    with np.errstate(all="ignore"):
        return x


@refused("""
KernelSyntaxError: `print` is not supported in a kernel
  File "...", line 2, column 5
    print(x)
    ^^^^^
  Instead: print(f.trace(*args, at=index)) outside of a kernel f, which shows what each line \
computes; or return the value, as one more output
""")
def refuse_print(x):
    print(x)
    return x


@refused("""
KernelSyntaxError: comprehensions are not supported in a kernel
  File "...", line 2, column 16
    return sum([x for _ in range(3)])
               ^^^^^^^^^^^^^^^^^^^^^
  Instead: use a `for` loop
""")
def refuse_comprehension(x):
    return sum([x for _ in range(3)])


@refused("""
KernelSyntaxError: generators are not supported in a kernel
  File "...", line 2, column 5
    yield x
    ^^^^^^^
  Instead: return a tuple
""")
def refuse_yield(x):
    yield x


TEXT = "text"


@refused("""
KernelSyntaxError: a kernel cannot assign global names
  File "...", line 2, column 5
    global TEXT
    ^^^^^^^^^^^
  Instead: return the value
""")
def refuse_global(x):
    global TEXT
    TEXT = x
    return x


@refused("""
KernelSyntaxError: a kernel cannot assign names of an outer function
  File "...", line 3, column 9
    nonlocal x
    ^^^^^^^^^^
  Instead: return the value
""")
def refuse_nonlocal(x):
    def inner():
        nonlocal x
        x = 1.0
        return x

    return inner()


@refused("""
KernelSyntaxError: `import` is not supported in a kernel
  File "...", line 2, column 5
    import math
    ^^^^^^^^^^^
  Instead: import at the top of the file
""")
def refuse_import(x):
    import math

    return math.sin(x)


@refused("""
KernelSyntaxError: `:=` is not supported in a kernel
  File "...", line 2, column 9
    if (y := x * 2) > 1:
        ^^^^^^^^^^
  Instead: assign on a line of its own
""")
def refuse_walrus(x):
    if (y := x * 2) > 1:
        return y
    return x


@refused("""
KernelSyntaxError: `match` is not supported in a kernel
  File "...", line 2, column 5
    match x:
    ^^^^^^^^
  Instead: use `if` and `elif`
""")
def refuse_match(x):
    match x:
        case 1.0:
            return x
    return 2 * x


@refused("""
KernelSyntaxError: classes cannot be defined in a kernel
  File "...", line 2, column 5
    class A:
    ^^^^^^^^
  Instead: define it outside
""")
def refuse_class(x):
    class A:
        pass

    return x


@refused("""
KernelSyntaxError: `del` is not supported in a kernel
  File "...", line 3, column 5
    del y
    ^^^^^
  Instead: leave the name: it costs nothing
""")
def refuse_delete(x):
    y = x
    del y
    return x


PAIR = (1.0, 2.0)


@refused("""
KernelSyntaxError: a kernel cannot assign elements
  File "...", line 2, column 5
    PAIR[0] = x
    ^^^^^^^
  Instead: return the value
""")
def refuse_item_assignment(x):
    PAIR[0] = x
    return x


@refused("""
KernelSyntaxError: a kernel cannot assign attributes
  File "...", line 2, column 5
    math.k = x
    ^^^^^^
  Instead: return the value
""")
def refuse_attribute_assignment(x):
    math.k = x
    return x


@refused("""
KernelSyntaxError: this loop never ends
  File "...", line 2, column 5
    while True:
    ^^^^^^^^^^^
  Instead: leave it with `break` or `return`
""")
def refuse_endless_loop(x):
    while True:
        x += 1
    return x


@refused("""
KernelTypeError: range takes integers, `x` is a f64
  File "...", line 3, column 20
    for i in range(x):
                   ^
  Instead: use int(...)
""")
def refuse_range_of_float(x):
    s = 0.0
    for i in range(x):
        s += i
    return s


@refused("""
KernelSyntaxError: the step of range is 0
  File "...", line 2, column 14
    for i in range(0, 3, 0):
             ^^^^^^^^^^^^^^
  Instead: a step that is not 0
""")
def refuse_range_step_zero(x):
    for i in range(0, 3, 0):
        x += i
    return x


@refused("""
KernelTypeError: `for` runs over range(...) or a constant tuple, not over a f64
  File "...", line 2, column 14
    for i in x:
             ^
  Instead: for i in range(...)
""")
def refuse_loop_over_number(x):
    for i in x:
        pass
    return x


@refused("""
KernelSyntaxError: `*more` takes any number of arguments: a kernel's is fixed
  File "...", line 1, column 25
    def refuse_variadic(x, *more):
                            ^^^^
  Instead: name each parameter
""")
def refuse_variadic(x, *more):
    return x


@refused("""
KernelSyntaxError: decorators of nested functions are not supported
  File "...", line 2, column 6
    @staticmethod
     ^^^^^^^^^^^^
  Instead: leave it out
""")
def refuse_decorated_nested(x):
    @staticmethod
    def inner(t):
        return t

    return inner(x)


@refused("""
KernelSyntaxError: coroutines are not supported in a kernel
  File "...", line 2, column 5
    async def inner():
    ^^^^^^^^^^^^^^^^^^
  Instead: write `def`
""")
def refuse_async(x):
    async def inner():
        return x

    return x


@refused("""
KernelSyntaxError: `**more` takes any number of arguments: a kernel's is fixed
  File "...", line 1, column 34
    def refuse_keyword_variadic(x, **more):
                                     ^^^^
  Instead: name each parameter
""")
def refuse_keyword_variadic(x, **more):
    return x


@refused("""
KernelSyntaxError: function 'refuse_coroutine' is a coroutine (`async def`), defined in ..., line \
1: a kernel computes numbers and waits for nothing
  Instead: write `def`
""")
async def refuse_coroutine(x):
    return x


@refused("""
KernelSyntaxError: generators are not supported in a kernel
  File "...", line 3, column 9
    yield x * i
    ^^^^^^^^^^^
  Instead: return a tuple
""")
def refuse_generator(x):
    for i in range(3):
        yield x * i


@refused("""
KernelTypeError: `for` runs over range(...) or a constant tuple, not over a function
  File "...", line 2, column 14
    for v in math.sin:
             ^^^^^^^^
  Instead: for i in range(...)
""")
def refuse_iterating_function(x):
    for v in math.sin:
        x += v
    return x


@refused("""
KernelSyntaxError: `start` of `enumerate` must be a literal in a kernel
  File "...", line 2, column 17
    for i, v in enumerate(PAIR, int(x)):
                ^^^^^^^^^^^^^^^^^^^^^^^
  Instead: a variable of your own
""")
def refuse_start_of_enumerate(x):
    for i, v in enumerate(PAIR, int(x)):
        x += i * v
    return x


@refused("""
KernelTypeError: zip() argument 2 is longer than argument 1
  File "...", line 2, column 17
    for a, b in zip(PAIR, (1, 2, 3), strict=True):
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: tuples of one length
""")
def refuse_zip_of_different_lengths(x):
    for a, b in zip(PAIR, (1, 2, 3), strict=True):
        x += a * b
    return x


@refused("""
KernelSyntaxError: `zip` has no option `shortest`
  File "...", line 2, column 17
    for a, b in zip(PAIR, PAIR, shortest=True):
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: zip(...)
""")
def refuse_unknown_option(x):
    for a, b in zip(PAIR, PAIR, shortest=True):
        x += a * b
    return x


@refused("""
KernelSyntaxError: a range with bounds known only at run time works in `for` only
  File "...", line 2, column 20
    return x * sum(range(int(x)))
                   ^^^^^^^^^^^^^
  Instead: a `for` loop
""")
def refuse_range_of_argument(x):
    return x * sum(range(int(x)))


SET = {1.0, 2.0}


@refused("""
KernelTypeError: `zip` takes constant tuples, got set
  File "...", line 2, column 17
    for a, b in zip(PAIR, SET):
                ^^^^^^^^^^^^^^
  Instead: a tuple, such as (x, y)
""")
def refuse_zip_of_set(x):
    for a, b in zip(PAIR, SET):
        x += a * b
    return x


@refused("""
KernelSyntaxError: range takes one to three arguments
  File "...", line 2, column 14
    for _ in range():
             ^^^^^^^
  Instead: range(start, stop, step)
""")
def refuse_range_of_nothing(x):
    for _ in range():
        x += 1
    return x


@refused("""
KernelSyntaxError: generators are not supported here
  File "...", line 2, column 15
    return sum(x * v for v in PAIR)
              ^^^^^^^^^^^^^^^^^^^^^
  Instead: use a `for` loop
""")
def refuse_generator_expression(x):
    return sum(x * v for v in PAIR)


@refused("""
KernelSyntaxError: a kernel cannot assign elements or attributes
  File "...", line 2, column 5
    PAIR[0] += x
    ^^^^^^^
  Instead: return the value
""")
def refuse_adding_to_an_item(x):
    PAIR[0] += x
    return x
