"""Calls that are refused: elements combined by an operator."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from refused import refused
from subjects import X

import mixad

INDICES = np.asarray([0, 1, 0])


def add(a, b):
    return a + b


@refused("""
KernelShapeError: mixad.reduce: arrays of the shapes (3,) and (2,) in xs
  Instead: pass arrays of one shape: an element is what is at one place of all
""")
def refuse_arrays_of_several_shapes():
    mixad.reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]), (X, X[:2]))


@refused("""
KernelTypeError: mixad.reduce: xs contains complex numbers
  Instead: pass a tuple of real and imaginary parts, and combine these
""")
def refuse_complex_elements():
    mixad.reduce(lambda a, b: a * b, X + 1j)


@refused("""
KernelShapeError: mixad.reduce: xs has the shape ()
  Instead: pass arrays with an axis along which elements are combined
""")
def refuse_a_number_as_elements():
    mixad.reduce(add, np.ones(()))


@refused("""
KernelShapeError: mixad.reduce: xs has the shape (3,)
  Instead: pass arrays with the last axes (2, 2), and an axis along which elements are combined
""")
def refuse_elements_without_their_axes():
    mixad.reduce(lambda a, b: a, X, signature="(2,2)")


@refused("""
KernelTypeError: mixad.reduce: xs is list(*, *)
  Instead: pass an array, or a tuple, named tuple or dataclass of arrays
""")
def refuse_a_list_of_elements():
    mixad.reduce(add, [X, X])


@refused("""
KernelTypeError: mixad.reduce: axis is 'rows'
  Instead: pass a whole number or None
""")
def refuse_an_axis_that_is_no_number():
    mixad.reduce(lambda a, b: a * b, X, axis="rows")


@refused("""
KernelShapeError: mixad.reduce: axis 0 of shape (0,) has no element
  Instead: pass initial
""")
def refuse_no_elements():
    mixad.reduce(lambda a, b: b, X[:0])


@refused("""
KernelShapeError: mixad.associative_scan: exclusive=True needs initial, which the first element \
becomes
  Instead: pass initial, as a rule what changes no element
""")
def refuse_to_leave_out_the_first_element():
    mixad.associative_scan(add, X, exclusive=True)


@refused("""
KernelTypeError: mixad.reduce: initial is tuple(*, *), of elements that are *
  Instead: pass an element like those of xs
""")
def refuse_another_structure_to_begin_with():
    mixad.reduce(add, X, initial=(1.0, 2.0))


@refused("""
KernelTypeError: mixad.reduce: initial has the dtype float32, elements have float64
  Instead: pass a Python number, or convert it
""")
def refuse_another_dtype_to_begin_with():
    mixad.reduce(add, X, initial=np.ones((), np.float32))


@refused("""
KernelError: mixad.check_associative: <lambda> is not associative: with a = 1.0, b = 2.0, c = 3.0, \
(a∘b)∘c is -4.0 and a∘(b∘c) is 2.0
  File "...", line 2, column 29
    mixad.check_associative(lambda a, b: a - b, X)
                            ^^^^^^^^^^^^^^^^^^
  Instead: an operator for which these are one, or mixad.scan, which takes steps in order
""")
def refuse_what_is_not_associative():
    mixad.check_associative(lambda a, b: a - b, X)


@refused("""
ConfigurationError: mixad.reduce: signature='2,2' is none: write the lengths of the last axes that \
belong to an element, such as "(2,2)"
""")
def refuse_a_signature_that_is_none():
    mixad.reduce(add, X, signature="2,2")


@refused("""
KernelTypeError: mixad.reduce: the operator returns tuple(*, *) of numbers, combining elements \
that are a number
  File "...", line 2, column 18
    mixad.reduce(lambda a, b: (a, b), X)
                 ^^^^^^^^^^^^^^^^^^^
  Instead: return an element like those that are combined
""")
def refuse_two_results_for_one_number():
    mixad.reduce(lambda a, b: (a, b), X)


@refused("""
KernelTypeError: mixad.reduce: the operator returns a number of dtype bool, of elements of dtype \
float64
  File "...", line 2, column 18
    mixad.reduce(lambda a, b: a < b, X)
                 ^^^^^^^^^^^^^^^^^^
  Instead: pass elements of dtype bool, or convert what is returned
""")
def refuse_a_comparison_of_floats():
    mixad.reduce(lambda a, b: a < b, X)


@refused("""
KernelTypeError: mixad.reduce: the operator captures 'X', an array of shape (3,), as a number
  File "...", line 2, column 18
    mixad.reduce(lambda a, b: a + b * X, X)
                 ^^^^^^^^^^^^^^^^^^^^^^
  Instead: index it, or make it a part of the elements
""")
def refuse_an_array_that_is_no_number():
    mixad.reduce(lambda a, b: a + b * X, X)


@refused("""
ConfigurationError: mixad.reduce_by_index: mode='clip' is none: write 'raise' or 'drop'
""")
def refuse_another_mode():
    mixad.reduce_by_index(add, X, INDICES, X, mode="clip")


@refused("""
KernelTypeError: mixad.reduce_by_index: xs is tuple(*, *), dest is *
  Instead: pass elements of the structure of dest
""")
def refuse_other_elements_than_those_combined_with():
    mixad.reduce_by_index(add, X, INDICES, (X, X))


@refused("""
KernelTypeError: mixad.reduce_by_index: indices have the dtype float64
  Instead: pass whole numbers
""")
def refuse_indices_that_are_no_whole_numbers():
    mixad.reduce_by_index(add, X, X, X)


@refused("""
KernelShapeError: mixad.reduce_by_index: indices_are_sorted=True, and they are not
  Instead: leave it out
""")
def refuse_indices_that_are_not_sorted():
    mixad.reduce_by_index(lambda a, b: b, X, INDICES, X, indices_are_sorted=True)


@refused("""
KernelIndexError: mixad.reduce_by_index: index 1 at place 1 is outside of dest, which has 1 elements
  Instead: mode='drop' leaves it out
""")
def refuse_an_index_outside():
    mixad.reduce_by_index(lambda a, b: b, X[:1], INDICES, X)


@refused("""
KernelIndexError: reduce_by_index: index 1 is outside 'dest' of shape (1,)
  Instead: mode='drop' leaves out what is outside
""")
def refuse_an_index_outside_of_sums():
    mixad.reduce_by_index(add, X[:1], INDICES, X)


@refused("""
KernelShapeError: mixad.reduce_by_index: arrays of the shapes (3,) and (1,) in dest
  Instead: pass arrays of one shape: an element is what is at one place of all
""")
def refuse_to_combine_with_arrays_of_several_shapes():
    mixad.reduce_by_index(lambda a, b: b, (X, X[:1]), INDICES, (X, X))


@refused("""
KernelShapeError: mixad.reduce_by_index: xs has the shape (2,), with indices of shape (3,) and \
dest of shape (3,)
  Instead: pass elements of shape (3,)
""")
def refuse_elements_of_another_shape():
    mixad.reduce_by_index(add, X, INDICES, X[:2])


@refused("""
KernelTypeError: mixad.reduce_by_index: xs has the dtype float32, dest has float64
  Instead: convert one of them
""")
def refuse_elements_of_another_dtype():
    mixad.reduce_by_index(add, X, INDICES, np.ones(3, np.float32))


@refused("""
KernelShapeError: numpy.add.reduceat of a traced value takes whole numbers that grow
  Instead: mixad.reduce_by_index, or sums of slices
""")
def refuse_sums_between_indices_that_do_not_grow():
    mixad.grad(lambda x: np.add.reduceat(x, [1, 0]).sum())(X)


@refused("""
KernelTypeError: mixad.reduce: initial is 0.5, elements are int64
  Instead: pass a number of that dtype, or convert the elements
""")
def refuse_a_fraction_to_begin_with():
    mixad.reduce(add, np.asarray([1, 2]), initial=0.5)


@refused("""
KernelShapeError: mixad.associative_scan: initial has the shape (2,), elements beside each other \
have ()
  Instead: pass a number, or an array of that shape
""")
def refuse_another_shape_to_begin_with():
    mixad.associative_scan(add, X, initial=np.ones(2))


@refused("""
KernelTypeError: mixad.reduce: the operator takes two elements: <lambda>() too many positional \
arguments
  Instead: pass a function op(a, b)
""")
def refuse_an_operator_of_one_element():
    mixad.reduce(lambda a: a, X)


@refused("""
KernelTypeError: mixad.reduce: <ufunc 'add'>: `op` of booleans: libraries disagree about its type
  Instead: use int(...), or `and`, `or`, `not`
""")
def refuse_a_ufunc_of_booleans():
    mixad.reduce(np.add, X > 1.0)


@refused("""
KernelTypeError: mixad.reduce: elements of 1 arrays with the last axes (6, 6) have more than 32 \
numbers
  Instead: combine smaller elements, or use mixad.scan, which takes steps of any size
""")
def refuse_too_large_elements():
    mixad.reduce(lambda a, b: a, np.ones((2, 6, 6)), signature="(6,6)")


@refused("""
KernelTypeError: mixad.reduce: the operator captures 'table', an array of array_api_strict, and \
elements are of numpy
  File "...", line 5, column 18
    mixad.reduce(lambda a, b: a + b * table[0], X)
                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  Instead: convert it to an array of numpy
""")
def refuse_an_operator_with_an_array_of_another_library():
    import array_api_strict

    table = array_api_strict.asarray([1.0])
    mixad.reduce(lambda a, b: a + b * table[0], X)


@refused("""
KernelTypeError: mixad.reduce: arrays of dask, whose elements along an axis are in chunks
  Instead: x.compute(), or combine what mixad.reduce gives for each chunk
""")
def refuse_elements_in_chunks():
    import dask.array

    mixad.reduce(lambda a, b: b, dask.array.ones(3, chunks=1))


@refused("""
KernelTypeError: mixad.reduce_by_index: dest contains complex numbers
  Instead: pass a tuple of real and imaginary parts, and combine these
""")
def refuse_to_combine_with_complex_numbers():
    mixad.reduce_by_index(add, X + 1j, INDICES, X + 1j)


@refused("""
KernelTypeError: mixad.reduce_by_index: dest is tuple()
  Instead: pass an array, or a tuple, named tuple or dataclass of arrays
""")
def refuse_to_combine_with_nothing():
    mixad.reduce_by_index(add, (), INDICES, ())


@refused("""
KernelShapeError: mixad.reduce_by_index: dest has the shape ()
  Instead: pass arrays with an axis for the indices
""")
def refuse_to_combine_with_a_number():
    mixad.reduce_by_index(add, np.ones(()), INDICES, X)


@dataclass
class Pair:
    left: Any
    right: Any


@refused("""
KernelTypeError: mixad.reduce: a signature with elements that are Pair(*, *)
  Instead: pass a tuple or a named tuple of arrays
""")
def refuse_records_of_small_arrays():
    mixad.reduce(lambda a, b: b, Pair(np.ones((3, 2)), np.ones((3, 2))), signature="(2)")
