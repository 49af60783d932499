"""Suites for asv, each parametrised by backend and size.

asv imports this folder alone, beside the mixad of the commit that it measures. What is timed is
what `benchmarks.peers` and `benchmarks.gpu` time, so that their folder is found too: after what is
installed, since the mixad of this checkout lies there.
"""

import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])

if ROOT not in sys.path:
    sys.path.append(ROOT)
