"""Arrays that are read by index inside a kernel, and gradients with respect to them."""

import pickle
import threading
from functools import partial

import numpy as np
import pytest

import mixad
from mixad.errors import BackendError, KernelGradientError, KernelIndexError, KernelTypeError
from mixad.kernel.options import Mode
from mixad.tape.pullback_plan import plan_pullback

RNG = np.random.default_rng(0)
BACKENDS = ["cpu", "reference"]


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def interpolate(table, x, backend=None):
    """Interpolate in a table, in a way of its own below 1; the last element counts from the end."""

    @mixad.broadcast(backend=backend)
    def interpolated(x):
        if x < 1.0:
            return table[-1] * x
        k = int(x)
        w = x - k
        return table[k] * table[k] * (1 - w) + np.sin(table[k + 1]) * w

    return interpolated(x)


def by_numpy(table, x):
    """Compute the same, and the gradients of its sum."""
    k = np.maximum(x.astype(int), 1)
    w, low = x - k, x < 1.0
    left, right = table[k], table[k + 1]
    value = np.where(low, table[-1] * x, left * left * (1 - w) + np.sin(right) * w)
    by_x = np.where(low, table[-1], np.sin(right) - left * left)
    by_table = np.zeros_like(table)
    np.add.at(by_table, k, np.where(low, 0, 2 * left * (1 - w)))
    np.add.at(by_table, k + 1, np.where(low, 0, np.cos(right) * w))
    by_table[-1] += x[low].sum()
    return value, by_table, by_x


def difference(f, x, along, eps=1e-6):
    return (f(x + eps * along) - f(x - eps * along)) / (2 * eps)


TABLE, X = RNG.random(9), RNG.random(100) * 7.9
ALONG, ALONG_X = RNG.standard_normal(9), RNG.standard_normal(100)


# -- first derivatives -----------------------------------------------------------------------------


def test_gradients_of_a_table_and_of_where_it_is_read(backend):
    value, by_table, by_x = by_numpy(TABLE, X)

    def f(table, x):
        return interpolate(table, x, backend).sum()

    for _ in range(3):  # recorded, then by the plan that it was found to have
        got, grads = mixad.value_and_grad(f, argnums=(0, 1))(TABLE, X)
        np.testing.assert_allclose(got, value.sum(), rtol=1e-14)
        np.testing.assert_allclose(grads[0], by_table, rtol=1e-13)
        np.testing.assert_allclose(grads[1], by_x, rtol=1e-13)


def test_cotangents_weigh_what_is_added(backend):
    _, pullback = mixad.vjp(partial(interpolate, backend=backend), TABLE, X)
    _, by_table, _ = by_numpy(TABLE, X[:1])
    found, _ = pullback(np.eye(1, 100)[0])
    np.testing.assert_allclose(found, by_table, rtol=1e-13)


def test_tangents_of_a_table_are_read_where_it_is(backend):
    f = partial(interpolate, backend=backend)
    value, tangent = mixad.jvp(f, (TABLE, X), (ALONG, ALONG_X))
    by_differences = difference(lambda t: f(TABLE + t * ALONG, X + t * ALONG_X), 0.0, 1.0)
    np.testing.assert_allclose(value, by_numpy(TABLE, X)[0], rtol=1e-14)
    np.testing.assert_allclose(tangent, by_differences, atol=1e-8)


@pytest.mark.parametrize("type", ["f2", "f4"])
def test_sums_of_a_narrow_table_keep_their_digits(type):
    table, k = np.ones(2, type), np.zeros(5000, "i4")

    def read(table):
        return mixad.broadcast(lambda k: table[k])(k)

    (grad,) = mixad.vjp(read, table)[1](np.ones(5000, type))
    assert grad.dtype == type
    np.testing.assert_array_equal(grad, [5000, 0])


def test_a_grid_is_read_by_several_indices_and_by_its_strides(backend):
    grid = RNG.random((6, 4, 3)).transpose(1, 0, 2)[:, ::2]
    k, j = RNG.integers(-4, 4, 50), RNG.integers(0, 3, (2, 50))
    weights = RNG.random((2, 50))

    def f(grid):
        read = mixad.broadcast(lambda k, j: grid[k, j, 1] * grid[k, j, 0], backend=backend)
        return (read(k, j) * weights).sum()

    expected = np.zeros(grid.shape)
    np.add.at(expected[..., 1], (k, j), grid[k, j, 0] * weights)
    np.add.at(expected[..., 0], (k, j), grid[k, j, 1] * weights)
    np.testing.assert_allclose(mixad.grad(f)(grid), expected, rtol=1e-13)


def test_more_reads_than_a_chunk_carries(backend):
    k = RNG.integers(0, 9, 40)

    def f(table):
        @mixad.broadcast(backend=backend)
        def product(k):
            total = 1.0
            for step in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11):
                total = total * table[(k + step) % 9]
            return total

        return product(k).sum()

    at = (k[:, None] + np.arange(12)) % 9
    expected = np.zeros(9)
    np.add.at(expected, at, TABLE[at].prod(-1, keepdims=True) / TABLE[at])
    np.testing.assert_allclose(mixad.grad(f)(TABLE), expected, rtol=1e-12)


@mixad.broadcast
def patch(grid: mixad.Array, x, y):
    """Return a polynomial of sixteen elements around a point, under a condition for some."""
    i, j = int(x), int(y)
    u, v = x - i, y - j
    total = 0.0
    for a in (0, 1, 2, 3):
        for b in (0, 1, 2, 3):
            term = grid[i + a, j + b] * (u + a) * (v * b + 1.0)
            if u + v > 0.1 * (a + b):
                term = term * grid[i, j]
            total += term * term
    return np.sqrt(total)


@pytest.mark.parametrize("strategy", ["forward", "reverse", "auto"])
def test_strategies_agree(strategy):
    grid, x, y = RNG.random((8, 8)), RNG.random(40) * 4.9, RNG.random(40) * 4.9
    kernel = patch.with_options(strategy=strategy)
    f = lambda grid, x, y: kernel(grid, x, y).sum()  # noqa: E731
    found = mixad.grad(f, argnums=(0, 1, 2))(grid, x, y)
    for n, (grad, argument) in enumerate(zip(found, (grid, x, y), strict=True)):
        along = RNG.standard_normal(argument.shape)
        of = lambda a, n=n: f(*(a if k == n else b for k, b in enumerate((grid, x, y))))  # noqa: E731
        expected = difference(of, argument, along, 1e-7)
        np.testing.assert_allclose((grad * along).sum(), expected, rtol=1e-6)


def test_many_reads_are_pulled_back_in_reverse():
    gradients = patch.explain(RNG.random((8, 8)), X[:5] * 0.1, X[:5] * 0.1, wrt=("x", "y"))
    assert gradients.strategy == "forward"  # two inputs take one pass of dual numbers
    program = patch._parse((RNG.random((8, 8)), X, X), {})[0].program
    plan = plan_pullback(program, (0, 1, 2), (0,), Mode("auto", None))
    assert plan.strategy == "reverse"
    assert len(plan.passes) == 1


def test_a_complex_table():
    table = RNG.random(5) + 1j * RNG.random(5)
    k = RNG.integers(0, 5, 30)

    def f(table):
        return mixad.broadcast(lambda k: abs(table[k] * table[k]) ** 2)(k).sum()

    expected = np.zeros(5, complex)
    np.add.at(expected, k, 4 * np.abs(table[k]) ** 2 * table[k])
    np.testing.assert_allclose(mixad.grad(f)(table), expected, rtol=1e-13)


def test_whole_numbers_and_truths_in_tables_have_no_gradient():
    order, is_on = np.array([2, 0, 1]), np.array([True, False, True])

    def f(table):
        return mixad.broadcast(lambda k: table[order[k]] if is_on[k] else 0.0)(np.arange(3)).sum()

    np.testing.assert_array_equal(mixad.grad(f)(np.ones(3)), [0, 1, 1])
    with pytest.raises(TypeError):
        mixad.grad(lambda order: mixad.broadcast(lambda k: order[k] * 1.0)(np.arange(3)).sum())(
            order
        )


def test_what_only_comparisons_look_at_has_no_derivative():
    """A binary search: its reads are inside a loop, and decide an index alone."""
    knots = np.sort(RNG.random(33))
    x = RNG.uniform(knots[0], knots[-1], 200)

    def f(knots, values, x):
        @mixad.broadcast
        def interpolated(x):
            low, high = 0, 32
            while high - low > 1:
                middle = (low + high) // 2
                if knots[middle] <= x:
                    low = middle
                else:
                    high = middle
            w = (x - knots[low]) / (knots[low + 1] - knots[low])
            return values[low] * (1 - w) + values[low + 1] * w

        return interpolated(x).sum()

    values = RNG.random(33)
    np.testing.assert_allclose(f(knots, values, x), np.interp(x, knots, values).sum(), rtol=1e-13)
    by_knots, by_values = mixad.grad(f, argnums=(0, 1))(knots, values, x)
    at = np.searchsorted(knots, x, side="right") - 1
    w = (x - knots[at]) / (knots[at + 1] - knots[at])
    expected, slope = np.zeros(33), (values[at + 1] - values[at]) / (knots[at + 1] - knots[at])
    np.add.at(expected, at, 1 - w)
    np.add.at(expected, at + 1, w)
    np.testing.assert_allclose(by_values, expected, rtol=1e-11)
    expected = np.zeros(33)
    np.add.at(expected, at, -slope * (1 - w))
    np.add.at(expected, at + 1, -slope * w)
    np.testing.assert_allclose(by_knots, expected, rtol=1e-9, atol=1e-9)


# -- arguments that are passed whole ---------------------------------------------------------------


@mixad.broadcast
def energy(pos: mixad.Array, i, j):
    """Return the Lennard-Jones energy of pairs of atoms."""
    x = pos[i, 0] - pos[j, 0]
    y = pos[i, 1] - pos[j, 1]
    z = pos[i, 2] - pos[j, 2]
    r2 = x * x + y * y + z * z
    s = 1.0 / (r2 * r2 * r2)
    return 4.0 * (s * s - s)


GRID = np.stack(np.meshgrid(*[np.arange(3.0)] * 3), -1).reshape(-1, 3)
POS = GRID * 1.2 + RNG.random((27, 3)) * 0.1
FIRST, SECOND = np.triu_indices(27, 1)


def forces(pos):
    d = pos[FIRST] - pos[SECOND]
    r2 = (d * d).sum(-1)
    weights = (4 * (-12 / r2**7 + 6 / r2**4))[:, None] * d
    total = np.zeros_like(pos)
    np.add.at(total, FIRST, weights)
    np.subtract.at(total, SECOND, weights)
    return total


def test_forces_are_the_gradient_of_the_energy(backend):
    kernel = energy.with_options(backend=backend)
    for _ in range(3):
        found = mixad.grad(lambda pos: kernel(pos, FIRST, SECOND).sum())(POS)
        np.testing.assert_allclose(found, forces(POS), rtol=1e-9, atol=1e-11)


def test_products_with_the_hessian_of_the_energy():
    along = RNG.standard_normal(POS.shape)
    found = mixad.hvp(lambda pos: energy(pos, FIRST, SECOND).sum(), (POS,), (along,))
    expected = difference(forces, POS, along)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_whole_array_is_not_broadcast():
    read = mixad.broadcast(whole)
    assert read(np.ones((5, 3)), np.arange(2)).shape == (2,)
    assert read(np.ones((1, 3)), np.zeros((4, 2), int)).shape == (4, 2)


def whole(a: mixad.Array, k):
    return a[k, -1] * 2.0


def test_arrays_of_other_ranks_are_other_programs():
    @mixad.broadcast
    def first(a: mixad.Array, k):
        return second(a, k)

    def second(a, k):
        return a[k]

    np.testing.assert_array_equal(first(np.arange(3.0), [2, 0][0]), 2.0)
    with pytest.raises(KernelTypeError, match="'a' has 2 axes, it is indexed by 1"):
        first(np.ones((3, 2)), 2)
    with pytest.raises(KernelTypeError, match="'a' has 2 axes, it is indexed by 1"):
        mixad.grad(lambda a: first(a, np.arange(2)).sum())(np.ones((3, 2)))
    grad = mixad.grad(lambda a: first(a, np.arange(2)).sum())(np.ones(3))
    np.testing.assert_array_equal(grad, [1, 1, 0])


def test_annotations_may_be_text():
    Whole = mixad.Array

    def read(a: "mixad.Array", b: "Whole", c: "Whole2", k: "int"):
        return a[k] * b[k] + c[k] * (Whole is None)

    np.testing.assert_array_equal(mixad.broadcast(read)(X, X, X, np.arange(3)), X[:3] ** 2)


Whole2 = mixad.Array


def test_a_complex_whole_array():
    a, k = RNG.random(4) + 1j * RNG.random(4), RNG.integers(0, 4, 10)
    squared = mixad.broadcast(conjugate_product)
    grad = mixad.grad(lambda a: squared(a, k).sum())(a)
    np.testing.assert_allclose(grad, 2 * a * np.bincount(k, minlength=4), rtol=1e-14)


def conjugate_product(a: mixad.Array, k):
    return (a[k] * a[k].conjugate()).real


def test_defaults_and_names_of_whole_arrays():
    def scaled(k, table: mixad.Array = TABLE, x=2.0):
        return table[k] * table[k] * x

    f, k = mixad.broadcast(scaled), np.arange(4)
    for _ in range(2):
        np.testing.assert_allclose(f(k), 2 * TABLE[:4] ** 2)
        np.testing.assert_allclose(f(k, table=3 * TABLE), 18 * TABLE[:4] ** 2)
        np.testing.assert_allclose(f(table=TABLE, k=k, x=1.0), TABLE[:4] ** 2)
        grad = mixad.grad(lambda table: f(k, table=table).sum())(TABLE)
        np.testing.assert_allclose(grad, np.r_[4 * TABLE[:4], np.zeros(5)])


def test_functions_and_rules_inside_take_what_is_read():
    @mixad.scalar_rule(lambda x, value: (3 * x,))
    def ruled(x):
        return x * x

    def pair(table: mixad.Array, k):
        return table[k] + ruled(table[k - 1])

    @mixad.broadcast
    def outer(table: mixad.Array, k):
        return pair(table, k) * 2

    k = np.arange(4)
    grad = mixad.grad(lambda table: outer(table, k).sum())(TABLE)
    expected = np.zeros(9)
    expected[k] += 2
    expected[k - 1] += 6 * TABLE[k - 1]
    np.testing.assert_allclose(grad, expected)


def test_a_kernel_of_whole_arrays_alone_gives_a_number():
    def area(a: mixad.Array):
        return a[0] * a[1]

    kernel = mixad.broadcast(area)
    assert kernel(np.array([2.0, 3.0])) == 6.0
    np.testing.assert_array_equal(mixad.grad(kernel)(np.array([2.0, 3.0, 4.0])), [3, 2, 0])
    hessian = mixad.hessian(kernel)(np.array([2.0, 3.0]))
    np.testing.assert_array_equal(hessian, [[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("k", "type"), [([-1, 5, -128], "i1"), ([255, 5, 0], "u1"), ([-300, 299, 7], "i2")]
)
def test_narrow_indices_count_as_they_do_in_python(k, type):
    table = np.arange(300.0)
    read = mixad.broadcast(lambda k: table[k] ** 2)
    np.testing.assert_array_equal(read(np.array(k, type)), table[k] ** 2)

    def f(table):
        return mixad.broadcast(lambda k: table[k] ** 2)(np.array(k, type)).sum()

    expected = np.zeros(300)
    expected[k] = 2 * table[k]
    np.testing.assert_array_equal(mixad.grad(f)(table), expected)


def test_a_zero_cotangent_gives_zero_where_a_partial_is_infinite():
    root = mixad.broadcast(lambda v, k: np.sqrt(v))  # beside it, the same of a number
    kernel = mixad.broadcast(square_root)
    v, cotangent = np.array([0.0, 1.0, 4.0]), np.array([0.0, 1.0, 1.0])
    (grad,) = mixad.vjp(lambda v: kernel(v, np.arange(3)), v)[1](cotangent)
    np.testing.assert_array_equal(grad, [0.0, 0.5, 0.25])
    np.testing.assert_array_equal(mixad.vjp(lambda v: root(v, 0), v)[1](cotangent)[0], grad)


def square_root(v: mixad.Array, k):
    return np.sqrt(v[k])


def test_threads_differentiate_at_once():
    found, k = [None] * 6, np.arange(100_000) % 9

    def work(n):
        found[n] = mixad.grad(lambda table: read_squared(table, k, 1.5).sum())(TABLE)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({grad.tobytes() for grad in found}) == 1
    np.testing.assert_allclose(found[0], 3 * TABLE * np.bincount(k, minlength=9))


@pytest.mark.parametrize("wrong", [2.0, np.float64(1.0), np.asarray(1.0), None])
def test_what_is_no_array_with_axes_is_refused(wrong):
    with pytest.raises(KernelTypeError, match="argument 'pos' is annotated as mixad"):
        energy(wrong, FIRST, SECOND)


def test_an_array_that_is_passed_whole_is_no_number():
    def doubled(a: mixad.Array):
        return a * 2.0

    with pytest.raises(KernelTypeError, match="`a` is an array of f64 that is read by index"):
        mixad.broadcast(doubled)(X)


@pytest.mark.parametrize("ask", ["duals", "jacobian", "value_and_jacobian"])
def test_partials_with_respect_to_a_whole_array_are_refused(ask):
    with pytest.raises(KernelGradientError, match="no partials with respect to 'pos', an array"):
        getattr(energy, ask)(POS, FIRST, SECOND, wrt="pos")


def test_partials_with_respect_to_numbers_beside_a_whole_array():
    def scaled(a: mixad.Array, k, x):
        return a[k] * x * x

    found = mixad.broadcast(scaled).duals(TABLE, np.arange(3), X[:3])
    np.testing.assert_allclose(found.partials["x"], 2 * TABLE[:3] * X[:3])


def test_a_pickled_kernel_takes_the_same_arrays_whole():
    found = pickle.loads(pickle.dumps(mixad.broadcast(whole)))
    np.testing.assert_array_equal(found(POS, np.arange(3)), POS[:3, -1] * 2.0)


# -- loops that add up what they read --------------------------------------------------------------


def row_product(matrix: mixad.Array, vector: mixad.Array, row, x, count):
    total = 0.0
    for k in range(count):
        total += np.sin(vector[k] * matrix[row, k]) * x
    return total * total + x


def test_gradients_of_a_sum_in_a_loop(backend):
    kernel = mixad.broadcast(backend=backend)(row_product)
    matrix, vector, x = RNG.random((4, 20)), RNG.random(20), RNG.random(4)
    count = np.array([20, 17, 0, 3])

    def f(matrix, vector, x):
        return kernel(matrix, vector, np.arange(4), x, count).sum()

    inside = np.arange(20) < count[:, None]
    inner = np.where(inside, matrix * vector, 0.0)
    total = np.where(inside, np.sin(inner), 0.0).sum(1) * x
    np.testing.assert_allclose(f(matrix, vector, x), (total**2 + x).sum(), rtol=1e-13)
    weights = np.where(inside, np.cos(inner), 0.0) * (2 * total * x)[:, None]
    for _ in range(2):
        by_matrix, by_vector, by_x = mixad.grad(f, argnums=(0, 1, 2))(matrix, vector, x)
        np.testing.assert_allclose(by_matrix, weights * vector, rtol=1e-12)
        np.testing.assert_allclose(by_vector, (weights * matrix).sum(0), rtol=1e-12)
        np.testing.assert_allclose(by_x, 2 * total * (total / x) + 1, rtol=1e-12)


@mixad.broadcast
def nested(table: mixad.Array, k, x, m):
    """Return a function of two sums; one in loops, one in another loop and a condition."""
    result = x
    if x > 0.3:
        total = x * x
        i = 0
        while i < m and total < 50.0:
            for j in range(i + 1):
                total += table[i] * table[j] * x
            if table[i] > 0.5:
                total -= table[(i + k) % m] ** 3
            i += 1
        other = 0.0
        for j in range(m):
            other += np.sqrt(total) * table[j]
        result = total * other
    return result * table[0]


def test_gradients_of_sums_in_nested_loops_and_conditions():
    k, x = np.arange(12), RNG.random(12)
    f = lambda table, x: nested(table, k, x, 9).sum()  # noqa: E731
    by_table, by_x = mixad.grad(f, argnums=(0, 1))(TABLE, x)
    expected = difference(lambda t: f(TABLE + t * ALONG, x), 0.0, 1.0)
    np.testing.assert_allclose(by_table @ ALONG, expected, rtol=1e-7)
    expected = difference(lambda t: f(TABLE, x + t * ALONG_X[:12]), 0.0, 1.0)
    np.testing.assert_allclose(by_x @ ALONG_X[:12], expected, rtol=1e-7)


@pytest.mark.slow
def test_second_derivatives_of_sums_in_loops():
    k, x = np.arange(12), RNG.random(12)
    gradient = lambda table: mixad.grad(lambda t: nested(t, k, x, 9).sum())(table)  # noqa: E731
    expected = difference(gradient, TABLE, ALONG)
    _, forward = mixad.jvp(gradient, (TABLE,), (ALONG,))
    backward = mixad.grad(lambda table: (gradient(table) * ALONG).sum())(TABLE)
    np.testing.assert_allclose(forward, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(backward, expected, rtol=1e-5, atol=1e-6)


@mixad.broadcast
def horner(table: mixad.Array, x, m):
    total = 0.0
    for i in range(m):
        total = total * x + table[i]
    return total


def test_a_loop_that_is_no_sum_has_tangents_and_no_gradient():
    x = RNG.random(5)
    _, tangent = mixad.jvp(lambda table: horner(table, x, 9), (TABLE,), (ALONG,))
    np.testing.assert_allclose(tangent, np.polyval(ALONG, x), rtol=1e-12)
    with pytest.raises(KernelGradientError, match="'table' is not available where a loop reads it"):
        mixad.grad(lambda table: horner(table, x, 9).sum())(TABLE)
    by_x = mixad.grad(lambda x: horner(TABLE, x, 9).sum())(x)
    np.testing.assert_allclose(by_x, np.polyval(np.polyder(TABLE), x), rtol=1e-12)


def root(table: mixad.Array, k, x):
    y = x
    while True:
        step = (y * y - table[k] * x) / (2 * y)
        y = y - step
        if abs(step) < 1e-12:
            break
    return y


def test_a_read_in_an_implicit_loop_has_tangents_and_no_gradient():
    kernel, k, x = mixad.broadcast(loops="implicit")(root), np.arange(4), X[:4] + 0.5
    _, tangent = mixad.jvp(lambda table: kernel(table, k, x), (TABLE,), (ALONG,))
    np.testing.assert_allclose(tangent, 0.5 * np.sqrt(x / TABLE[:4]) * ALONG[:4], rtol=1e-12)
    with pytest.raises(KernelGradientError, match="'table' is not available where a loop reads it"):
        mixad.grad(lambda table: kernel(table, k, x).sum())(TABLE)


def test_an_index_outside_in_a_loop_is_named():
    with pytest.raises(KernelIndexError, match="index 9 is outside 'table' of shape"):
        mixad.grad(lambda table: nested(table, 0, np.full(3, 0.5), 10).sum())(TABLE)


# -- cores that are read from memory ---------------------------------------------------------------


@mixad.broadcast(signature="(n,g,6),(),()->(5)")
def cross_sections(grid, nuclide, energy):
    """Interpolate five quantities of a nuclide between points of energy, as XSBench does."""
    n, k = int(nuclide), int(energy)
    w = energy - k
    out = [0.0] * 5
    for c in range(5):
        out[c] = grid[n, k, c + 1] * (1.0 - w) + grid[n, k + 1, c + 1] * w
    return out


def cross_sections_by_numpy(grid, nuclide, energy):
    n, k = nuclide.astype(int), energy.astype(int)
    w = (energy - k)[..., None]
    return grid[n, k, 1:] * (1 - w) + grid[n, k + 1, 1:] * w


NUCLIDE, ENERGY = RNG.integers(0, 7, 30).astype(float), RNG.random(30) * 18.9
TABLES = RNG.random((7, 20, 6))


def test_a_long_core_is_read_by_index(backend):
    kernel = cross_sections.with_options(backend=backend)
    for lengths in [(7, 20, 6), (9, 25, 6)]:
        grid = RNG.random(lengths)
        expected = cross_sections_by_numpy(grid, NUCLIDE, ENERGY)
        np.testing.assert_allclose(kernel(grid, NUCLIDE, ENERGY), expected, rtol=1e-14)


def test_axes_before_a_long_core_broadcast(backend):
    kernel = cross_sections.with_options(backend=backend)
    grid, energy = RNG.random((3, 1, 1, 7, 20, 6)), RNG.random((4, 30)) * 18.9
    found = kernel(grid, NUCLIDE, energy)
    assert found.shape == (3, 4, 30, 5)
    for a, b in np.ndindex(3, 4):
        expected = cross_sections_by_numpy(grid[a, 0, 0], NUCLIDE, energy[b])
        np.testing.assert_allclose(found[a, b], expected, rtol=1e-14)


def test_each_element_may_have_a_table_of_its_own():
    tables, k = RNG.random((5, 70)), RNG.integers(-70, 70, 5)
    pick = mixad.broadcast(signature="(n),()->()")(lambda table, k: table[k] ** 2)
    rows = np.arange(5)
    np.testing.assert_array_equal(pick(tables, k), tables[rows, k] ** 2)
    expected = np.zeros((5, 70))
    expected[rows, k] = 2 * tables[rows, k]
    grad = mixad.grad(lambda tables: pick(tables, k).sum())(tables)
    np.testing.assert_allclose(grad, expected)
    by_columns = mixad.grad(lambda columns: pick(columns.T, k).sum())(tables.T.copy())
    np.testing.assert_allclose(by_columns, expected.T)


def test_gradients_of_a_long_core(backend):
    kernel = cross_sections.with_options(backend=backend)
    weights = RNG.random((30, 5))
    f = lambda grid, energy: (kernel(grid, NUCLIDE, energy) * weights).sum()  # noqa: E731
    by_grid, by_energy = mixad.grad(f, argnums=(0, 1))(TABLES, ENERGY)
    n, k = NUCLIDE.astype(int), ENERGY.astype(int)
    w, expected = (ENERGY - k)[:, None], np.zeros_like(TABLES)
    np.add.at(expected[..., 1:], (n, k), weights * (1 - w))
    np.add.at(expected[..., 1:], (n, k + 1), weights * w)
    np.testing.assert_allclose(by_grid, expected, rtol=1e-12)
    slope = ((TABLES[n, k + 1, 1:] - TABLES[n, k, 1:]) * weights).sum(-1)
    np.testing.assert_allclose(by_energy, slope, rtol=1e-11, atol=1e-12)


def test_a_long_core_of_complex_numbers_with_axes_before_it():
    c = RNG.random((2, 1, 80)) + 1j * RNG.random((2, 1, 80))
    k = RNG.integers(0, 80, 40)
    size = mixad.broadcast(signature="(n),()->()")(lambda c, k: abs(c[k]) ** 2)
    np.testing.assert_allclose(size(c, k), np.abs(c[:, 0, k]) ** 2)
    grad = mixad.grad(lambda c: size(c, k).sum())(c)
    np.testing.assert_allclose(grad, 2 * c * np.bincount(k, minlength=80))


def test_only_what_is_too_long_is_read_by_index():
    """The short core stays variables, and has partials."""

    @mixad.broadcast(signature="(3),(n),()->()")
    def weighed(w, table, k):
        return (w[0] + w[1] * w[2]) * table[k]

    w, table, k = RNG.random((4, 3)), RNG.random(100), np.arange(4)
    partials = weighed.duals(w, table, k).partials
    assert list(partials) == ["w"]
    expected = np.stack([np.ones(4), w[:, 2], w[:, 1]], -1) * table[:4, None]
    np.testing.assert_allclose(partials["w"], expected)


def test_a_whole_array_beside_cores():
    @mixad.broadcast(signature="(),(2),()->()")
    def dot(table: mixad.Array, w, k):
        return w[0] * table[k] + w[1] * table[k + 1]

    w, k = RNG.random((5, 2)), RNG.integers(0, 8, 5)
    np.testing.assert_allclose(dot(TABLE, w, k), w[:, 0] * TABLE[k] + w[:, 1] * TABLE[k + 1])
    grad = mixad.grad(lambda table: dot(table, w, k).sum())(TABLE)
    expected = np.bincount(k, w[:, 0], minlength=9) + np.bincount(k + 1, w[:, 1], minlength=9)
    np.testing.assert_allclose(grad, expected)


# -- arrays on their way ---------------------------------------------------------------------------


def around(table, x, backend):
    """Return the sum of a program with operations before and after the read."""
    squared = np.sin(table) * 2.0
    return (np.exp(interpolate(squared, x * 0.9, backend)) * x).sum() + (squared * squared).sum()


def of_one_shape(table, x, backend):
    """Return the same where the table and what reads it have one shape: they are not fused."""
    squared = np.sin(table) * 2.0
    return (interpolate(squared, x + 0 * table, backend) * squared).sum()


@pytest.mark.parametrize(("f", "count"), [(around, 100), (of_one_shape, 9)])
def test_a_table_that_is_computed_before(f, count, backend):
    f, x = partial(f, backend=backend), X[:count]
    for _ in range(3):
        by_table, by_x = mixad.grad(f, argnums=(0, 1))(TABLE, x)
        expected = difference(lambda t: f(t, x), TABLE, ALONG)
        np.testing.assert_allclose(by_table @ ALONG, expected, rtol=1e-7)
        expected = difference(lambda x: f(TABLE, x), x, ALONG_X[:count])
        np.testing.assert_allclose(by_x @ ALONG_X[:count], expected, rtol=1e-7)


def test_a_table_of_another_length_has_a_gradient_of_its_own():
    def f(table):
        return interpolate(table, X[:5] * 0.4).sum()

    for length in (9, 12, 9):
        table = RNG.random(length)
        expected = difference(f, table, np.ones(length))
        np.testing.assert_allclose(mixad.grad(f)(table).sum(), expected, rtol=1e-7)


def test_no_element_reads_anything():
    grad = mixad.grad(lambda table: interpolate(table, np.zeros(0)).sum())(TABLE)
    np.testing.assert_array_equal(grad, np.zeros(9))


def test_a_table_without_elements_that_nothing_reads(backend):
    def f(table):
        read = mixad.broadcast(lambda x: table[int(x)] if x > 0 else x, backend=backend)
        return read(-X).sum()

    np.testing.assert_array_equal(mixad.grad(f)(np.zeros(0)), np.zeros(0))


# -- second derivatives ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("f", "count"), [(around, 100), (of_one_shape, 9)])
def test_second_derivatives_in_every_order(f, count, backend):
    f, x = partial(f, backend=backend), X[:count]

    def gradient(table):
        return mixad.grad(f)(table, x)

    expected = difference(gradient, TABLE, ALONG)
    _, forward = mixad.jvp(gradient, (TABLE,), (ALONG,))
    backward = mixad.grad(lambda table: (gradient(table) * ALONG).sum())(TABLE)
    of_tangents = mixad.grad(lambda table: mixad.jvp(f, (table, x), (ALONG, 0 * x))[1])(TABLE)
    for found in (forward, backward, of_tangents):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_mixed_second_derivatives(backend):
    f, along_x = partial(around, backend=backend), ALONG_X

    def by_table(x):
        return mixad.grad(f)(TABLE, x)

    expected = difference(by_table, X, along_x)
    _, found = mixad.jvp(by_table, (X,), (along_x,))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    def by_x(table):
        return (mixad.grad(f, argnums=(1,))(table, X)[0] * along_x).sum()

    np.testing.assert_allclose(mixad.grad(by_x)(TABLE), expected, rtol=1e-5, atol=1e-6)


K, WEIGHTS = RNG.integers(0, 9, 20), RNG.random(20)


def squares(table):
    return read_squared(table, K, WEIGHTS)


@mixad.broadcast
def read_squared(a: mixad.Array, k, x):
    return a[k] * a[k] * x


def test_jacobians_hessians_and_third_derivatives():
    jacobian = np.zeros((20, 9))
    jacobian[np.arange(20), K] = 2 * TABLE[K] * WEIGHTS
    np.testing.assert_allclose(mixad.jacrev(squares)(TABLE), jacobian)
    np.testing.assert_allclose(mixad.jacfwd(squares)(TABLE), jacobian)
    of_squares = mixad.hessian(lambda table: (squares(table) ** 2).sum())
    diagonal = np.bincount(K, 12 * TABLE[K] ** 2 * WEIGHTS**2, minlength=9)
    np.testing.assert_allclose(of_squares(TABLE), np.diag(diagonal))
    third = mixad.grad(lambda table: of_squares(table).sum())(TABLE)
    np.testing.assert_allclose(third, np.bincount(K, 24 * TABLE[K] * WEIGHTS**2, minlength=9))


def test_linear_maps_and_checkpoints():
    _, push = mixad.linearize(squares, TABLE)
    np.testing.assert_allclose(push(ALONG), 2 * (TABLE * ALONG)[K] * WEIGHTS)
    grad = mixad.grad(mixad.checkpoint(lambda table: squares(table).sum()))(TABLE)
    np.testing.assert_allclose(grad, np.bincount(K, 2 * TABLE[K] * WEIGHTS, minlength=9))


def test_one_array_may_be_passed_whole_twice_and_by_elements():
    @mixad.broadcast
    def product(a: mixad.Array, b: mixad.Array, c, k):
        return a[k] * b[k] * c

    for _ in range(3):
        grad = mixad.grad(lambda t: product(t, t, t, np.arange(9)).sum())(TABLE)
        np.testing.assert_allclose(grad, 3 * TABLE**2)


def test_a_loop_of_kernels_that_read_what_the_one_before_computed():
    def f(table):
        for _ in range(5):
            table = np.sqrt(read_squared(table, np.arange(9)[::-1].copy(), 1.0) + 0.5)
        return (table * table).sum()

    for _ in range(3):
        expected = difference(f, TABLE, ALONG)
        np.testing.assert_allclose(mixad.grad(f)(TABLE) @ ALONG, expected, rtol=1e-5)


def test_a_narrow_table_beside_wide_numbers_has_a_narrow_gradient():
    table = TABLE.astype("f4")
    grad = mixad.grad(lambda table: read_squared(table, K, WEIGHTS).sum())(table)
    assert grad.dtype == np.float32
    expected = np.bincount(K, 2 * table[K] * WEIGHTS, minlength=9)
    np.testing.assert_allclose(grad, expected, rtol=1e-6)


@pytest.mark.parametrize("chunk", [1, 2])
def test_smaller_chunks_give_the_same(chunk):
    read = read_squared.with_options(chunk=chunk)
    by_table, by_x = mixad.grad(lambda t, x: read(t, K, x).sum(), argnums=(0, 1))(TABLE, WEIGHTS)
    np.testing.assert_allclose(by_table, np.bincount(K, 2 * TABLE[K] * WEIGHTS, minlength=9))
    np.testing.assert_allclose(by_x, TABLE[K] ** 2)


def test_a_single_read_at_a_python_integer():
    grad = mixad.grad(lambda table: read_squared(table, 2, 3.0))(TABLE)
    np.testing.assert_allclose(grad, np.eye(9)[2] * 6 * TABLE[2])


# -- indices outside -------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [9, -10, 2**40])
@pytest.mark.parametrize("at", [0, 17, 99])
def test_an_index_outside_names_array_shape_and_line(wrong, at, backend):
    k = RNG.integers(-9, 9, 100)
    k[at] = wrong

    def f(table):
        return mixad.broadcast(lambda k: table[k] * 2.0, backend=backend)(k).sum()

    for _ in range(2):
        with pytest.raises(KernelIndexError, match="'table' of shape") as error:
            mixad.grad(f)(TABLE)
        assert f"element ({at},): index {wrong} is outside 'table' of shape (9,)" in str(
            error.value
        )
        assert "table[k] * 2.0" in str(error.value)


# -- refusals --------------------------------------------------------------------------------------


def test_partials_are_not_stored():
    def f(table):
        return mixad.broadcast(lambda k: table[k], placement="forward")(np.arange(3)).sum()

    with pytest.raises(KernelGradientError, match="'table', which is read by index"):
        mixad.grad(f)(TABLE)


def test_a_backend_that_does_not_accumulate_refuses():
    from mixad.backends.checks import check_writes
    from mixad.backends.hookspecs import Capability
    from mixad.kernel.spec import OutputRequest
    from mixad.scalar.build import Builder
    from mixad.scalar.ir import ArrayType
    from mixad.scalar.types import F64, I64

    b = Builder("f")
    n, sums = b.param("n", I64), b.accumulator("table", ArrayType(F64, 1))
    b.update(sums, n, value=b.const(1.0, F64))
    other = Capability(("numpy",), ("cpu",), frozenset({"float64", "int64"}), native=True)
    with pytest.raises(BackendError, match="'other' does not compute the gradient of the array"):
        check_writes("other", other, (b.finish([sums]),), [OutputRequest(0, 0, (3,))], {})
