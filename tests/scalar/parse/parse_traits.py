"""Small functions, one trait of the language each; the tests run each both ways."""

# ruff: noqa: B007, B023, E731, F821, PIE790, RET504, RUF005, SIM108

import math

import numpy as np


def static_if(x):
    n = len((1, 2))
    if n == 2:
        r = x
    else:
        r = (x, x)
    return r


def dead2(x):
    while True:
        if x > 1:
            return x
        x += 1
    return y


def aug_tuple(x):
    t = (x,)
    t += (2.0,)
    a, *b = t + (3.0,)
    return a + b[0] * b[1] + t[-1] + sum(t[0:1])


def carried_tuple(x):
    p = (x, 1)
    for _ in range(3):
        p = (p[1], p[0] + p[1])
    return p[0] + p[1]


def func_in_loop(x):
    s = 0
    for i in range(3):

        def g(t):
            return t * i

        h = lambda t: t + i
        s += g(x) + h(x)
    return s


def func_after_loop(x):
    for i in range(3):

        def g(t):
            return t * 2

    return g(x)


def apply(f, x):
    return f(x)


def ho(x):
    return apply(lambda t: apply2(t), x) + apply(math.sin, x)


def apply2(t):
    return t * 3


def nested_apply(x):
    return apply(lambda t: apply(lambda u: u * 2, t), x)


def loopvar(x):
    for i in range(2, 5):
        x += i
    return x * i


def starargs(*a):
    return sum(a)


def call_star(x):
    t = (x, 2.0)
    return starargs(*t, 3.0) + max(*t) + min(t)


def wh(x):
    return np.where(x > 0, x, -x)


def ifexp_nested(x):
    return 1 if x < 0 else 2 if x < 1 else x


def many(x):
    a = b = x
    a += 1
    c: float = a
    d: float
    d = c
    return a, b, d


def neg_step(x):
    s = 0
    for i in range(5, 0, -2):
        s += i * x
    return s


def intmod(x):
    return int(x) % -3, int(x) // -3, x % -3, x // -3


def unroll_big(x):
    w = (0.1,) * 10
    for k in range(10):
        x += w[k] * w[-k - 1]
    return x


def runtime_idx(x):
    w = (1.0, 2.0, 3.0)
    return w[int(x) % 3] + w[int(x) % 3 - 3]


def while_test_call(x):
    def cond(t):
        return t < 10 and t > -10

    x = abs(x) + 1
    while cond(x):
        x *= 2
    return x


def while_ifexp(x):
    while (x if x > 1 else 1) < 10:
        x += 3
    return x


def cont_while(x):
    n = 0
    while n < 10:
        n += 1
        if n % 2:
            continue
        if n > 7:
            break
        x += n
    return x, n


def kw(x):
    return np.clip(x, a_min=0.0, a_max=1.0) + math.isclose(x, 1.0, rel_tol=0.5)


def npfloat(x):
    return np.float32(x) * 2 + np.float64(3)


def retbool(x):
    return x > 0


def unused_result(x):
    if x > 0:
        pass
    return x


def chain_side(x):
    return 1 < x < 3 < 5


def not_num(x):
    return not x


def pow_w(x):
    return pow(x, 3) + x**3.0 + (-2) ** 3 + 2**-1


def modneg(x):
    return math.fmod(x, 3) + divmod(x, 2)[0]


class C:
    k = 2.0

    @staticmethod
    def s(x):
        return x + 1

    @classmethod
    def c(cls, x):
        return x * cls.k

    def m(self, x):
        return self.s(x) + self.c(x) + C.s(x)


def inf(x):
    return x * float("inf")


def nn(x):
    return math.nan if x < 0 else math.inf


def shadow(x):
    abs = x * 2
    return abs


def docstring(x):
    """Doc."""
    ...
    return x


def ops(x, n):
    return (
        np.add(x, n)
        + np.multiply(x, 2)
        + np.subtract(1, x)
        + np.divide(n, 2)
        + np.remainder(n, 3)
        + np.negative(x)
        + np.floor_divide(x, 2)
    )


def dead_break(x):
    for i in range(3):
        if x < i - 1:
            for k in (1.5, -2, 0.25):
                x += k
                continue
                break
            else:
                return x, i
            x = 1.0 * x
    return x, 0


def break_or_return(x):
    for i in (1, 2):
        x += i
        while x < 3:
            x += 1
        else:
            if x > 4:
                break
            return x * 2
    return x


def else_that_never_runs(x):
    y = 1.0 * x
    for i in (1.5, -2):
        if x < i:
            break
        return y
    else:
        y = 2.0 * y
    return x + 1


ONE_ARGUMENT = [
    dead_break,
    break_or_return,
    else_that_never_runs,
    static_if,
    dead2,
    aug_tuple,
    carried_tuple,
    func_in_loop,
    func_after_loop,
    ho,
    nested_apply,
    loopvar,
    call_star,
    wh,
    ifexp_nested,
    many,
    neg_step,
    intmod,
    unroll_big,
    runtime_idx,
    while_test_call,
    while_ifexp,
    cont_while,
    kw,
    npfloat,
    retbool,
    unused_result,
    chain_side,
    not_num,
    pow_w,
    modneg,
    inf,
    nn,
    shadow,
    docstring,
    C().m,
]
