"""What wraps a function is compiled as what its call does, or refused: never as what it wraps."""

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import KernelSyntaxError

X = np.asarray([0.5, 1.0, 2.0])


def ident(x, k=1.0):
    return k * x


class Twice:
    """Computes another thing than the function that it says it wraps."""

    def __init__(self, f):
        functools.update_wrapper(self, f)
        self.f = f

    def __call__(self, x):
        return 2 * self.f(x)


class Plain:
    """The usual decorator that is a class: nothing happens besides the call."""

    def __init__(self, f):
        functools.update_wrapper(self, f)

    def __call__(self, x):
        return self.__wrapped__(x)


class Static:
    @staticmethod
    def __call__(x, k=3.0):
        return k * x


class Shifted:
    def __init__(self, shift):
        self.shift = shift

    @functools.lru_cache  # noqa: B019  (one object)
    def at(self, x):
        return x + self.shift


class Subclass(mixad.BroadcastFunction):
    def __call__(self, x):
        return 3 * super().__call__(x)


def shifting(f):
    @functools.wraps(f)
    def wrapper(x):
        return f(x) + 1

    return wrapper


def caching(f):
    """Name the function given as the one that is wrapped, as decorators do, and call another."""
    return functools.update_wrapper(functools.lru_cache(lambda x: 5 * f(x)), f)


SAME = {
    "a class that doubles": Twice(ident),
    "a class that only calls": Plain(ident),
    "one around another": Twice(Plain(Twice(ident))),
    "around a kernel": Twice(mixad.broadcast(ident)),
    "around a cache": Twice(functools.lru_cache(ident)),
    "a cache around it": functools.lru_cache(Twice(ident)),
    "a kernel around it": mixad.broadcast(Twice(ident)),
    "a cache": functools.lru_cache(ident),
    "a cache without bound": functools.cache(ident),
    "a cached method": Shifted(4.0).at,
    "a function": shifting(ident),
    "a function twice": shifting(shifting(ident)),
    "a function around a class": shifting(Twice(ident)),
    "a class around a function": Twice(shifting(ident)),
    "a static method": staticmethod(ident),
    "an object with a static call": Static(),
    "a kernel": mixad.broadcast(ident),
}
REFUSED = {
    "a partial": functools.update_wrapper(functools.partial(ident, k=3.0), ident),
    "a cache that names another": caching(ident),
    "a subclass of a kernel": Subclass(ident),
    "an object bound to another": MethodType(Twice(ident), 3.0),
}


@pytest.mark.rows("called", SAME.values(), ids=SAME)
def test_a_wrapper_gives_what_it_gives_in_python(called: Callable[[Any], Any]) -> None:
    expected = [called(float(x)) for x in X]
    np.testing.assert_array_equal(mixad.broadcast(lambda x: called(x))(X), expected)
    np.testing.assert_array_equal(mixad.broadcast(called)(X), expected)


@pytest.mark.parametrize("called", REFUSED.values(), ids=REFUSED)
def test_a_wrapper_that_cannot_be_compiled_is_refused(called: Callable[[Any], Any]) -> None:
    with pytest.raises(KernelSyntaxError, match=r"`called` is|wraps 'ident'|super"):
        mixad.broadcast(lambda x: called(x))(X)
    with pytest.raises(KernelSyntaxError, match=r"not a Python function|wraps 'ident'|super"):
        mixad.broadcast(called)(X)


def test_what_wraps_may_change_and_each_call_sees_it() -> None:
    twice = Twice(ident)
    kernel = mixad.broadcast(lambda x: twice(x))
    np.testing.assert_array_equal(kernel(X), 2 * X)
    twice.f = lambda x: x * x
    np.testing.assert_array_equal(kernel(X), 2 * X * X)
