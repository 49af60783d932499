"""Plain Python scalar functions to scalar programs.

`read_function` once, `FunctionSource.snapshot` at every call, `parse` for every new combination of
argument types and snapshot key.
"""

from mixad.scalar.parse.argument import PYTHON_SCALARS, Argument, Described, Structured
from mixad.scalar.parse.compound import Leaf, Returned
from mixad.scalar.parse.driver import Parsed, check_limits, parse
from mixad.scalar.parse.frame import Capture
from mixad.scalar.parse.snapshot import FunctionSource, Snapshot, plain_number, read_function
from mixad.scalar.parse.values.complex import PARTS

__all__ = ["PARTS", "PYTHON_SCALARS", "Argument", "Capture", "Described", "FunctionSource", "Leaf",
           "Parsed", "Returned", "Snapshot", "Structured", "check_limits", "parse", "plain_number",
           "read_function"]  # fmt: skip
