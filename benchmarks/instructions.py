"""Instructions of machine code, counted in what NVIDIA's disassembler shows."""

from __future__ import annotations

import re

_FUNCTION = re.compile(r"^\.text\.(\w+):$", re.MULTILINE)
_LINE = re.compile(
    r"^(\.L_x_\d+):|^\s*/\*[0-9a-f]{4,}\*/\s+(?P<guard>@!?U?P\w+ )?\s*(?P<rest>[^;]+);",
    re.MULTILINE,
)
_TARGET = re.compile(r"`\((\.L_x_\d+)\)")


def longest_ways(shown: str) -> dict[str, int]:
    """Return how many instructions are on the longest way through each function of a module.

    Each loop is gone through once, and functions that are called are not counted: CUDA's own, for
    divisions of special values.

    Parameters
    ----------
    shown : str
        What ``nvdisasm --print-code`` shows.
    """
    _, *parts = _FUNCTION.split(shown)
    return {name: _longest_way(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


def _longest_way(text: str) -> int:
    labels: dict[str, int] = {}
    code: list[tuple[bool, str]] = []  # whether it has a condition, and the instruction
    for found in _LINE.finditer(text):
        if label := found[1]:
            labels[label] = len(code)
        else:
            code.append((found["guard"] is not None, found["rest"]))
    ways = [0] * (len(code) + 1)  # to the end, from each instruction
    for at in reversed(range(len(code))):
        is_conditional, instruction = code[at]
        name, _, operands = instruction.partition(" ")
        after = [ways[at + 1]]
        if name.startswith("BRA"):
            target = labels[_TARGET.findall(operands)[0]]
            is_conditional |= "," in operands
            after = [ways[target]] * (target > at) + after * is_conditional
        elif name.startswith(("EXIT", "RET")):
            after *= is_conditional
        ways[at] = 1 + max(after, default=0)
    return ways[0]
