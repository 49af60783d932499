"""The functions that kernels call: the ops of the table by name, and some made of them.

Inside a kernel they become ops; called with plain numbers they compute what the reference
interpreter computes.  Those that are made of ops are plain Python, compiled into a kernel like a
function of the user.
"""

from __future__ import annotations

import inspect

from mixad.scalar.parse.other_libraries import provide
from mixad.special.activations import *  # noqa: F403
from mixad.special.angles import *  # noqa: F403
from mixad.special.bessel import *  # noqa: F403
from mixad.special.beta_function import *  # noqa: F403
from mixad.special.elliptic import *  # noqa: F403
from mixad.special.exponential_integrals import *  # noqa: F403
from mixad.special.incomplete_gamma import *  # noqa: F403
from mixad.special.kinked import *  # noqa: F403
from mixad.special.logarithms import *  # noqa: F403
from mixad.special.statistics import *  # noqa: F403
from mixad.special.table import *  # noqa: F403
from mixad.special.zeta_function import *  # noqa: F403

__all__ = sorted(
    name
    for name, value in vars().copy().items()
    if inspect.isfunction(value) and value.__module__ == __name__ and not name.startswith("_")
)

provide({name: globals()[name] for name in __all__})
