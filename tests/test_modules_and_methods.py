"""Modules and objects as arguments of inlined functions, and methods called through their class."""

import math
import types

import numpy as np
import pytest

import mixad
from mixad.errors import KernelError

X = np.linspace(0.1, 1.0, 3)


def model(x, xp):
    return xp.exp(-x) * xp.sin(x) * xp.pi


def renamed(x, xp=np):
    library = xp
    return library.sinc(x)


settings = types.ModuleType("settings")
settings.RATE = 2.0
settings.helper = lambda x: x * x


def scaled(x, module):
    return module.helper(x) * module.RATE


def missing(x, xp):
    return xp.no_such_function(x)


class A:
    rate = 5.0
    __hidden = 2.0

    def __init__(self, w):
        self.w = w

    @mixad.broadcast
    def f(self, x):
        return self.rate * x * self.__hidden

    @property
    @mixad.broadcast
    def area(self):
        return self.w * self.w

    @staticmethod
    @mixad.broadcast
    def twice(x):
        return 2 * x


class B(A):
    rate = 7.0

    @mixad.broadcast
    def f(self, x):
        return A.f(self, x) * 2


@pytest.mark.parametrize("module", [np, math], ids=["numpy", "math"])
def test_a_module_that_is_passed_is_one_that_is_read_from_outside(module):
    kernel = mixad.broadcast(lambda x: model(x, module))
    np.testing.assert_allclose(kernel(X), np.exp(-X) * np.sin(X) * np.pi, rtol=1e-15)
    slope = np.exp(-X) * (np.cos(X) - np.sin(X)) * np.pi
    np.testing.assert_allclose(mixad.grad(lambda x: kernel(x).sum())(X), slope, rtol=1e-14)


def test_a_module_may_be_a_default_and_have_another_name():
    kernel = mixad.broadcast(lambda x: renamed(x))
    np.testing.assert_allclose(kernel(X), np.sinc(X), atol=1e-16)


def test_what_a_module_holds_is_read_at_each_call(monkeypatch):
    kernel = mixad.broadcast(lambda x: scaled(x, settings))
    np.testing.assert_array_equal(kernel(X), X * X * 2)
    monkeypatch.setattr(settings, "RATE", 3.0)
    np.testing.assert_array_equal(kernel(X), X * X * 3)
    monkeypatch.setattr(settings, "helper", lambda x: x + 1)
    np.testing.assert_array_equal(kernel(X), (X + 1) * 3)


def test_what_a_module_does_not_have_is_named():
    with pytest.raises(KernelError, match=r"'np\.no_such_function' is not defined"):
        mixad.broadcast(lambda x: missing(x, np))(X)


def test_a_method_calls_that_of_the_class_it_inherits_from():
    np.testing.assert_array_equal(B(0).f(X), 7 * X * 2 * 2)
    np.testing.assert_array_equal(mixad.grad(lambda x: B(0).f(x).sum())(X), [28.0] * 3)


def test_a_kernel_is_called_through_its_class():
    assert A.f(A(0), 1.0) == 10.0
    np.testing.assert_array_equal(A.f(B(0), X), 14 * X)
    np.testing.assert_array_equal(A.twice(X), 2 * X)
    np.testing.assert_array_equal(A(0).twice(X), 2 * X)


def test_a_kernel_as_a_property():
    np.testing.assert_array_equal(A(X).area, X * X)
    np.testing.assert_array_equal(mixad.grad(lambda w: A(w).area.sum())(X), 2 * X)


def test_duals_and_what_explains_are_there_through_the_class_too():
    np.testing.assert_array_equal(A.f.duals(A(0), X).partials["x"], [10.0] * 3)
    assert A.f.explain(A(0), X).backend == "cpu"
    assert "mul" in A.f.source(A(0), X)


def of_class(x, settings):
    return settings.rate * x


def test_a_class_is_passed_as_a_module_is():
    np.testing.assert_array_equal(mixad.broadcast(lambda x: of_class(x, A))(X), 5 * X)
