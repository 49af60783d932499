"""A program whose functions go to other processes: `test_pickling` runs copies of it.

``ROWS`` has functions of one array, and what they compute, in NumPy.
"""

import dataclasses
import functools
import math
import os.path
import xml.dom
import xml.sax
from typing import NamedTuple

import numpy as np

import mixad


class Shapes(NamedTuple):
    one: object
    many: object


K = 3.0
POWERS = ((lambda x: x * x), (lambda x: x * x * x))
X = np.linspace(0.5, 1.5, 4)


def helper(x):
    return K * x + math.pi


@mixad.broadcast
def calls_helper(x):
    return helper(x) ** 2


in_lambda = mixad.broadcast(lambda x: x * K)
beside, other = mixad.broadcast(lambda x: x + 1.0), mixad.broadcast(lambda x: x + 2.0)


def make(k, array):
    @mixad.broadcast(placement="forward")
    def closure(x, *, shift=0.25):
        return k * x + in_lambda(x) + array[2] + np.exp(x) + shift

    return closure


@mixad.broadcast(signature="(n)->()")
def norm2(v):
    total = 0.0
    for i in range(len(v)):
        total = total + v[i] * v[i]
    return total


@mixad.broadcast
def functions_in_tuple(x):
    return POWERS[0](x) + POWERS[1](x)


SQUARES, CUBES = {POWERS[0]}, frozenset({POWERS[1]})
LISTED = [lambda x: x * x, {"cubed": lambda x: x**3}]
LISTED.append(LISTED)  # it holds itself, and so does the dictionary
LISTED[1]["all"], LISTED[1]["pair"] = LISTED, Shapes((lambda x: x + 1.0), LISTED)
LISTED[1]["partial"] = functools.partial(lambda x, of, power: of[0](x) * power(x), of=LISTED,
                                         power=LISTED[1]["cubed"])  # fmt: skip


def functions_in_containers(x):
    of = LISTED[2][1]["all"]
    assert of is LISTED
    return of[0](x) + of[1]["cubed"](x) + of[1]["pair"].one(x) + of[1]["partial"](x=x)


@functools.lru_cache
def cached(x):
    return x * x


calls_cached = mixad.broadcast(lambda x: cached(x) + 1.0)
of_cached = mixad.broadcast(cached)


@mixad.scalar_rule(lambda x, root: 0.25 / root)  # half of what it is
def root(x):
    return math.sqrt(x)


@mixad.scalar_rule(lambda x: own_slope(x))
def own_slope(x):
    return math.exp(x)


calls_rule = mixad.broadcast(lambda x: root(x) * 3.0)


class Spring:
    def __init__(self, k):
        self.k = k
        self.own = self.force  # refers to this object

    def scaled(self, x):
        return self.k * x

    @mixad.broadcast
    def force(self, x):
        return self.scaled(x) * self.k

    @staticmethod
    @mixad.broadcast
    def static(x):
        return x * 5.0

    def energy(self, x):
        return (self.force(x) * x).sum()

    slope = mixad.grad(energy, argnums=1)  # whose name is another method's


spring = Spring(2.0)
calls_method = mixad.broadcast(lambda x: spring.scaled(x) + 1.0)


class Pair(NamedTuple):
    a: float
    b: float


@dataclasses.dataclass
class Point:
    u: float
    v: float


@mixad.broadcast
def structures(x):
    point = Point(x, Pair(x * x, 2.0 * x).b)
    return point.u * point.v


@mixad.checkpoint
def power(x, n=3):
    return x if n == 1 else x * power(x, n - 1)


@mixad.custom_vjp
def halved(x):
    return x * x


halved.defvjp(lambda x: (halved(x), x), lambda x, g: (g * x,))


@mixad.custom_jvp
def doubled(x):
    return x * x


@doubled.defjvp
def rule(primals, tangents):
    (x,), (t,) = primals, tangents
    return doubled(x), 4.0 * x * t


def total(x, power):
    return (x**power).sum()


def powered(x, power):
    return power(x).sum()


PACKAGES = [xml, {"all": (xml, lambda x: x)}]


def with_dom(x):
    return (x * len(PACKAGES[0].dom.__name__)).sum()


def with_sax(x):
    return (x * len(PACKAGES[1]["all"][0].sax.__name__)).sum()


def joined(x):
    return np.asarray(len(os.path.join("a", "b"))) * x.sum()


ROWS = {
    "a helper": (calls_helper, lambda x: (3 * x + np.pi) ** 2),
    "a lambda": (in_lambda, lambda x: 3 * x),
    "a lambda beside another": (beside, lambda x: x + 1),
    "the other one": (other, lambda x: x + 2),
    "a closure with options": (make(2.0, np.arange(3.0)), lambda x: 5 * x + 2.25 + np.exp(x)),
    "other options": (calls_helper.with_options(chunk=1), lambda x: (3 * x + np.pi) ** 2),
    "a signature": (norm2, lambda x: (x * x).sum()),
    "functions in a tuple": (functions_in_tuple, lambda x: x**2 + x**3),
    "a cached helper": (calls_cached, lambda x: x * x + 1),
    "a cached function": (of_cached, lambda x: x * x),
    "a rule": (root, np.sqrt),
    "its derivative": (mixad.grad(lambda x: calls_rule(x).sum()), lambda x: 0.75 / np.sqrt(x)),
    "a rule that calls itself": (mixad.jacobian(own_slope), lambda x: np.diag(np.exp(x))),
    "a bound method": (spring.force, lambda x: 4 * x),
    "one with options": (spring.force.with_options(placement="forward"), lambda x: 4 * x),
    "one of a captured object": (calls_method, lambda x: 2 * x + 1),
    "a bound method in an object": (mixad.broadcast(lambda x: spring.own(x)), lambda x: 4 * x),
    "a static method": (Spring.static, lambda x: 5 * x),
    "a gradient that is a method": (spring.slope, lambda x: 8 * x),
    "structures": (structures, lambda x: 2 * x * x),
    "checkpoint, of itself": (power, lambda x: x**3),
    "custom_vjp": (mixad.grad(lambda x: halved(x).sum()), lambda x: x),
    "custom_jvp": (mixad.grad(lambda x: doubled(x).sum()), lambda x: 4 * x),
    "grad": (mixad.grad(lambda x: in_lambda(x * x).sum()), lambda x: 6 * x),
    "value_and_grad": (mixad.value_and_grad(joined), lambda x: (3 * x.sum(), 3 + 0 * x)),
    "a module of a package in a list": (mixad.grad(with_dom), lambda x: 7 + 0 * x),
    "another one of it": (mixad.grad(with_sax), lambda x: 7 + 0 * x),
    "jacfwd": (mixad.jacfwd(in_lambda), lambda x: 3 * np.eye(4)),
    "jacrev": (mixad.jacrev(in_lambda), lambda x: 3 * np.eye(4)),
    "hessian": (mixad.hessian(lambda x: power(x).sum()), lambda x: np.diag(6 * x)),
    "grad of checkpoint": (mixad.grad(lambda x: power(x).sum()), lambda x: 3 * x * x),
    "grad of a partial": (mixad.grad(functools.partial(total, power=3)), lambda x: 3 * x * x),
    "a function in the keywords of a partial": (
        mixad.grad(functools.partial(powered, power=lambda x: x**3)),
        lambda x: 3 * x * x,
    ),
    "functions in lists, dictionaries and what they hold": (
        mixad.grad(lambda x: functions_in_containers(x).sum()),
        lambda x: 2 * x + 3 * x**2 + 1 + 5 * x**4,
    ),
    "functions in a set": (
        mixad.grad(lambda x: sum(f(x).sum() for f in (*SQUARES, *CUBES))),
        lambda x: 2 * x + 3 * x**2,
    ),
    "a second derivative": (
        mixad.grad(lambda x: mixad.grad(lambda y: power(y).sum())(x).sum()),
        lambda x: 6 * x,
    ),
}
EXPECTED = {name: expected(X) for name, (_, expected) in ROWS.items()}


def wrong(compute):
    """Return what is not as expected of what ``compute`` gives for the function of each row."""
    found = {}
    for name, (function, _) in ROWS.items():
        try:
            result = compute(function)
            for got, want in zip(_parts(result), _parts(EXPECTED[name]), strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-14)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def _parts(result):
    return result if isinstance(result, tuple) else (result,)
