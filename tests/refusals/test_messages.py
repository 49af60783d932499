"""What transforms, arrays, options and backends refuse says what to do: compared with stored texts.

`MIXAD_UPDATE_EXPECTED=1 pytest tests/refusals` writes the texts anew.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import refused_calls

from mixad.errors import MixadError

EXPECTED = Path(__file__).parent / "expected"
CASES = {n: f for n, f in vars(refused_calls).items() if n.startswith("refuse_")}
HAS_TORCH = importlib.util.find_spec("torch") is not None
HAS_DASK = importlib.util.find_spec("dask") is not None

WAY_OUT = re.compile(
    r"\n  Instead: |must be (one of|None or)|is a return statement missing\?|"
    r"(?:[:;,] (?:or )?|\n  )(?:add|build|call|change|close over|convert|differentiate|install|"
    r"keep|leave|make|move|multiply|name|pass|record|reshape|return|run|say|take|unset|use|wrap|write)"
    r"\b"
)
"""An imperative after what is wrong; where one of a few values is allowed, their list."""


def marked(name):
    torch = [pytest.mark.torch, pytest.mark.skipif(not HAS_TORCH, reason="no torch here")]
    dask = [pytest.mark.skipif(not HAS_DASK, reason="no Dask here")]
    return pytest.param(name, marks=torch if "torch" in name else dask if "dask" in name else ())


@pytest.mark.parametrize("name", [marked(name) for name in CASES])
def test_refusal_says_what_is_wrong_and_what_to_do(name, check_stored):
    with pytest.raises((MixadError, AttributeError, ValueError, TypeError)) as caught:
        CASES[name]()
    text = f"{type(caught.value).__name__}: {caught.value}\n"
    path = str(Path(refused_calls.__file__))
    check_stored(EXPECTED / f"{name.removeprefix('refuse_')}.txt", text.replace(path, "refused.py"))


def test_every_refusal_has_a_way_out():
    without = [p.stem for p in EXPECTED.glob("*.txt") if not WAY_OUT.search(p.read_text())]
    assert without == []


def test_every_stored_text_belongs_to_a_case():
    stored = {p.stem for p in EXPECTED.glob("*.txt")}
    assert stored == {name.removeprefix("refuse_") for name in CASES}
