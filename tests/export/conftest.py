"""The modules beside the tests, and the emulator of CUDA, importable under any import mode."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cuda")]
