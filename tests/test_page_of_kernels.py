"""What docs/kernels.md says is refused has a stored refusal: what is built leaves the page, too."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "kernels.md"
if not PAGE.is_file():
    pytest.skip("the documentation is in the repository only", allow_module_level=True)
STORED = {
    name
    for file in (ROOT / "tests" / "refusals").glob("*.py")
    for name in re.findall(r"^(?:async )?def refuse_(\w+)\(", file.read_text("utf-8"), re.M)
}
REFUSED = {
    "a dictionary or a set from outside": "captured_dict captured_set",
    "a method of a list from outside, `log.append(x)`": "append_to_a_captured_list",
    "assigning to an attribute, a global name, an element of what comes from outside": (
        "attribute_assignment global item_assignment"
    ),
    "assigning to an item of a list that has two names, of an argument, of a slice": (
        "item_of_a_shared_list slice_of_a_list_assigned view_of_an_array_that_is_changed"
    ),
    "arithmetic of small arrays (`w + v`)": "arithmetic_of_arrays",
    "`array[i]` of an argument": "indexing_argument",
    "`array[1:3]`, `array.sum()`, `np.dot(a, b)`, `for v in array` of an array from outside": (
        "array_slice method_of_captured_array array_function loop_over_array"
    ),
    "`len(array)`": "length_of_array",
    "`max(..., key=...)`, `sorted(...)`": "key_of_max",
    "`round(x, 2)`": "round_to_digits",
    "`print(x)`": "print",
    "`random.random()`, `rng.normal()`": "random numpy_random",
    "recursion": "recursion mutual_recursion",
    "choosing between functions while the kernel runs: `f = sin if x > 0 else cos`": (
        "choosing_functions"
    ),
    "`functools.partial`, `super()`": "partial making_partial super",
    "`*args` and `**kwargs` in the kernel's own signature (its helpers may have `*args`)": (
        "variadic keyword_variadic"
    ),
    "a name that some path does not assign, a path without `return`": (
        "unassigned falling_off_the_end"
    ),
    "a name that is a tuple on one path and a number on another": "tuple_or_number",
    "a Python integer that does not fit the integer array beside it": "large_literal",
    "arithmetic of two booleans of arrays (`(x > 0) + (y > 0)`)": "adding_booleans",
    "`np.reciprocal` of integers, `n ** -1`": ("reciprocal_of_integers negative_power_of_integer"),
    "unsigned 64-bit integers compared with signed ones": "u64_comparison",
    "long doubles, objects, strings as arguments": "dates captured_array_of_long_complex",
    "the order of complex numbers, functions of `math` of them, their inverse functions": (
        "complex_order complex_in_math inverse_function_of_complex"
    ),
    "a function without source: made by `exec`, a ufunc, a class; or one whose file has changed since": (  # noqa: E501
        "helper_without_source kernel_of_a_ufunc edited_helper"
    ),
    "conditions nested more than 120 deep: each `elif`, each `return` under an `if` counts": (
        "deep_conditions"
    ),
}


def test_what_the_page_lists_is_what_is_named_here():
    listed = PAGE.read_text("utf-8").partition("And what else is refused")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \| .* \|$", listed, re.MULTILINE)
    assert rows == ["written", *REFUSED]


@pytest.mark.rows("row", REFUSED)
def test_each_has_a_stored_refusal(row):
    assert sorted(set(REFUSED[row].split()) - STORED) == []
