# ruff: noqa
"""Kernels that do what the refusals of kernels advise.

``follow_NAME`` is ``refuse_NAME`` mended as its text says.  Python itself computes what is expected:
``x`` and ``y`` are floats, ``n`` and ``m`` integers, ``b`` and ``c`` booleans.
"""

import cmath
import functools
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mixad import special

PAIR = (1.0, 2.0)
ARRAY = np.arange(6.0).reshape(2, 3)
VALUE = {"k": 1.5}["k"]
LIST = (1.0, 2.0)
COMPLEX = complex(np.clongdouble(1.0 + 2.0j))
TEXT = "text"
NOTHING = None
CASES = tuple(float(k) for k in range(100))


class Pair(NamedTuple):
    a: Any
    b: Any


def twice(x):
    return 2 * x


def plain(x, scale=1.0):
    return x * scale


def two_minus(x):
    return math.pow(2.0, x)


def follow_adding_booleans(b, c):
    return int(b) + int(c)


def follow_floor_of_booleans(b):
    return np.floor(float(int(b)))


def follow_plus_of_booleans(b):
    return +int(b)


def follow_power_of_booleans(b, c):
    return int(b) ** int(c)


def follow_square_of_booleans(b):
    return np.square(int(b))


def follow_adding_to_a_shared_list(x):
    a = [x]
    b = a
    a = [*a, x]
    return len(b) * x + len(a)


def follow_adding_to_an_item(x):
    return PAIR[0] + x


def follow_append(x):
    out = [0.0] * 2
    out[0] = x
    out[1] = x * x
    return out[1]


def follow_argument_twice(x):
    return plain(x)


def follow_arithmetic_of_arrays(x):
    a = np.zeros(2)
    for i in range(2):
        a[i] = a[i] + x
    return a[0] * a[1]


def follow_array_by_a_condition(x):
    a = np.zeros(2)
    a[1] = x
    return a[int(x > 1)]


def follow_array_float_index(x):
    return ARRAY[int(x / 2), 0] * x


def follow_array_function(x):
    v = (x, 2 * x)
    total = 0.0
    for i in range(2):
        total += v[i] * v[i]
    return total


follow_numpy_norm = follow_array_function


def follow_numpy_sum(x):
    v = (x, 2 * x)
    return sum(v)


def follow_ufunc_reduction(x):
    total = 0.0
    for v in (x, 2 * x):
        total += v
    return total


def follow_array_of_ones(x):
    a = [1.0] * 3
    a[0] = x
    return a[1] * a[0]


def follow_array_of_several_arguments(x):
    return np.array([x, x * x])[1]


def follow_array_of_unknown_length(x):
    return np.zeros(3)[0] + np.zeros(len(PAIR))[1] + x


def follow_array_or_list(x):
    w = [0.0, 0.0]
    if x > 1:
        w = [x, x]
    return w[0]


def follow_array_that_becomes_a_list(x):
    w = np.zeros(2)
    while w[0] < x:
        w = np.array([w[1] + 1.0, w[0]])
    return w[0] * x


def follow_array_part(x):
    total = 0.0
    for i in range(2):
        total += ARRAY[0, i]
    return x * total


follow_array_slice = follow_array_part


def follow_array_rank(x):
    return ARRAY[0, 1] * x


def follow_array_without_index(x):
    return x + ARRAY.shape[0] + VALUE


def follow_captured_dict(x):
    return VALUE * x


def follow_assert(x):
    return math.log(x)


def follow_async(x):
    def inner():
        return x

    return inner()


def follow_attribute(x):
    return x * x


def follow_bare_return(x):
    if x > 1:
        return x
    return 2 * x


def follow_bessel_function(x):
    return x * VALUE


follow_function_of_another_library = follow_bessel_function


def follow_bits_of_floats(x):
    return (int(x) & 1) * x


def follow_bounds_of_clip(x):
    return np.clip(x, 0.0, 2.0)


def follow_broadcast(x):
    return twice(x) * x


def follow_calling_number(x):
    return x * (1)


def follow_captured_list(x):
    a, b = [*LIST]
    return x * a * b


def follow_append_to_a_captured_list(x):
    return 2 * x, x


def follow_captured_set_loop(x):
    for v in LIST:
        x += v
    return x


def follow_captured_long_complex(x):
    return (x * COMPLEX).imag


def follow_captured_none(x):
    return x if NOTHING is None else 2 * x


def follow_captured_set(x):
    return x * 2 if x in LIST else x


def follow_captured_text(x):
    return x if TEXT == "text" else 2 * x


follow_returning_text = follow_captured_text
follow_string = follow_captured_text
follow_text_in_a_test = follow_captured_text


def follow_choosing_functions(x):
    return math.sin(x) if x > 1 else math.cos(x)


def follow_choosing_functions_by_index(x):
    return (math.sin(x), math.cos(x))[int(x > 1)]


def follow_function_or_number(x):
    return math.sin(x) if x > 1 else x


def follow_object_or_number(x):
    return (twice(x) if x > 1 else 1.0) * x


def follow_object_as_number(x):
    return twice(x) * x


def follow_class_that_checks(x):
    return Pair(x, 2 * x).b


follow_class = follow_class_that_checks


def follow_complex_as_integer(x):
    return int(abs(x + 1j)) + (x + 1j).real


def follow_complex_floor_division(x):
    return ((x * 1j) / 2).imag


def follow_complex_floor_in_math(x):
    z = x + 1j
    return math.floor(z.real) * abs(z)


def follow_complex_in_math(x):
    z = x + 1j
    return cmath.exp(z).real


def follow_complex_inversion(x):
    return (x * 1j).conjugate().imag


def follow_complex_loop_that_changes_kind(x):
    z = x + 1j
    while abs(z) < 10:
        z = z * z
    return z.real


def follow_complex_minimum(x):
    return min(x, abs(x + 1j), (x + 1j).real)


def follow_complex_of_three(x):
    return complex(x, x).imag


follow_complex_with_an_option = follow_complex_of_three


def follow_complex_or_tuple(x):
    z = 1j
    if x > 1:
        z = x + 2j
    return z.real + z.imag


def follow_complex_order(x):
    z = x * 1j
    return x if abs(z) < abs(2j) and z.real < 1 else 2 * x


def follow_complex_remainder(x):
    return abs(x * 1j) % 2


def follow_complex_rounding(x):
    z = x + 1j
    return round(z.real) * abs(z)


def follow_inverse_function_of_complex(x):
    z = x / 3 + 1j
    return np.arcsin(z.real)


def follow_long_complex_function(x):
    return (np.complex128(x) * x).real


def follow_conjugate_of_captured_complex(x):
    return (x * np.conj(COMPLEX)).imag


def follow_comprehension(x):
    total = 0.0
    for _ in range(3):
        total += x
    return total


def follow_coroutine(x):
    return x * x


def follow_decorated_nested(x):
    def inner(t):
        return t * t

    return inner(x)


def follow_deep_conditions(x):
    result = 0.0
    if x > 1:
        result = x
    if x > 2:
        result = 2 * x
    for i in range(len(CASES)):
        if x > CASES[i]:
            result += 1.0
    return result


def follow_default_of_min(x):
    least = x
    for v in (x * x, 2 * x):
        if v < least:
            least = v
    return least


def follow_key_of_max(x):
    largest = -x
    for v in (1.0, -x):
        if abs(v) > abs(largest):
            largest = v
    return largest


def follow_default_that_is_changed(x):
    total = [0.0] * 3
    total[0] += x
    total[1] = total[0] * x
    return total[1]


def follow_delete(x):
    y = x
    return x


def follow_dict(x):
    a = x
    return (a, 2 * x)[0]


def follow_element_that_is_none_on_one_path(x):
    if x > 1:
        return x, 2 * x
    return x, x


def follow_endless_loop(x):
    while True:
        x += 1
        if x > 5:
            break
    return x


def follow_f_string(x):
    return x


def follow_falling_off_the_end(x):
    if x > 1:
        return x
    return 2 * x


def _returns(x):
    if x > 1:
        return x
    return 0.0


def follow_helper_that_falls_off_the_end(x):
    return _returns(x)


def follow_field_assignment(x):
    p = Pair(x, x)
    return p._replace(a=1.0).a * p.b


def follow_attribute_assignment(x):
    return x


def follow_field_that_is_missing(x):
    return Pair(a=x, b=2 * x).a


def follow_field_that_is_not_there(x):
    p = Pair(x, 2 * x)
    return p.a * p.b


def follow_generator(x):
    return (0 * x, 1 * x, 2 * x)


follow_yield = follow_generator


def follow_generator_expression(x):
    total = 0.0
    for v in PAIR:
        total += x * v
    return total


def follow_getattr(x):
    p = Pair(x, 2 * x)
    return p.b


def follow_global(x):
    return x, 2 * x


def follow_helper_that_takes_any_keywords(x):
    return plain(x, scale=1.5)


def follow_import(x):
    return math.sin(x)


def follow_index_outside_a_list(x):
    a = [x, x]
    a[1] = 1.0
    return a[0] + a[-2]


def follow_indexing_object(x):
    return (x, 2 * x)[0] * x


def follow_is(x):
    return x if x == 1.0 else 1.0


def follow_isinstance(x):
    return 1.0 * x


follow_type = follow_isinstance


def follow_item_assignment(x):
    return x, PAIR[1]


def follow_item_of_a_list_in_a_tuple(x):
    a = [0.0] * 2
    a[0] = 2.0
    a[1] = x
    return a[0] * a[1]


follow_item_of_a_list_of_the_caller = follow_item_of_a_list_in_a_tuple
follow_item_of_a_list_shared_by_a_choice = follow_item_of_a_list_in_a_tuple
follow_item_of_a_list_shared_in_a_loop = follow_item_of_a_list_in_a_tuple
follow_item_of_a_list_that_came_back = follow_item_of_a_list_in_a_tuple
follow_item_of_a_shared_list = follow_item_of_a_list_in_a_tuple
follow_view_of_an_array_that_is_changed = follow_item_of_a_list_in_a_tuple


def follow_item_of_a_local_tuple(x):
    t = [0.0] * 3
    t[0] = x
    u = np.zeros(3)
    u[1] = x
    return t[0] * u[1]


def follow_item_of_an_outer_list(x):
    a = [x, x]

    def fill():
        return 1.0

    a[0] = fill()
    return a[0] * a[1]


def follow_iterating_function(x):
    for i in range(3):
        x += math.sin(x)
    return x


def follow_keyword_of_builtin(x):
    return np.sin(x) if x > 1 else x


follow_option_of_numpy = follow_keyword_of_builtin


def follow_keyword_variadic(x, y):
    return x * y


follow_variadic = follow_keyword_variadic


def follow_large_array(x):
    a = np.zeros(64)
    a[63] = x
    return a[63] * ARRAY[0, 1]


def follow_large_integer(x):
    return x + 1e22


def follow_large_literal(n):
    return n + np.int16(300)


def follow_large_negative_literal(x):
    return x - 9223372036854775809.0


def follow_large_power(x):
    return x * 1e20


def follow_large_shift(x):
    return x * 9223372036854775808.0


def follow_unsigned_literal(n):
    return n + 1e19


def follow_too_large_unsigned_literal(n):
    return n + 1e20


def follow_very_large_power(x):
    return x + 1e100


def follow_ldexp(x):
    return math.ldexp(x, int(2.5)) + x * 2.0**3


def follow_length_of_array(x):
    return x * ARRAY.shape[0]


def follow_length_of_number(x):
    return len((x, x)) * x


def follow_list(x):
    return ([x, x] + [*(3 * x,)])[2]


def follow_lists_of_two_lengths(x):
    a = [x, x]
    if x > 1:
        a = [2 * x, 0.0]
    return a[0]


def follow_loop_over_a_list_that_it_changes(x):
    a = [x, x]
    t = 0.0
    for i in range(len(a)):
        v = a[i]
        a[1] = 2.0 * v
        t += v
    return t


def follow_loop_over_array(x):
    for i in range(ARRAY.shape[0]):
        x += ARRAY[i, 0]
    return x


def follow_loop_over_number(x):
    for i in range(int(x)):
        x = x * x
    return x


def follow_range_of_float(x):
    s = 0.0
    for i in range(int(x)):
        s += i * x
    return s


def follow_loop_that_changes_kind(x):
    t = (x, x)
    for _ in range(3):
        t = (t[0] * x, x)
    return t[0]


def follow_making_array(x):
    a = np.zeros(2)
    a[0] = x
    a[1] = x * x
    return tuple(a)


follow_result_that_is_an_array = follow_making_array


def follow_making_partial(x):
    power = lambda t: math.pow(2.0, t)
    return power(x)


def follow_partial(x):
    return two_minus(x)


def follow_match(x):
    if x == 1.0:
        return x
    elif x > 2:
        return 3 * x
    return 2 * x


def follow_matmul(x, y):
    return x * y


def follow_median_in_a_kernel(x, y):
    return max(min(x, y), min(max(x, y), 1.0))


def follow_mode_in_a_kernel(x, y):
    most, found = 0, x
    for t in (x, y, 2 * y - y):
        count = 0
        for u in (x, y, 2 * y - y):
            count = count + (1 if u == t else 0)
        if count > most:
            most, found = count, t
    return found


def follow_membership_of_set(x):
    return 1.0 * x if x in (1.0, 2.0) or x == 3.0 else 0.0


def follow_method(x):
    return abs(x) + math.sqrt(x)


follow_method_of_expression = follow_method
TOTAL = float(ARRAY.sum())


def follow_method_of_captured_array(x):
    return x + TOTAL


def follow_missing_argument(x):
    return twice(x)


follow_too_many_arguments = follow_missing_argument


def follow_nan_to_num(x):
    return (0.0 if np.isnan(x) else np.clip(x, -1e300, 1e300)) * 2


def follow_negative_power_of_integer(n):
    return float(n) ** -1


def follow_nested_result(x):
    return x, x, 2.0


def follow_no_result(x):
    return 1.0


def follow_nonlocal(x):
    def inner(x):
        return 2 * x

    return inner(x)


def follow_numpy_random(x, y):
    return x * y


follow_random = follow_numpy_random


def follow_operator(x):
    return x * x


def follow_print(x):
    return x, x * x


def follow_raise(x):
    if x < 0:
        return math.nan
    return x


def follow_range_of_argument(x):
    total = 0.0
    for i in range(int(x)):
        total += i
    return x * total


def follow_range_of_nothing(x):
    for _ in range(0, 3, 1):
        x += 1
    return x


def follow_range_step_zero(x):
    for i in range(0, 3, 2):
        x += i
    return x


def follow_read_before_assigned(x):
    y = 1.0
    y = y + x
    return y


def follow_reciprocal_of_integers(n):
    return 1 / n


def follow_recursion(x):
    while x >= 1:
        x = x - 1
    return x


def follow_mutual_recursion(n):
    result = True
    while n > 0:
        n -= 1
        result = not result
    return result * 1.0


def follow_reduce(x):
    found = x
    for v in (x * x, 2 * x):
        found = max(found, v)
    return found


def follow_remainder(x):
    return x - 0.7 * round(x / 0.7)


def follow_results_of_different_length(x):
    if x > 1:
        return x, x, 0.0
    return x, x, x


def follow_returning_function(x):
    def make(t):
        return t + x

    return make(x)


def follow_round_to_digits(x):
    return round(100 * x) / 100 * x


def follow_row_chosen_at_run_time_and_changed(x):
    m = [0.0] * 4
    m[0] = 5.0
    m[1] = x
    return m[int(x / 3)] + m[1]


def follow_row_for_a_number(x):
    a = [x, x]
    a[0] = 1.0
    a[1] = 2.0 * x
    return a[1]


def follow_rows_as_an_array(x):
    return np.array([x, 2 * x])[1]


def follow_rows_that_are_one_list(x):
    m = [[0.0] * 2, [0.0] * 2]
    m[0][0] = x
    return m[1][0] + m[0][0]


def follow_set(x):
    return max((x, 1.0))


def follow_slice_of_a_list_assigned(x):
    a = [x, x, x]
    a[1] = 1.0
    a[2] = 2.0
    return a[0] * a[2]


def follow_slice_of_argument(x):
    total = 0.0
    for i in range(int(x / 2), 2):
        total += PAIR[i]
    return total * x


def follow_start_of_enumerate(x):
    k = int(x)
    for v in PAIR:
        x += k * v
        k += 1
    return x


@dataclass
class Labelled:
    a: Any
    kind: Any = field(default="k", metadata={"static": True})


def follow_static_field_computed(x):
    return Labelled(x, "red").a


def follow_structure_as_number(x):
    a, b = Pair(x, 3 * x)
    return 2.0 * b


def follow_sum_of_array(x):
    total = 0.0
    for i in range(ARRAY.shape[0]):
        total += ARRAY[i, 1]
    return x * total + TOTAL


def follow_super(x):
    return twice(x) + 1.0


def follow_try(x):
    if x == 0:
        return 0.0
    return 1 / x


def follow_tuple_arithmetic(x):
    a, b = PAIR
    return a - x, b - x


def follow_tuple_index(x):
    return PAIR[1] * x + PAIR[-2]


def follow_tuple_of_nothing(x):
    return (x, x)[int(x / 3)]


def follow_tuple_or_number(x):
    if x > 1:
        y = (x, x)
    else:
        y = (x, 0.0)
    return y


def follow_tuple_times_float(x):
    a, b = (x, x)
    return sum((a * 1.5, b * 1.5))


def follow_two_indices_into_a_list(x):
    m = [[x, x], [x, x]]
    m[0][1] = 2.0
    return m[0][1] * m[1][0]


def follow_unassigned(x):
    y = 0.0
    if x > 1:
        y = 1.0
    return x * y


def follow_unassigned_after_loop(x):
    y = 0
    for i in range(int(x)):
        y = i
    return y * x


def follow_unassigned_else(x):
    w = 0.0
    while x < 3:
        x += 1
        if x == 2:
            z = x
            break
    else:
        z = 0.0
        w = 1.0
    return z + w


def follow_unassigned_in_closure(x):
    later = x

    def inner():
        return later * 2

    return inner()


def follow_unknown_attribute(x):
    return math.sin(x)


def follow_field_of_a_tuple(x):
    return x * PAIR[0]


FACTORIAL = float(math.factorial(4))


def follow_unknown_function(x):
    return math.gamma(x + 1.0) + FACTORIAL


def follow_unknown_keyword(x):
    return twice(x)


defined_name = 3.0


def follow_unknown_name(x):
    return x + defined_name


def follow_unknown_option(x):
    for a, b in zip(PAIR, PAIR):
        x += a * b
    return x


def follow_unpacked_argument(x):
    return math.hypot(x, x)


def follow_unpacked_index(x):
    return ARRAY[1, 0] * x


def follow_unpacked_keywords(x):
    return plain(x=x, scale=VALUE)


def follow_unpacking_number(x):
    a = x
    return a


def follow_unpacking_wrong_length(x):
    a, *b = x, 2 * x, 3 * x
    return a + b[1]


def follow_walrus(x):
    y = x * 2
    if y > 1:
        return y
    return x


def follow_wrapper(x):
    return math.sin(x)


follow_wrong_number_of_arguments = follow_wrapper


def follow_zeros_of_a_dtype(x):
    return np.zeros(3)[0] + ([0.0] * 3)[1] + x


def follow_zip_of_different_lengths(x):
    for a, b in zip(PAIR, (1, 2), strict=True):
        x += a * b
    return x


def follow_zip_of_set(x):
    for a, b in zip(PAIR, (x, 2 * x)):
        x += a * b
    return x
