"""Named tuples and dataclasses of arrays as arguments and results of kernels."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pytest

import mixad
from mixad.errors import KernelGradientError, KernelSyntaxError, KernelTypeError

RNG = np.random.default_rng(1)


class State(NamedTuple):
    x: Any
    v: Any


@dataclass(frozen=True)
class Spring:
    stiffness: Any
    damping: Any = 0.1


@dataclass
class System:
    state: State
    spring: Spring
    order: int = field(default=1, metadata={"static": True})


@mixad.broadcast
def stepped(system, h):
    s, spring = system.state, system.spring
    force = -spring.stiffness * s.x - spring.damping * s.v
    if system.order == 2:
        v = s.v + h * force
        return System(State(s.x + h * v, v), spring, 2)
    return System(State(x=s.x + h * s.v, v=s.v + h * force), spring)


def by_hand(x, v, k, c, h, order=1):
    force = -k * x - c * v
    after = v + h * force
    return x + h * (after if order == 2 else v), after


def system(shape=(5,), order=1):
    return System(State(*RNG.normal(size=(2, *shape))), Spring(2.0, RNG.random((3, 1))), order)


@pytest.mark.parametrize("order", [1, 2])
def test_structures_go_in_and_come_out(order):
    before = system(order=order)
    after = stepped(before, 0.1)
    x, v = by_hand(*before.state, 2.0, before.spring.damping, 0.1, order)
    assert isinstance(after, System)
    assert after.order == order
    np.testing.assert_allclose(after.state.x, np.broadcast_to(x, (3, 5)), rtol=1e-14)
    np.testing.assert_allclose(after.state.v, np.broadcast_to(v, (3, 5)), rtol=1e-14)
    np.testing.assert_array_equal(after.spring.stiffness, np.full((3, 5), 2.0))


def test_gradient_has_the_structure_of_the_argument():
    before, w = system(), RNG.normal(size=(2, 3, 5))

    def loss(system, h):
        s = stepped(system, h).state
        return (w[0] * s.x + w[1] * s.v).sum()

    got, of_h = mixad.grad(loss, (0, 1))(before, 0.1)
    (x, v), k, c = before.state, 2.0, before.spring.damping
    assert isinstance(got, System)
    np.testing.assert_allclose(got.state.x, (w[0] - 0.1 * k * w[1]).sum(0), rtol=1e-12)
    np.testing.assert_allclose(got.state.v, (0.1 * w[0] + (1 - 0.1 * c) * w[1]).sum(0), rtol=1e-12)
    assert got.spring.stiffness == pytest.approx((-0.1 * x * w[1]).sum())
    damping = (-0.1 * v * w[1]).sum(1, keepdims=True)
    np.testing.assert_allclose(got.spring.damping, damping, rtol=1e-12)
    assert of_h == pytest.approx((w[0] * v + w[1] * (-k * x - c * v)).sum())


def test_numbers_give_numbers():
    after = stepped(System(State(1.0, 0.0), Spring(2.0)), 0.5)
    assert after == System(State(1.0, -1.0), Spring(2.0, 0.1))
    assert type(after.state.x) is float


def test_static_fields_of_equal_values_and_different_types_are_different_functions():
    @dataclass
    class Power:
        base: Any
        exponent: Any = field(metadata={"static": True})

    power = mixad.broadcast(lambda p: p.base * p.exponent)
    assert power(Power(np.array([2]), 1)).dtype == np.int64
    assert power(Power(np.array([2]), 1.0)).dtype == np.float64
    assert power(Power(np.array([2]), True)).dtype == np.int64


def test_partials_go_by_dotted_names():
    before = system()
    after = stepped.duals(before, 0.1, wrt=("system.state", "h"))
    partials = after.state.v.partials
    assert list(partials) == ["system.state.x", "system.state.v", "h"]
    np.testing.assert_allclose(partials["system.state.x"], np.full((3, 5), -0.2), rtol=1e-14)
    one = stepped.duals(before, 0.1, wrt="system.spring.damping").state.v
    want = np.broadcast_to(-0.1 * before.state.v, (3, 5))
    np.testing.assert_allclose(one.partials["system.spring.damping"], want, rtol=1e-14)
    with pytest.raises(KernelGradientError, match=r"'system\.mass', not among"):
        stepped.duals(before, 0.1, wrt="system.mass")


def test_a_program_is_shared_by_calls_of_one_structure():
    before = system()
    text = stepped.source(before, 0.1)
    assert "%0 system.state.x: f64 lane" in text
    assert "%2 system.spring.stiffness: f64 uniform" in text
    assert stepped.source(system((7,)), 0.1) == text


def test_structures_beside_vectors():
    @mixad.broadcast(signature="(),(2)->(),(2)")
    def pushed(state, force):
        return State(state.x, state.v + force[0]), [state.x * force[1], state.v]

    state, force = State(*RNG.normal(size=(2, 4))), RNG.normal(size=(4, 2))
    after, pair = pushed(state, force)
    np.testing.assert_array_equal(after.v, state.v + force[:, 0])
    np.testing.assert_array_equal(pair, np.stack([state.x * force[:, 1], state.v], -1))


def test_tuples_and_none_in_structures():
    @mixad.broadcast
    def of(s):
        if s.v is None:
            return State(s.x[0] - s.x[1], None)
        return State(s.x[0], s.v)

    assert of(State((3.0, 2.0), None)) == State(1.0, None)
    assert of(State((3.0, 2.0), 4.0)) == State(3.0, 4.0)


NOTHING = None


def test_none_in_a_tuple_that_is_returned_stays_there():
    x = np.array([1.0, 2.0])
    literal, captured = (
        mixad.broadcast(lambda x: (x * x, None)),
        mixad.broadcast(lambda x: (NOTHING, x)),
    )
    np.testing.assert_array_equal(literal(x)[0], x * x)
    np.testing.assert_array_equal(captured(x)[1], x)
    assert literal(x)[1] is captured(x)[0] is None
    np.testing.assert_array_equal(mixad.grad(lambda x: literal(x)[0].sum())(x), 2 * x)


def test_named_tuples_from_outside_keep_their_names():
    spring = State(2.0, 3.0)

    def of(s):
        return s.x * s.v

    kernel = mixad.broadcast(lambda y: of(spring) * y)
    np.testing.assert_array_equal(kernel(np.ones(2)), [6.0, 6.0])


@pytest.mark.parametrize("plain", [(1.0, 2.0), [1.0, 2.0]])
def test_a_named_tuple_that_is_a_plain_one_at_a_later_call_is_told_so(plain):
    state, y = State(3.0, 2.0), np.ones(2)
    kernel = mixad.broadcast(lambda y: y * state.x)
    np.testing.assert_array_equal(kernel(y), 3.0 * y)
    state = plain
    kind = type(plain).__name__
    with pytest.raises(KernelSyntaxError, match=f"'state' is a {kind} at .* field 'x'") as caught:
        kernel(y)
    assert "a named tuple that has it, or read an item by its number: state[0]" in str(caught.value)
    state = State(4.0, 2.0)
    np.testing.assert_array_equal(kernel(y), 4.0 * y)


class Point(NamedTuple):
    """One that adds as points do, where tuples are joined."""

    x: Any
    y: Any

    def __add__(self, other):
        return Point(self.x + other.x, self.y + other.y)


class Ring(NamedTuple):
    """One whose length is not that of its fields."""

    x: Any
    y: Any

    def __len__(self):
        return 7

    def __getitem__(self, k):
        return self.x * k


def test_classes_with_operators_of_their_own_are_structures():
    p, ring = Point(np.ones(2), np.arange(2.0)), Ring(np.ones(2), np.arange(2.0))

    def swapped(p):
        x, y = p
        return Point(y, x)

    got = mixad.broadcast(swapped)(p)
    assert type(got) is Point
    np.testing.assert_array_equal(got, (p.y, p.x))
    turned = mixad.broadcast(lambda r: Ring(r.y, r.x))(ring)
    assert type(turned) is Ring
    np.testing.assert_array_equal(turned.x, ring.y)


@pytest.mark.rows(
    ("function", "kind"),
    [
        (lambda s: (s + s)[0], Point),
        (lambda s: (s * 2)[0], Point),
        (lambda s: len(s) * s.x, Ring),
        (lambda s: s[1], Ring),
        (lambda s: sum(s), Ring),
        (lambda s: Ring(s.x, s.y)[1], Point),
    ],
)
def test_operators_of_a_class_are_refused_not_taken_for_those_of_tuples(function, kind):
    with pytest.raises(KernelTypeError, match=r"Point|Ring"):
        mixad.broadcast(function)(kind(np.ones(2), np.ones(2)))


def test_operators_of_values_from_outside_are_refused():
    ring = Ring(2.0, 3.0)
    with pytest.raises(KernelTypeError, match="Ring"):
        mixad.broadcast(lambda x: ring[1] * x)(np.ones(2))
    np.testing.assert_array_equal(mixad.broadcast(lambda x: ring.y * x)(np.ones(2)), [3.0, 3.0])


@mixad.broadcast
def drifted(system, h):
    state = system.state._replace(x=system.state.x + h * system.state.v)
    return dataclasses.replace(system, state=state._replace(v=2.0 * state.x), order=3)


def test_fields_are_replaced():
    before = system()
    after = drifted(before, 0.1)
    assert (type(after), after.order) == (System, 3)
    x = before.state.x + 0.1 * before.state.v
    np.testing.assert_array_equal(after.state.x, np.broadcast_to(x, (3, 5)))
    np.testing.assert_array_equal(after.state.v, np.broadcast_to(2.0 * x, (3, 5)))
    np.testing.assert_array_equal(after.spring.damping, np.tile(before.spring.damping, 5))
    got = mixad.grad(lambda s: drifted(s, 0.1).state.v.sum())(before)
    np.testing.assert_allclose(got.state.v, np.full(5, 3 * 0.2), rtol=1e-14)


def test_replacements_that_are_refused():
    s = State(1.0, 2.0)
    with pytest.raises(KernelTypeError, match="`State` has no field 'y'"):
        mixad.broadcast(lambda s: s._replace(y=1.0))(s)
    with pytest.raises(KernelTypeError, match="`Spring` has no field 'mass'"):
        mixad.broadcast(lambda s: dataclasses.replace(s, mass=1.0))(Spring(1.0))
    with pytest.raises(KernelTypeError, match="takes a dataclass that is an argument or made here"):
        mixad.broadcast(lambda s: dataclasses.replace(s, x=1.0))(s)
    with pytest.raises(KernelTypeError, match="it has no attribute '_replace'"):
        mixad.broadcast(lambda s: s._replace(stiffness=1.0))(Spring(1.0))
    with pytest.raises(KernelSyntaxError, match="does more than to keep its fields"):
        mixad.broadcast(lambda c: dataclasses.replace(c, x=1.0))(Checked(1.0))
    with pytest.raises(KernelSyntaxError, match="is no replacement of fields"):
        mixad.broadcast(lambda s: s._replace(x=1.0))(Moved(1.0))


@dataclass
class Checked:
    x: Any

    def __post_init__(self):
        self.x = abs(self.x)


class _Moved(NamedTuple):
    x: Any


class Moved(_Moved):
    def _replace(self, x):
        return Moved(x + 1.0)


def test_a_list_that_takes_a_place_has_two_names():
    def kernel(s, x):
        items = [x, x]
        s = s._replace(x=items)
        items[0] = 5.0
        return s.x[0]

    with pytest.raises(KernelSyntaxError, match="goes by another name"):
        mixad.broadcast(kernel)(State(1.0, 2.0), 3.0)


def test_stop_gradient_keeps_the_structure():
    before = system()
    held = mixad.broadcast(lambda s: mixad.stop_gradient(s).state.x * s.state.v)
    got = mixad.grad(lambda s: held(s).sum())(before)
    np.testing.assert_array_equal(got.state.x, np.zeros(5))
    np.testing.assert_array_equal(got.state.v, 3.0 * before.state.x)

    @mixad.broadcast(signature="(2),()->(2)")
    def of_lists(w, z):
        own = mixad.stop_gradient(w)
        own[0] = w[0] * own[1]
        factors = mixad.stop_gradient([z, z])
        factors[1] = z
        return own[0], (factors[0] * factors[1]).real

    w, z = np.asarray([2.0, 3.0]), 1.5 + 0.5j
    np.testing.assert_array_equal(of_lists(w, z), [6.0, 2.0])
    dw, dz = mixad.grad(lambda w, z: of_lists(w, z).sum(), (0, 1))(w, z)
    np.testing.assert_array_equal(dw, [3.0, 0.0])
    assert dz == np.conj(z)  # of Re(c z): the conjugate of c, in the convention of PyTorch


class Order(IntEnum):
    THIRD = 3


@dataclass(frozen=True)
class Polynomial:
    x: Any
    powers: Any = field(default=(1, 2), metadata={"static": True})
    scale: Any = field(default=1.0, metadata={"static": True})


@mixad.broadcast
def powers_of(p):
    total = 0.0
    for n in p.powers:
        total += p.x**n
    return Polynomial(total * p.scale, p.powers, p.scale)


def test_static_fields_are_numbers_and_tuples_of_them():
    x = np.asarray([0.5, 2.0], "f4")
    after = powers_of(Polynomial(x, (1, 3)))
    np.testing.assert_array_equal(after.x, x + x**3)
    assert (after.x.dtype, after.powers, after.scale) == (np.float32, (1, 3), 1.0)
    np.testing.assert_array_equal(powers_of(Polynomial(x, (Order.THIRD,))).x, x**3)
    wide = powers_of(Polynomial(x, (1,), np.float64(2.0)))
    assert (wide.x.dtype, type(wide.scale)) == (np.float64, np.float64)
    assert powers_of(Polynomial(x, (1,), np.float32(2.0))).x.dtype == np.float32
    turned = powers_of(Polynomial(x, (1,), 2j))
    np.testing.assert_array_equal(turned.x, 2j * x)
    assert turned.scale == 2j


def test_static_numbers_of_numpy_are_plain_beside_tensors():
    torch = pytest.importorskip("torch")
    x = np.float64(2.0)
    assert powers_of(Polynomial(torch.ones(2), (1,), x)).x.dtype == torch.float32


def test_an_argument_may_be_none():
    def scaled(x, by=None):
        return x if by is None else x * by

    kernel, x = mixad.broadcast(scaled), np.asarray([1.0, 2.0])
    np.testing.assert_array_equal(kernel(x), x)
    np.testing.assert_array_equal(kernel(x, 3.0), 3.0 * x)
    np.testing.assert_array_equal(kernel(x, None), x)
    got = mixad.grad(lambda x: kernel(x).sum() + kernel(x, 3.0).sum())(x)
    np.testing.assert_array_equal(got, [4.0, 4.0])
    assert kernel.duals(x).partials["x"].tolist() == [1.0, 1.0]
    assert kernel.jacobian(x, None).shape == (2, 1)


def test_none_where_a_number_is_needed_is_refused_at_its_line():
    kernel = mixad.broadcast(lambda x, by=None: x * by)
    with pytest.raises(KernelTypeError, match=r"`by` is None, a number is needed here\n.*") as e:
        kernel(np.ones(2))
    assert "x * by" in str(e.value)
    assert "test it with `is None`" in str(e.value)
    with pytest.raises(KernelGradientError, match="wrt names 'by', not among the floats"):
        mixad.broadcast(lambda x, by=None: x).duals(1.0, wrt="by")


class Scaled(NamedTuple):
    x: Any
    by: Any = np.float32(2.0)
    order: Any = (1, 2)


def test_defaults_may_be_numbers_of_numpy_and_tuples():
    def powers(x):
        s = Scaled(x)
        return s.by * x ** s.order[1]

    x = np.asarray([1.0, 3.0], "f4")
    assert mixad.broadcast(powers)(x).dtype == np.float32
    np.testing.assert_array_equal(mixad.broadcast(powers)(x), [2.0, 18.0])


def test_second_derivatives():
    state = State(*RNG.normal(size=(2, 3)))
    energy = mixad.broadcast(lambda s: s.x**2 * s.v)
    hessian = mixad.jacobian(mixad.grad(lambda x: energy(State(x, state.v)).sum()))(state.x)
    np.testing.assert_allclose(hessian, np.diag(2.0 * state.v), rtol=1e-14)


@dataclass
class Unhashable:
    x: Any
    names: Any = field(default=(), metadata={"static": True})


def test_structures_that_are_refused():
    with pytest.raises(KernelTypeError, match=r"holds a list, s\.x: a kernel takes tuples, named"):
        mixad.broadcast(lambda s: s.x)(State([1.0], 2.0))
    with pytest.raises(KernelTypeError, match=r"argument 's\.x' is a str"):
        mixad.broadcast(lambda s: s.v)(State("text", 2.0))
    with pytest.raises(KernelTypeError, match="a static field belongs to the compiled function"):
        mixad.broadcast(lambda s: s.x)(Unhashable(1.0, [1]))
    with pytest.raises(KernelTypeError, match="'s' is a State here: it has no attribute 'mass'"):
        mixad.broadcast(lambda s: s.mass)(State(1.0, 2.0))
    with pytest.raises(KernelTypeError, match="argument 's' is a dict"):
        mixad.broadcast(lambda s: s)({"x": 1.0})
    with pytest.raises(KernelSyntaxError, match="a kernel cannot assign attributes"):
        mixad.broadcast(_in_place)(Spring(1.0))


def _in_place(spring):
    spring.stiffness = 2.0
    return spring.stiffness


def test_paths_that_differ_in_a_static_field_are_told_which():
    @mixad.broadcast
    def halted(system):
        if system.state.x > 2:
            return system
        return System(system.state, system.spring)  # of order 1

    system = System(State(1.0, 2.0), Spring(3.0))
    assert halted(system) == system
    with pytest.raises(KernelTypeError, match="same value of the static field 'order'"):
        halted(dataclasses.replace(system, order=2))


def test_paths_with_classes_of_one_name_are_told():
    shorter, longer = (NamedTuple("P", [(n, float) for n in names]) for names in ("ab", "abc"))

    @mixad.broadcast
    def first(x):
        p = shorter(x, x)
        if x > 0:
            p = longer(x, x, x)
        return p.a

    with pytest.raises(KernelTypeError, match=r"'p' is a P on one path .* and a P on the other"):
        first(1.0)
