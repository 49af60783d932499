"""Pytrees: what is a node, what is a leaf, and that both come back."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mixad
from mixad import pytree


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Layer:
    weight: Any
    bias: Any
    name: str = field(default="", metadata={"static": True})


@dataclass(frozen=True)
class Checked:
    value: Any

    def __post_init__(self) -> None:
        if not isinstance(self.value, float):
            raise TypeError("floats only")


TREES = st.recursive(
    st.floats(allow_nan=False) | st.none() | st.integers(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=2), inner)
        | st.builds(Point, inner, inner)
        | st.builds(Layer, inner, inner, st.text(max_size=2))
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(TREES)
def test_flatten_and_unflatten_are_inverse(tree: Any) -> None:
    found, structure = pytree.flatten(tree)
    assert pytree.unflatten(structure, found) == tree
    assert pytree.flatten(pytree.unflatten(structure, found))[1] == structure


def test_none_has_no_leaves() -> None:
    assert pytree.leaves({"a": None, "b": [1.0, None]}) == [1.0]


@pytest.mark.parametrize(
    "tree",
    [
        OrderedDict(b=1.0, a=2.0),
        defaultdict(list, a=1.0),
        Point(1.0, (2.0, 3.0)),
        Layer(1.0, 2.0, "first"),
    ],
)
def test_the_class_is_kept(tree: Any) -> None:
    again = pytree.tree_map(lambda leaf: leaf, tree)
    assert type(again) is type(tree)
    assert again == tree


def test_static_fields_belong_to_the_structure() -> None:
    first, second = (pytree.flatten(Layer(1.0, 2.0, name)) for name in ("a", "b"))
    assert first[0] == second[0] == [1.0, 2.0]
    assert first[1] != second[1]


def test_dataclasses_that_check_their_fields_can_hold_tracers() -> None:
    gradient = mixad.grad(lambda c: c.value * c.value)(Checked(3.0))
    assert gradient == Checked(6.0)


def test_a_structure_is_readable() -> None:
    assert str(pytree.flatten({"a": (1.0, None), "b": 2.0})[1]) == "dict(a: tuple(*, None), b: *)"


def test_a_registered_class_takes_part() -> None:
    class Interval:
        def __init__(self, low: Any, high: Any) -> None:
            self.low, self.high = low, high

    pytree.register(Interval, lambda i: ((i.low, i.high), None), lambda _, e: Interval(*e))
    gradient = mixad.grad(lambda i: i.high * i.high - i.low)(Interval(1.0, 2.0))
    assert (gradient.low, gradient.high) == (-1.0, 4.0)
    with pytest.raises(ValueError, match="Interval is registered already"):
        pytree.register(Interval, lambda i: ((), None), lambda _, e: Interval(0, 0))


def test_gradients_have_the_structure_of_the_parameters() -> None:
    rng = np.random.default_rng(0)
    parameters = {"layers": [Layer(rng.random((3, 2)), None, "in"), Layer(rng.random((2, 1)), 0.5)]}

    def loss(p: Any) -> Any:
        first, second = p["layers"]
        hidden = np.ones((4, 3)) @ first.weight
        return (hidden @ second.weight + second.bias).sum()

    gradient = mixad.grad(loss)(parameters)
    first, second = gradient["layers"]
    w1, w2 = (layer.weight for layer in parameters["layers"])
    np.testing.assert_allclose(first.weight, 4 * np.ones((3, 1)) @ w2.T)
    np.testing.assert_allclose(second.weight, (4 * np.ones((1, 3)) @ w1).T)
    assert (first.bias, first.name, second.bias) == (None, "in", 4.0)


def test_several_trees_are_mapped_together() -> None:
    parameters = {"w": np.ones(3), "b": (1.0, None)}
    gradient = {"w": np.arange(3.0), "b": (4.0, None)}
    new = pytree.tree_map(lambda p, g: p - 0.5 * g, parameters, gradient)
    np.testing.assert_array_equal(new["w"], [1.0, 0.5, 0.0])
    assert new["b"] == (-1.0, None)


def test_a_further_tree_may_go_on_where_the_first_has_a_leaf() -> None:
    pairs = mixad.tree_map(lambda a, b: (a, b), {"w": 1, "b": [2]}, {"b": [None], "w": (3, {4: 5})})
    assert pairs == {"w": (1, (3, {4: 5})), "b": [(2, None)]}


def test_a_container_that_is_called_a_leaf_is_one() -> None:
    tree = {"a": (1.0, 2.0), "b": [None, (3.0,)], "c": None}

    def is_leaf(node: Any) -> bool:
        return node is None or isinstance(node, tuple)

    seen = mixad.tree_map(lambda leaf, other: (leaf, other), tree, tree, is_leaf=is_leaf)
    assert seen == {
        "a": ((1.0, 2.0), (1.0, 2.0)),
        "b": [(None, None), ((3.0,), (3.0,))],
        "c": (None, None),
    }
    assert mixad.tree_map(len, (1.0, 2.0), is_leaf=is_leaf) == 2


@pytest.mark.parametrize("other", [[1.0, 2.0], (1.0,), (1.0, 2.0, 3.0), 1.0, None])
def test_trees_of_another_structure_are_refused(other: Any) -> None:
    with pytest.raises(ValueError, match=r"tree 2 has the structure .* tree 0 has tuple\(\*, \*\)"):
        pytree.tree_map(lambda a, b, c: a, (1.0, 2.0), (3.0, 4.0), other)


def test_a_container_that_contains_itself_is_refused() -> None:
    values: list[Any] = [1.0]
    values.append(values)
    with pytest.raises(ValueError, match="a list contains itself"):
        pytree.flatten(values)
    with pytest.raises(ValueError, match="a dict contains itself"):
        mixad.grad(lambda tree: tree["a"][0])({"a": values})


def test_dictionaries_of_equal_keys_are_alike_in_any_order() -> None:
    assert pytree.tree_map(lambda x, y: x - y, {"w": 5, "b": (1, 2)}, {"b": (1, 1), "w": 1}) == {
        "w": 4,
        "b": (0, 1),
    }
    _, structure = pytree.flatten([{"w": {"x": 1, "y": 2}, "b": 3}])
    assert pytree.leaves_or_none(structure, [{"b": 30, "w": {"y": 20, "x": 10}}]) == [10, 20, 30]
    with pytest.raises(ValueError, match="the same keys"):
        pytree.tree_map(lambda x, y: x, {"w": 1, "b": 2}, {"w": 1, "c": 2})


def test_cotangents_and_tangents_may_have_their_keys_in_any_order() -> None:
    def f(p: Any) -> Any:
        return {"sum": 2.0 * p["x"] + p["y"], "product": p["x"] * p["y"]}

    p, dp = {"x": 3.0, "y": 5.0}, {"y": 10.0, "x": 1.0}
    _, pullback = mixad.vjp(f, p)
    assert pullback({"product": 1.0, "sum": 100.0}) == ({"x": 205.0, "y": 103.0},)
    tangent = {"sum": 12.0, "product": 35.0}
    assert mixad.jvp(f, (p,), (dp,))[1] == tangent
    assert mixad.linearize(f, p)[1](dp) == tangent
    own = mixad.custom_vjp(lambda p: p["x"] * p["y"] ** 2)
    own.defvjp(lambda p: (own(p), p), lambda p, g: ({"y": g * 2 * p["x"] * p["y"], "x": g * 25.0},))
    assert mixad.grad(own)(p) == {"x": 25.0, "y": 30.0}
