"""The modules beside the tests, and the parser's, importable under any import mode."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "scalar" / "parse")]
