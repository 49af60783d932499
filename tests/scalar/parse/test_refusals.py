"""Every refusal says where, why, and what to write instead: compared with stored texts.

`MIXAD_UPDATE_EXPECTED=1 pytest tests/scalar/parse/test_refusals.py` writes the texts anew.
"""

from pathlib import Path

import numpy as np
import parse_refused as refused
import parse_refused_complex as refused_complex
import pytest
from parse_compiled import parsed

from mixad import special
from mixad.errors import KernelError, KernelOverflowError, KernelSyntaxError, KernelTypeError
from mixad.scalar.ops import TABLE
from mixad.scalar.parse.uncallable import instead
from mixad.scalar.promotion_rules import NUMPY_RULES, STRICT_RULES
from mixad.scalar.types import BF16, BOOL, F16, F32, F64, I32, I64, U8, U64

EXPECTED = Path(__file__).parent / "expected"

CASES = {
    name: f
    for module in (refused, refused_complex)
    for name, f in vars(module).items()
    if name.startswith("refuse_")
}
TYPES = {
    "refuse_adding_booleans": (BOOL, BOOL),
    "refuse_large_literal": (U8, F32),
    "refuse_negative_power_of_integer": (I32, F32),
    "refuse_u64_comparison": (U64, I64),
    "refuse_mixture_of_narrow_floats": (F16, BF16),
    "refuse_strict_mixture": (I32, F32),
    "refuse_strict_division": (I32, I32),
    "refuse_strict_sine": (I32, I32),
    "refuse_strict_complex": (F32, I32),
    "refuse_unsigned_literal": (U64,),
    "refuse_too_large_unsigned_literal": (U64,),
    "refuse_reciprocal_of_integers": (I32,),
    "refuse_integers_beside_bfloat16": (I32, BF16),
    "refuse_square_of_booleans": (BOOL,),
    "refuse_floor_of_booleans": (BOOL,),
    "refuse_power_of_booleans": (BOOL, BOOL),
    "refuse_plus_of_booleans": (BOOL,),
}


def message_of(name, function):
    types = TYPES.get(name, (F64,) * (function.__code__.co_argcount))
    with pytest.raises(KernelError) as caught:
        parsed(function, *types, rules=STRICT_RULES if "strict" in name else NUMPY_RULES)
    assert isinstance(caught.value, KernelSyntaxError | KernelTypeError | KernelOverflowError)
    path = Path(function.__code__.co_filename)
    return f"{type(caught.value).__name__}: {caught.value}\n".replace(str(path), path.name)


@pytest.mark.parametrize("name", CASES)
def test_refusal_says_where_why_and_what_instead(name, check_stored):
    stored = EXPECTED / f"{name.removeprefix('refuse_')}.txt"
    check_stored(stored, message_of(name, CASES[name]))


def test_every_refusal_has_a_way_out():
    without = [p.stem for p in EXPECTED.glob("*.txt") if "\n  Instead: " not in p.read_text()]
    assert without == []


def test_every_stored_text_belongs_to_a_case():
    stored = {p.stem for p in EXPECTED.glob("*.txt")}
    assert stored == {name.removeprefix("refuse_") for name in CASES}


def test_c_functions_have_no_source():
    with pytest.raises(KernelSyntaxError, match="not a Python function"):
        parsed(np.sin, F64)


@pytest.mark.parametrize("op", TABLE, ids=lambda op: op.name)
def test_a_function_named_like_an_op_is_pointed_to_one_that_exists(op):
    hint = instead(type("Function", (), {"__name__": op.name})())
    if hint.startswith("mixad.special."):
        assert hint == f"mixad.special.{op.name}"
        assert op.name in special.__all__
    else:
        assert op.domain != "float" or not hasattr(special, op.name)
