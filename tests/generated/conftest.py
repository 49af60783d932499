"""The emulator of CUDA is in a folder of its own."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cuda"))
