"""Sums of products over labelled axes, two factors after the other as products of matrices."""

from __future__ import annotations

import math
import operator
import string
from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import device

from mixad.namespace.indexing import gather
from mixad.namespace.linear_algebra import matmul
from mixad.namespace.manipulation import permute_dims, reshape
from mixad.namespace.statistical import total
from mixad.tape.broadcasting import broadcast_to
from mixad.tape.memory import view_of
from mixad.tape.node import library_of_value

__all__ = ["einsum", "read_operands"]

_Labels = tuple[str, ...]


def einsum(*operands: Any, optimize: Any = None) -> Any:
    """Return the sum of products of elements over the axes that the result does not have.

    Arguments are NumPy's; factors are taken from left to right, whatever ``optimize`` says.
    ValueError if labels do not fit the arrays.
    """
    texts, arrays = read_operands(operands)
    *inputs, output = _operand_labels(texts, [x.ndim for x in arrays])
    lengths = _lengths(inputs, arrays)
    factors = [_diagonal(x, labels) for x, labels in zip(arrays, inputs, strict=True)]
    product, labels = factors[0]
    for at, factor in enumerate(factors[1:], start=2):
        later = {label for _, others in factors[at:] for label in others}
        product, labels = _contract((product, labels), factor, later | set(output))
    product, labels = _sum_unneeded(product, labels, set(output))
    whole = _spread(permute_dims(product, [labels.index(a) for a in output]), output, lengths)
    is_view = len(arrays) == 1 and set(inputs[0]) == set(output)  # of NumPy: nothing was summed
    return view_of(whole, arrays[0]) if is_view else whole


def read_operands(operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return NumPy's other form of arguments as text, and the arrays."""
    if isinstance(operands[0], str):
        return operands[0].replace(" ", ""), list(operands[1:])
    arrays, labels = list(operands[: len(operands) // 2 * 2 : 2]), operands[1::2]
    text = ",".join(map(_text, labels))
    return (f"{text}->{_text(operands[-1])}" if len(operands) % 2 else text), arrays


_LETTERS = string.ascii_uppercase + string.ascii_lowercase
"""In the order of the numbers that NumPy takes for labels."""


def _text(labels: Sequence[Any]) -> str:
    for label in labels:
        if label is not Ellipsis and operator.index(label) not in range(len(_LETTERS)):
            raise ValueError(f"einsum(): label {label} is not between 0 and {len(_LETTERS) - 1}")
    return "".join("..." if a is Ellipsis else _LETTERS[a] for a in labels)


def _operand_labels(text: str, ndims: Sequence[int]) -> list[_Labels]:
    """Return the labels of each factor and of the result; numbers for axes of ``...``."""
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ndims):
        raise ValueError(f"einsum({text!r}) of {len(ndims)} arrays: one group of labels for each")
    counts = [ndim - len(term.replace("...", "")) for term, ndim in zip(terms, ndims, strict=True)]
    if any(n < 0 or (n and "..." not in t) for n, t in zip(counts, terms, strict=True)):
        raise ValueError(f"einsum({text!r}) of arrays with {list(ndims)} axes")
    most = max(n if "..." in t else 0 for n, t in zip(counts, terms, strict=True))
    if not arrow:
        once = sorted(a for a in set(inputs) - set(",.") if inputs.count(a) == 1)
        output = ("..." if "..." in inputs else "") + "".join(once)
    return [
        *(_expand_dots(term, count, most) for term, count in zip(terms, counts, strict=True)),
        _expand_dots(output, most, most),
    ]


def _expand_dots(term: str, count: int, most: int) -> _Labels:
    before, dots, after = term.partition("...")
    middle = map(str, range(most - count, most)) if dots else ()
    return (*before, *middle, *after)


def _lengths(inputs: Sequence[_Labels], arrays: Sequence[Any]) -> dict[str, int]:
    """Return the number of elements along each label; axes of length 1 are broadcast."""
    lengths: dict[str, int] = {}
    for labels, x in zip(inputs, arrays, strict=True):
        for label, n in zip(labels, x.shape, strict=True):
            known = lengths.get(label, 1)
            if n != known and 1 not in (n, known):
                raise ValueError(f"einsum(): an axis has {known} elements, and {n} elsewhere")
            lengths[label] = n if known == 1 else known
    return lengths


def _diagonal(x: Any, labels: _Labels) -> tuple[Any, _Labels]:
    """Return a factor without repeated labels: its diagonal along those."""
    if len(set(labels)) == len(labels):
        return x, labels
    once = tuple(dict.fromkeys(labels))
    places = np.arange(math.prod(x.shape)).reshape(tuple(x.shape))
    numbers = [once.index(label) for label in labels]
    places = np.einsum(places, numbers, list(range(len(once))))
    return gather(x, library_of_value(x).xp.asarray(places.copy(), device=device(x))), once


def _sum_unneeded(x: Any, labels: _Labels, kept: set[str]) -> tuple[Any, _Labels]:
    """Return a factor summed over the labels that nobody needs."""
    gone = tuple(at for at, label in enumerate(labels) if label not in kept)
    rest = tuple(label for label in labels if label in kept)
    return (total(x, gone), rest) if gone else (x, labels)


def _contract(
    left: tuple[Any, _Labels], right: tuple[Any, _Labels], kept: set[str]
) -> tuple[Any, _Labels]:
    """Return the product of two factors, summed over labels that nobody else needs."""
    a, own = _sum_unneeded(*left, kept | set(right[1]))
    b, other = _sum_unneeded(*right, kept | set(own))
    lengths = _lengths([own, other], [a, b])
    both = [label for label in own if label in other]
    batch = [label for label in both if label in kept]
    inner = [label for label in both if label not in kept]
    rows = [label for label in own if label not in both]
    columns = [label for label in other if label not in both]

    def matrices(x: Any, labels: _Labels, groups: Sequence[list[str]]) -> Any:
        order = [label for group in groups for label in group]
        x = permute_dims(x, [labels.index(label) for label in order])
        x = _spread(x, tuple(order), lengths)
        sizes = [math.prod(lengths[label] for label in group) for group in groups[-2:]]
        return reshape(x, (*[lengths[label] for label in batch], *sizes))

    product = matmul(matrices(a, own, (batch, rows, inner)),
                     matrices(b, other, (batch, inner, columns)))  # fmt: skip
    result = (*batch, *rows, *columns)
    return reshape(product, [lengths[label] for label in result]), result


def _spread(x: Any, labels: _Labels, lengths: dict[str, int]) -> Any:
    """Return a factor with the full length along each label."""
    return broadcast_to(x, tuple(lengths[label] for label in labels))
