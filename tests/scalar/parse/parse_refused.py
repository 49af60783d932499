# ruff: noqa
"""Functions that are refused, each for one reason.  Line numbers are part of the expected texts."""

import functools
import linecache, math, operator
import random

import mixad, numpy as np

LIST = [1.0, 2.0]
PAIR = (1.0, 2.0)
ARRAY = np.arange(6.0).reshape(2, 3)
TEXT = "text"
DICT = {"k": 1.0}


def recursive(x):
    return x if x < 1 else recursive(x - 1)


def even(n):
    return True if n == 0 else odd(n - 1)


def odd(n):
    return False if n == 0 else even(n - 1)


def without_return(x):
    if x > 0:
        return x


def refuse_assert(x):
    assert x > 0
    return x


def refuse_raise(x):
    if x < 0:
        raise ValueError("negative")
    return x


def refuse_try(x):
    try:
        return 1 / x
    except ZeroDivisionError:
        return 0.0


def refuse_with(x):
    with np.errstate(all="ignore"):
        return x


def refuse_print(x):
    print(x)
    return x


def refuse_string(x):
    return x + "a"


def refuse_f_string(x):
    y = f"{x}"
    return x


def refuse_list(x):
    return [x, x] + (x,)


def refuse_captured_list(x):
    return x * LIST


def refuse_captured_list_element(x):
    return x * LIST[0]


def refuse_dict(x):
    return {"a": x}["a"]


def refuse_captured_dict(x):
    return DICT["k"] * x


def refuse_comprehension(x):
    return sum([x for _ in range(3)])


def refuse_yield(x):
    yield x


def refuse_global(x):
    global TEXT
    TEXT = x
    return x


def refuse_nonlocal(x):
    def inner():
        nonlocal x
        x = 1.0
        return x

    return inner()


def refuse_random(x):
    return x * random.random()


def refuse_numpy_random(x):
    return x * np.random.rand()


def refuse_import(x):
    import math

    return math.sin(x)


def refuse_walrus(x):
    if (y := x * 2) > 1:
        return y
    return x


def refuse_match(x):
    match x:
        case 1.0:
            return x
    return 2 * x


def refuse_matmul(x, y):
    return x @ y


def refuse_class(x):
    class A:
        pass

    return x


def refuse_delete(x):
    y = x
    del y
    return x


def refuse_method(x):
    return x.sum()


def refuse_attribute(x):
    return x.shape


def refuse_method_of_expression(x):
    return (x + 1).sum()


def refuse_item_assignment(x):
    PAIR[0] = x
    return x


def refuse_attribute_assignment(x):
    math.k = x
    return x


def refuse_indexing_argument(x):
    return x[0]


def refuse_unassigned(x):
    if x > 0:
        y = 1.0
    return x * y


def refuse_unassigned_after_loop(x):
    for i in range(int(x)):
        y = i
    return y


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


def refuse_read_before_assigned(x):
    y = y + x
    y = 1.0
    return y


def refuse_unassigned_in_closure(x):
    def inner():
        return later * 2

    r = inner()
    later = x
    return r


def refuse_falling_off_the_end(x):
    if x > 0:
        return x
    y = x


def refuse_helper_that_falls_off_the_end(x):
    return without_return(x)


def refuse_bare_return(x):
    if x > 0:
        return
    return x


def refuse_tuple_or_number(x):
    if x > 0:
        y = (x, x)
    else:
        y = x
    return y


def refuse_results_of_different_length(x):
    if x > 0:
        return x, x
    return x, x, x


def refuse_function_or_number(x):
    f = math.sin if x > 0 else x
    return f


def refuse_choosing_functions(x):
    f = math.sin if x > 0 else math.cos
    return f(x)


def refuse_loop_that_changes_kind(x):
    t = x
    for _ in range(3):
        t = (t, x)
    return x if x > 0 else t


def refuse_recursion(x):
    return recursive(x)


def refuse_mutual_recursion(x):
    return even(int(x)) * 1.0


def refuse_endless_loop(x):
    while True:
        x += 1
    return x


def refuse_range_of_float(x):
    s = 0.0
    for i in range(x):
        s += i
    return s


def refuse_range_step_zero(x):
    for i in range(0, 3, 0):
        x += i
    return x


def refuse_loop_over_number(x):
    for i in x:
        pass
    return x


def refuse_loop_over_array(x):
    s = x
    for v in ARRAY:
        s += v
    return s


def refuse_unknown_name(x):
    return x + undefined_name


def refuse_unknown_attribute(x):
    return math.no_such_function(x)


def refuse_unknown_function(x):
    return math.factorial(x)


def refuse_isinstance(x):
    return 1.0 if isinstance(x, float) else 0.0


def refuse_calling_number(x):
    return x(1)


def refuse_wrong_number_of_arguments(x):
    return math.sin(x, x)


def refuse_missing_argument(x):
    return recursive()


def refuse_unknown_keyword(x):
    return without_return(x, scale=2)


def refuse_argument_twice(x):
    return recursive(x, x=x)


def refuse_keyword_of_builtin(x):
    return np.sin(x, where=True)


def refuse_too_many_arguments(x):
    return recursive(x, x)


def refuse_unpacking_number(x):
    a, b = x
    return a


def refuse_unpacking_wrong_length(x):
    a, b = x, x, x
    return a


def refuse_tuple_index(x):
    return PAIR[2] * x


def refuse_tuple_arithmetic(x):
    return PAIR - x


def refuse_array_without_index(x):
    return x + ARRAY.shape[0] + DICT


def refuse_array_rank(x):
    return ARRAY[0] * x


def refuse_array_float_index(x):
    return ARRAY[x, 0] * x


def refuse_array_negative_index(x):
    return ARRAY[-1, 0] * x


def refuse_is(x):
    return x if x is ARRAY else 1.0


def refuse_complex_order(x):
    return x * 1j < 2


def refuse_large_integer(x):
    return x + 10000000000000000000000


def refuse_bits_of_floats(x):
    return x & 1


def refuse_adding_booleans(x, y):
    return x + y


def refuse_large_literal(n, x):
    return n + 300


def refuse_negative_power_of_integer(n, x):
    return n**-1


def refuse_u64_comparison(n, m):
    return 1.0 if n < m else 0.0


def refuse_mixture_of_narrow_floats(x, y):
    return x + y


def refuse_strict_mixture(n, x):
    return n + x


def refuse_strict_division(n, m):
    return n / m


def refuse_strict_sine(n, m):
    return math.sin(n) + m


def refuse_returning_function(x):
    def make():
        return lambda t: t + x

    return make()(x)


def refuse_returning_text(x):
    return TEXT


def refuse_variadic(x, *more):
    return x


def refuse_round_to_digits(x):
    return round(x, 2)


def refuse_decorated_nested(x):
    @staticmethod
    def inner(t):
        return t

    return inner(x)


def refuse_async(x):
    async def inner():
        return x

    return x


COMPLEX = np.clongdouble(1.0 + 2.0j)
NOTHING = None
SET = {1.0}


def refuse_captured_text(x):
    return x * TEXT


def refuse_captured_none(x):
    return x * NOTHING


def refuse_captured_long_complex(x):
    return x * COMPLEX


def refuse_captured_set(x):
    return x * SET


def refuse_captured_list_loop(x):
    for v in LIST:
        x += v
    return x


def refuse_array_slice(x):
    return x * ARRAY[0, 1:]


def refuse_array_part(x):
    return x * sum(ARRAY[0, :2])


def refuse_key_of_max(x):
    return max(x, 1.0, key=abs)


def refuse_default_of_min(x):
    return min((), default=x)


def refuse_length_of_array(x):
    return x * len(ARRAY)


def refuse_sum_of_array(x):
    return x * sum(ARRAY)


def refuse_length_of_number(x):
    return len(x)


def refuse_unsigned_literal(n):
    return n + 10000000000000000000


def refuse_too_large_unsigned_literal(n):
    return n + np.uint64(100000000000000000000)


def refuse_keyword_variadic(x, **more):
    return x


async def refuse_coroutine(x):
    return x


def refuse_generator(x):
    for i in range(3):
        yield x * i


def refuse_reciprocal_of_integers(n):
    return np.reciprocal(n)


def refuse_integers_beside_bfloat16(n, x):
    return n + x


def refuse_square_of_booleans(b):
    return np.square(b)


def refuse_bounds_of_clip(x):
    return np.clip(x, 0, 1, 2)


def refuse_iterating_function(x):
    for v in math.sin:
        x += v
    return x


def refuse_method_of_captured_array(x):
    return x + ARRAY.sum()


def refuse_array_function(x):
    return x + np.dot(x, x)


def refuse_text_in_a_test(x):
    if TEXT < "u":
        return x
    return 2 * x


def refuse_unpacked_argument(x):
    return math.hypot(*x)


def refuse_tuple_of_nothing(x):
    return ()[int(x)]


def refuse_large_negative_literal(x):
    return x + -9223372036854775809


class Base:
    def f(self, x):
        return x


class Child(Base):
    def f(self, x):
        return super().f(x) * 2


CHILD = Child()
PARTIAL = functools.partial(math.pow, 2.0)


def refuse_super(x):
    return CHILD.f(x)


def refuse_partial(x):
    return PARTIAL(x)


def refuse_start_of_enumerate(x):
    for i, v in enumerate(PAIR, int(x)):
        x += i * v
    return x


def refuse_zip_of_different_lengths(x):
    for a, b in zip(PAIR, (1, 2, 3), strict=True):
        x += a * b
    return x


def refuse_nested_result(x):
    return x, (x, 2.0)


def refuse_large_power(x):
    return x * 10**20


def refuse_large_shift(x):
    return x * (1 << 63)


def refuse_very_large_power(x):
    return x + 10**10**10


def refuse_transform(x):
    return mixad.grad(lambda u: u * u)(x)


GRADIENT = mixad.grad(math.sin)


def refuse_gradient(x):
    return GRADIENT(x)


def refuse_broadcast(x):
    return mixad.broadcast(lambda u: u * u)(x)


def refuse_ldexp(x):
    return math.ldexp(x, 2.5)


def refuse_remainder(x):
    return math.remainder(x, x)


def refuse_operator(x):
    return operator.mul(x, x)


def refuse_making_partial(x):
    return functools.partial(math.pow, 2.0)(x)


def refuse_reduce(x):
    return functools.reduce(max, (x, x))


def refuse_getattr(x):
    return getattr(x, "real")


def refuse_type(x):
    return type(x)(2)


def refuse_long_complex_function(x):
    return np.clongdouble(x) * x


def refuse_making_array(x):
    return np.zeros(3)


def refuse_numpy_sum(x):
    return np.sum(x)


def refuse_numpy_norm(x):
    return np.linalg.norm(x)


def refuse_ufunc_reduction(x):
    return np.add.reduce(x)


def refuse_calling_none(x):
    return NOTHING(x)


NOTHING = None


def refuse_floor_of_booleans(b):
    return np.floor(b)


def refuse_power_of_booleans(a, b):
    return a**b


def refuse_plus_of_booleans(b):
    return +b


class Doubled:
    def __call__(self, x):
        return 2 * x


DOUBLED = Doubled()


def refuse_indexing_object(x):
    return DOUBLED[0] * x


def refuse_object_as_number(x):
    return DOUBLED * x


def refuse_object_or_number(x):
    return (DOUBLED if x > 0 else 1.0) * x


def refuse_option_of_numpy(x):
    return np.sin(x, dtype=np.float32)


def refuse_choosing_functions_by_index(x):
    return (math.sin, math.cos)[int(x > 1)](x)


def refuse_no_result(x):
    return ()


CACHED = functools.update_wrapper(functools.lru_cache(lambda x: 2 * math.sin(x)), math.sin)


def refuse_wrapper(x):
    return CACHED(x)


def refuse_tuple_times_float(x):
    return sum((x, x) * 1.5)


def variadic_by_name(x, **options):
    return x


def refuse_helper_that_takes_any_keywords(x):
    return variadic_by_name(x, a=1.0)


def refuse_unpacked_keywords(x):
    return without_return(**DICT)


def refuse_membership_of_list(x):
    return 1.0 if x in LIST else 0.0


def refuse_unknown_option(x):
    for a, b in zip(PAIR, PAIR, shortest=True):
        x += a * b
    return x


def refuse_range_of_argument(x):
    return x * sum(range(int(x)))


def refuse_zip_of_list(x):
    for a, b in zip(PAIR, LIST):
        x += a * b
    return x


def refuse_range_of_nothing(x):
    for _ in range():
        x += 1
    return x


def refuse_set(x):
    return max({x, 1.0})


def refuse_generator_expression(x):
    return sum(x * v for v in PAIR)


def refuse_unpacked_index(x):
    return ARRAY[*(1,), 0] * x


def refuse_slice_of_argument(x):
    return sum(PAIR[int(x) :])


def refuse_adding_to_an_item(x):
    PAIR[0] += x
    return x


def _made(text, shown=None):
    """Return a function made from a text, whose file is said to hold another one, or none."""
    name = "<text>" if shown is None else "<file>"
    if shown is not None:
        linecache.cache[name] = (len(shown), None, shown.splitlines(True), name)
    space = {}
    exec(compile(text, name, "exec"), space)
    return space["made"]


WITHOUT_SOURCE = _made("def made(x):\n    return x\n")
EDITED = _made("def made(x):\n    return x\n", "def made(x):\n    return 2 * x\n")


def refuse_helper_without_source(x):
    return WITHOUT_SOURCE(x)


def refuse_edited_helper(x):
    return EDITED(x)


def many_cases(x):
    for v in MANY:
        if x < v:
            return v
    return x


MANY = tuple(float(k) for k in range(200))


def refuse_deep_conditions(x):
    return many_cases(x)


SPECIAL = __import__("scipy.special").special


def refuse_function_of_another_library(x):
    return SPECIAL.dawsn(x)


from dataclasses import dataclass, field
from typing import NamedTuple


class Pair(NamedTuple):
    a: float
    b: float


@dataclass
class Checked:
    a: float

    def __post_init__(self):
        self.a = abs(self.a)


def refuse_item_of_a_shared_list(x):
    a = [x, 1.0]
    b = a
    a[0] = 2.0
    return b[0]


def refuse_item_of_a_list_shared_in_a_loop(x):
    a, b = [x, 1.0], [x, 2.0]
    while x < 1.0:
        x += 1.0
        b = a
    a[0] = 2.0
    return b[0]


def refuse_item_of_a_list_shared_by_a_choice(x):
    a = [x, 1.0]
    b = a if x > 0 else [x, 2.0]
    a[0] = 2.0
    return b[0]


def refuse_item_of_a_list_in_a_tuple(x):
    a = [x, 1.0]
    pair = (a, x)
    a[0] = 2.0
    return pair[0][0]


def refuse_item_of_a_list_of_the_caller(x):
    def fill(a):
        a[0] = 1.0
        return 0.0

    a = [x, x]
    fill(a)
    return a[0]


def refuse_item_of_a_list_that_came_back(x):
    def same(a):
        return a

    a = [x, x]
    b = same(a)
    a[0] = 1.0
    return b[0]


def refuse_item_of_an_outer_list(x):
    a = [x, x]

    def fill():
        a[0] = 1.0
        return 0.0

    fill()
    return a[0]


def refuse_rows_that_are_one_list(x):
    m = [[0.0] * 2] * 2
    m[0][0] = x
    return m[1][0]


def refuse_item_of_a_local_tuple(x):
    t = (x, x)
    t[0] = 1.0
    return t[0]


def refuse_slice_of_a_list_assigned(x):
    a = [x, x, x]
    a[1:] = [1.0, 2.0]
    return a[0]


def refuse_adding_to_a_shared_list(x):
    a = [x]
    b = a
    a += [x]
    return len(b) * x


def refuse_index_outside_a_list(x):
    a = [x, x]
    a[2] = 1.0
    return a[0]


def refuse_loop_over_a_list_that_it_changes(x):
    a = [x, x]
    t = 0.0
    for v in a:
        a[1] = 2.0 * v
        t += v
    return t


def refuse_view_of_an_array_that_is_changed(x):
    a = np.zeros(3)
    b = a[1:]
    a[1] = x
    return b[0]


def refuse_arithmetic_of_arrays(x):
    return (np.zeros(2) + 1.0)[0]


def refuse_large_array(x):
    return np.zeros(100)[0]


def refuse_array_of_unknown_length(x):
    return np.zeros(int(x))[0]


def refuse_rows_as_an_array(x):
    return np.array([[x, x], [x, x]])[0]


def refuse_append(x):
    a = [x]
    a.append(x)
    return a[1]


def refuse_field_that_is_not_there(x):
    p = Pair(x, x)
    return p.c


def refuse_field_that_is_missing(x):
    return Pair(x).a


def refuse_class_that_checks(x):
    return Checked(x).a


def refuse_field_assignment(x):
    p = Pair(x, x)
    p.a = 1.0
    return p.a


def refuse_structure_as_number(x):
    return 2.0 * Pair(x, x)


def refuse_lists_of_two_lengths(x):
    a = [x, x]
    if x > 0:
        a = [x]
    return a[0]


def refuse_result_that_is_an_array(x):
    a = np.zeros(2)
    a[0] = x
    return a


def refuse_static_field_computed(x):
    return Labelled(x, x).a


@dataclass
class Labelled:
    a: float
    kind: float = field(metadata={"static": True})


def refuse_row_for_a_number(x):
    a = [x, x]
    a[0] = [1.0, 2.0]
    return a[1]


def refuse_two_indices_into_a_list(x):
    m = [[x, x], [x, x]]
    m[0, 1] = 2.0
    return m[0][1]


def refuse_zeros_of_a_dtype(x):
    return np.zeros(2, dtype=np.float32)[0] + x


def refuse_array_of_several_arguments(x):
    return np.array((x, x), float)[0]


def refuse_row_chosen_at_run_time_and_changed(x):
    m = [[x, 1.0], [2.0, 3.0]]
    row = m[int(x)]
    m[0][0] = 5.0
    return row[0]


def refuse_nan_to_num(x):
    return np.nan_to_num(x) * 2


def refuse_bessel_function(x):
    return x * SPECIAL.k0(x)


def refuse_array_of_ones(x):
    a = np.ones(2)
    a[0] = x
    return a[1]


def refuse_array_by_a_condition(x):
    a = np.zeros(2)
    return a[x > 0]


def refuse_default_that_is_changed(x):
    def summed(t, total=[0.0]):
        total[0] += t
        return total[0]

    summed(x)
    return summed(x)


def refuse_array_that_becomes_a_list(x):
    w = np.zeros(2)
    while w[0] < x:
        w = [w[1] + 1.0, w[0]]
    return w[0]


def refuse_array_or_list(x):
    w = np.zeros(2)
    if x > 0:
        w = [x, x]
    return w[0]


def refuse_element_that_is_none_on_one_path(x):
    if x > 0:
        return x, (None, x)
    return x, (x, x)
