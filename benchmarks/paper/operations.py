"""The cell in pure reverse mode: a kernel for each operation, and selections for its branches.

This is what mixed mode is compared with.  It is mixad's own tape, one node for each operation on
arrays; what is switched off is fusion.  Two nodes share a kernel only if their functions have the
same options, so each operation has a ``chunk`` of its own, which changes nothing else: no operation
has more active inputs than the smallest of them.  `mixad.vjp` makes the value before a cotangent
is there, so forward and backward kernels are apart too; what is dear stores its partial with its
value, as tapes do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mixad
from mixad import special


@mixad.broadcast
def is_one(z):
    return z == 1.0


@mixad.broadcast
def is_zero(z):
    return z == 0.0


def product(x, y):
    return x * y


def total(x, y):
    return x + y


def selection(condition, x, y):
    return special.where(condition, x, y)


def logistic(x):
    return special.sigmoid(x)


def hyperbolic(x):
    return special.tanh(x)


def operation(function: Callable[..., Any], chunk: int, **options: Any) -> mixad.BroadcastFunction:
    """Return an operation on arrays that is a kernel of its own."""
    return mixad.broadcast(function).with_options(chunk=chunk, **options)


SIGMOID_I = operation(logistic, 3, placement="forward")
SIGMOID_F = operation(logistic, 4, placement="forward")
TANH_G = operation(hyperbolic, 5, placement="forward")
FLUSH = operation(product, 6)
KEPT = operation(product, 7)
UPDATE = operation(total, 8)
COPY_OR_UPDATE = operation(selection, 9)
CELL = operation(selection, 10)


def cell(z, zb, c, f, i, g):
    """Return the cell: eight operations on whole arrays, and two comparisons."""
    flush = FLUSH(SIGMOID_I(i), TANH_G(g))
    update = UPDATE(KEPT(SIGMOID_F(f), c), flush)
    return CELL(is_one(z), flush, COPY_OR_UPDATE(is_zero(zb), c, update))
