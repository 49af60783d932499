# ruff: noqa
"""Kernels that are refused: tuples, lists, arrays and structures in them."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from refused import refused


@refused("""
KernelTypeError: a list of 2 and a tuple of 1 have no such operator
  File "...", line 2, column 12
    return [x, x] + (x,)
           ^^^^^^^^^^^^^
  Instead: unpack the tuple
""")
def refuse_list(x):
    return [x, x] + (x,)


PAIR = (1.0, 2.0)


@refused("""
KernelTypeError: index 2 is outside a tuple of 2
  File "...", line 2, column 12
    return PAIR[2] * x
           ^^^^^^^
  Instead: an index from -2 to 1
""")
def refuse_tuple_index(x):
    return PAIR[2] * x


@refused("""
KernelTypeError: a tuple of 2 and a f64 have no such operator
  File "...", line 2, column 12
    return PAIR - x
           ^^^^^^^^
  Instead: unpack the tuple
""")
def refuse_tuple_arithmetic(x):
    return PAIR - x


@refused("""
KernelTypeError: a tuple without items is indexed
  File "...", line 2, column 12
    return ()[int(x)]
           ^^^^^^^^^^
  Instead: a tuple that has items
""")
def refuse_tuple_of_nothing(x):
    return ()[int(x)]


@refused("""
KernelTypeError: the result is an array of 3, and the kernel has no signature
  File "...", line 2, column 5
    return np.zeros(3)
    ^^^^^^^^^^^^^^^^^^
  Instead: return tuple(...), or say mixad.broadcast(signature="(n)->(n)")
""")
def refuse_making_array(x):
    return np.zeros(3)


@refused("""
KernelTypeError: a tuple of 2 and a Python float have no such operator
  File "...", line 2, column 16
    return sum((x, x) * 1.5)
               ^^^^^^^^^^^^
  Instead: unpack the tuple
""")
def refuse_tuple_times_float(x):
    return sum((x, x) * 1.5)


@refused("""
KernelSyntaxError: sets are not supported in a kernel
  File "...", line 2, column 16
    return max({x, 1.0})
               ^^^^^^^^
  Instead: use a tuple
""")
def refuse_set(x):
    return max({x, 1.0})


@refused("""
KernelSyntaxError: `a` is an argument, or goes by another name too: it cannot be assigned to
  File "...", line 4, column 5
    a[0] = 2.0
    ^^^^
  Instead: make a list of your own, [0.0] * 3, and give it one name only
""")
def refuse_item_of_a_shared_list(x):
    a = [x, 1.0]
    b = a
    a[0] = 2.0
    return b[0]


@refused("""
KernelSyntaxError: `a` is an argument, or goes by another name too: it cannot be assigned to
  File "...", line 6, column 5
    a[0] = 2.0
    ^^^^
  Instead: make a list of your own, [0.0] * 3, and give it one name only
""")
def refuse_item_of_a_list_shared_in_a_loop(x):
    a, b = [x, 1.0], [x, 2.0]
    while x < 1.0:
        x += 1.0
        b = a
    a[0] = 2.0
    return b[0]


@refused("""
KernelSyntaxError: `a` is an argument, or goes by another name too: it cannot be assigned to
  File "...", line 4, column 5
    a[0] = 2.0
    ^^^^
  Instead: make a list of your own, [0.0] * 3, and give it one name only
""")
def refuse_item_of_a_list_shared_by_a_choice(x):
    a = [x, 1.0]
    b = a if x > 0 else [x, 2.0]
    a[0] = 2.0
    return b[0]


@refused("""
KernelSyntaxError: `a` is an argument, or goes by another name too: it cannot be assigned to
  File "...", line 4, column 5
    a[0] = 2.0
    ^^^^
  Instead: make a list of your own, [0.0] * 3, and give it one name only
""")
def refuse_item_of_a_list_in_a_tuple(x):
    a = [x, 1.0]
    pair = (a, x)
    a[0] = 2.0
    return pair[0][0]


@refused("""
KernelSyntaxError: `a` is an argument, or goes by another name too: it cannot be assigned to
  File "...", line 3, column 9
    a[0] = 1.0
    ^^^^
  Instead: make a list of your own, [0.0] * 3, and give it one name only
""")
def refuse_item_of_a_list_of_the_caller(x):
    def fill(a):
        a[0] = 1.0
        return 0.0

    a = [x, x]
    fill(a)
    return a[0]


@refused("""
KernelSyntaxError: `a` is an argument, or goes by another name too: it cannot be assigned to
  File "...", line 7, column 5
    a[0] = 1.0
    ^^^^
  Instead: make a list of your own, [0.0] * 3, and give it one name only
""")
def refuse_item_of_a_list_that_came_back(x):
    def same(a):
        return a

    a = [x, x]
    b = same(a)
    a[0] = 1.0
    return b[0]


@refused("""
KernelSyntaxError: a kernel cannot assign elements
  File "...", line 5, column 9
    a[0] = 1.0
    ^^^^
  Instead: return the value
""")
def refuse_item_of_an_outer_list(x):
    a = [x, x]

    def fill():
        a[0] = 1.0
        return 0.0

    fill()
    return a[0]


@refused("""
KernelSyntaxError: `m[0]` is an argument, or goes by another name too: it cannot be assigned to
  File "...", line 3, column 5
    m[0][0] = x
    ^^^^^^^
  Instead: make a list of your own, [0.0] * 3, and give it one name only
""")
def refuse_rows_that_are_one_list(x):
    m = [[0.0] * 2] * 2
    m[0][0] = x
    return m[1][0]


@refused("""
KernelTypeError: `t` is a tuple of 2: it has no items to assign to
  File "...", line 3, column 5
    t[0] = 1.0
    ^^^^
  Instead: a list, [0.0] * 3, or an array, np.zeros(3), that the kernel makes
""")
def refuse_item_of_a_local_tuple(x):
    t = (x, x)
    t[0] = 1.0
    return t[0]


@refused("""
KernelSyntaxError: a slice cannot be assigned to
  File "...", line 3, column 5
    a[1:] = [1.0, 2.0]
    ^^^^^
  Instead: assign one item after another
""")
def refuse_slice_of_a_list_assigned(x):
    a = [x, x, x]
    a[1:] = [1.0, 2.0]
    return a[0]


@refused("""
KernelSyntaxError: `a` goes by another name too: it cannot be added to
  File "...", line 4, column 5
    a += [x]
    ^^^^^^^^
  Instead: a new list
""")
def refuse_adding_to_a_shared_list(x):
    a = [x]
    b = a
    a += [x]
    return len(b) * x


@refused("""
KernelTypeError: index 2 is outside a list of 2
  File "...", line 3, column 5
    a[2] = 1.0
    ^^^^
  Instead: an index from -2 to 1
""")
def refuse_index_outside_a_list(x):
    a = [x, x]
    a[2] = 1.0
    return a[0]


@refused("""
KernelSyntaxError: the loop assigns to items of 'a', over which it runs
  File "...", line 4, column 14
    for v in a:
             ^
  Instead: for i in range(len(a))
""")
def refuse_loop_over_a_list_that_it_changes(x):
    a = [x, x]
    t = 0.0
    for v in a:
        a[1] = 2.0 * v
        t += v
    return t


@refused("""
KernelSyntaxError: `a` is an argument, or goes by another name too: it cannot be assigned to
  File "...", line 4, column 5
    a[1] = x
    ^^^^
  Instead: make a list of your own, [0.0] * 3, and give it one name only
""")
def refuse_view_of_an_array_that_is_changed(x):
    a = np.zeros(3)
    b = a[1:]
    a[1] = x
    return b[0]


@refused("""
KernelTypeError: an array of 2 and a Python float have no such operator
  File "...", line 2, column 13
    return (np.zeros(2) + 1.0)[0]
            ^^^^^^^^^^^^^^^^^
  Instead: a loop over the elements
""")
def refuse_arithmetic_of_arrays(x):
    return (np.zeros(2) + 1.0)[0]


@refused("""
KernelSyntaxError: an array of 100 elements: in a kernel each is a variable, and 64 are as many as \
it takes
  File "...", line 2, column 12
    return np.zeros(100)[0]
           ^^^^^^^^^^^^^
  Instead: a smaller one, or an array from outside
""")
def refuse_large_array(x):
    return np.zeros(100)[0]


@refused("""
KernelSyntaxError: the shape of an array is known when it is compiled
  File "...", line 2, column 12
    return np.zeros(int(x))[0]
           ^^^^^^^^^^^^^^^^
  Instead: a literal, or len(...)
""")
def refuse_array_of_unknown_length(x):
    return np.zeros(int(x))[0]


@refused("""
KernelTypeError: `np.array` takes a sequence of numbers here, got list of 2
  File "...", line 2, column 12
    return np.array([[x, x], [x, x]])[0]
           ^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: np.array([x, y])
""")
def refuse_rows_as_an_array(x):
    return np.array([[x, x], [x, x]])[0]


@refused("""
KernelTypeError: 'a' is a list of 1 here: it has no attribute 'append'
  File "...", line 3, column 5
    a.append(x)
    ^^^^^^^^
  Instead: a list of its final length, such as [0.0] * 3, and out[i] = ...
""")
def refuse_append(x):
    a = [x]
    a.append(x)
    return a[1]


class Pair(NamedTuple):
    a: float
    b: float


@refused("""
KernelTypeError: 'p' is a Pair here: it has no attribute 'c'
  File "...", line 3, column 12
    return p.c
           ^^^
  Instead: its fields are a, b
""")
def refuse_field_that_is_not_there(x):
    p = Pair(x, x)
    return p.c


@refused("""
KernelTypeError: `Pair`: missing a required argument: 'b'
  File "...", line 2, column 12
    return Pair(x).a
           ^^^^^^^
  Instead: Pair(a=..., b=...)
""")
def refuse_field_that_is_missing(x):
    return Pair(x).a


@dataclass
class Checked:
    a: float

    def __post_init__(self):
        self.a = abs(self.a)


@refused("""
KernelSyntaxError: `Checked` does more than to keep its fields when it is made
  File "...", line 2, column 12
    return Checked(x).a
           ^^^^^^^^^^
  Instead: a named tuple or a dataclass without methods of its own for that
""")
def refuse_class_that_checks(x):
    return Checked(x).a


@refused("""
KernelSyntaxError: a kernel cannot assign attributes
  File "...", line 3, column 5
    p.a = 1.0
    ^^^
  Instead: return the value
""")
def refuse_field_assignment(x):
    p = Pair(x, x)
    p.a = 1.0
    return p.a


@refused("""
KernelTypeError: a Python float and a Pair have no such operator
  File "...", line 2, column 12
    return 2.0 * Pair(x, x)
           ^^^^^^^^^^^^^^^^
  Instead: unpack the tuple
""")
def refuse_structure_as_number(x):
    return 2.0 * Pair(x, x)


@refused("""
KernelTypeError: 'a' is a list of 1 on one path (line 4) and a list of 2 on the other (line 2)
  File "...", line 3, column 5
    if x > 0:
    ^^^^^^^^^
  Instead: give both paths values of one type
""")
def refuse_lists_of_two_lengths(x):
    a = [x, x]
    if x > 0:
        a = [x]
    return a[0]


@refused("""
KernelTypeError: the result is an array of 2, and the kernel has no signature
  File "...", line 4, column 5
    return a
    ^^^^^^^^
  Instead: return tuple(...), or say mixad.broadcast(signature="(n)->(n)")
""")
def refuse_result_that_is_an_array(x):
    a = np.zeros(2)
    a[0] = x
    return a


@dataclass
class Labelled:
    a: float
    kind: float = field(metadata={"static": True})


@refused("""
KernelTypeError: 'kind' is a static field: it is known when the function is compiled
  File "...", line 2, column 12
    return Labelled(x, x).a
           ^^^^^^^^^^^^^^
  Instead: a literal, or a field that is not static
""")
def refuse_static_field_computed(x):
    return Labelled(x, x).a


@refused("""
KernelTypeError: `a[0]` is a f64, and a list of 2 is assigned to it
  File "...", line 3, column 5
    a[0] = [1.0, 2.0]
    ^^^^
  Instead: assign number by number
""")
def refuse_row_for_a_number(x):
    a = [x, x]
    a[0] = [1.0, 2.0]
    return a[1]


@refused("""
KernelTypeError: a list has one axis
  File "...", line 3, column 5
    m[0, 1] = 2.0
    ^^^^^^^
  Instead: m[i][j] = ...
""")
def refuse_two_indices_into_a_list(x):
    m = [[x, x], [x, x]]
    m[0, 1] = 2.0
    return m[0][1]


@refused("""
KernelSyntaxError: `np.zeros` takes a constant shape here, and nothing else
  File "...", line 2, column 12
    return np.zeros(2, dtype=np.float32)[0] + x
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: np.zeros(3), or [0.0] * 3, which takes the type of what is added
""")
def refuse_zeros_of_a_dtype(x):
    return np.zeros(2, dtype=np.float32)[0] + x


@refused("""
KernelSyntaxError: `np.array` takes one sequence here
  File "...", line 2, column 12
    return np.array((x, x), float)[0]
           ^^^^^^^^^^^^^^^^^^^^^^^
  Instead: np.array([x, y])
""")
def refuse_array_of_several_arguments(x):
    return np.array((x, x), float)[0]


@refused("""
KernelSyntaxError: `m` is an argument, or goes by another name too: it cannot be assigned to
  File "...", line 4, column 5
    m[0][0] = 5.0
    ^^^^^^^
  Instead: make a list of your own, [0.0] * 3, and give it one name only
""")
def refuse_row_chosen_at_run_time_and_changed(x):
    m = [[x, 1.0], [2.0, 3.0]]
    row = m[int(x)]
    m[0][0] = 5.0
    return row[0]


@refused("""
KernelSyntaxError: `np.ones` is not supported in a kernel
  File "...", line 2, column 9
    a = np.ones(2)
        ^^^^^^^^^^
  Instead: [1.0] * 3
""")
def refuse_array_of_ones(x):
    a = np.ones(2)
    a[0] = x
    return a[1]


@refused("""
KernelTypeError: an index is an integer, not bool
  File "...", line 3, column 14
    return a[x > 0]
             ^^^^^
  Instead: use int(...)
""")
def refuse_array_by_a_condition(x):
    a = np.zeros(2)
    return a[x > 0]


@refused("""
KernelSyntaxError: `total` is an argument, or goes by another name too: it cannot be assigned to
  File "...", line 3, column 9
    total[0] += t
    ^^^^^^^^
  Instead: make a list of your own, [0.0] * 3, and give it one name only
""")
def refuse_default_that_is_changed(x):
    def summed(t, total=[0.0]):
        total[0] += t
        return total[0]

    summed(x)
    return summed(x)


@refused("""
KernelTypeError: 'w' is an array of 2 when the loop starts and a list of 2 after an iteration (line 4)
  File "...", line 3, column 5
    while w[0] < x:
    ^^^^^^^^^^^^^^^
  Instead: a list in both cases, such as list(w), or an array, such as np.array([x, y])
""")
def refuse_array_that_becomes_a_list(x):
    w = np.zeros(2)
    while w[0] < x:
        w = [w[1] + 1.0, w[0]]
    return w[0]


@refused("""
KernelTypeError: 'w' is a list of 2 on one path (line 4) and an array of 2 on the other (line 2)
  File "...", line 3, column 5
    if x > 0:
    ^^^^^^^^^
  Instead: a list in both cases, such as list(w), or an array, such as np.array([x, y])
""")
def refuse_array_or_list(x):
    w = np.zeros(2)
    if x > 0:
        w = [x, x]
    return w[0]
