"""mixad: reverse mode over the program, forward mode inside every broadcast.

`broadcast` makes a kernel of a scalar function; `Array` annotates arguments that it takes whole.
Transforms differentiate functions that call
kernels: `grad`, `value_and_grad`, `vjp` and `value_and_vjp` backward, `jvp` and `linearize`
forward, `jacobian` and `hessian` either way.  `stop_gradient` takes a value out of them;
`checkpoint`, `custom_vjp` and `custom_jvp` say how a function is differentiated, `scalar_rule` how
one of numbers is, `check_grads` whether rightly.
`tape` shows what a call records.
`namespace_of` has the array API standard's functions for them.  `special` has functions to call in
kernels, `scipy` counterparts of SciPy's, `errors` what may be raised, `pytree` the containers that
arguments may be; `tree_map` applies a function to each leaf of one.
"""

import importlib
from typing import TYPE_CHECKING, Any

from mixad import errors, pytree, special
from mixad.broadcast.function import BroadcastFunction, broadcast
from mixad.broadcast.scalar_rule import ScalarRule, scalar_rule
from mixad.constructs.associative import associative_scan, check_associative, reduce
from mixad.constructs.branches import cond, switch
from mixad.constructs.histograms import reduce_by_index
from mixad.constructs.library_functions import add_library_functions
from mixad.constructs.loops import fori_loop, map, scan, while_loop
from mixad.namespace.module import namespace_of
from mixad.pytree import tree_map
from mixad.scalar.dual import DualChunk
from mixad.scalar.parse.whole_arrays import Array
from mixad.transforms.checkpointing import checkpoint
from mixad.transforms.custom_jvp import custom_jvp
from mixad.transforms.custom_vjp import custom_vjp
from mixad.transforms.forward import jvp, linearize
from mixad.transforms.gradient_check import check_grads
from mixad.transforms.gradients import grad, stop_gradient, value_and_grad, value_and_vjp, vjp
from mixad.transforms.jacobians import hessian, hvp, jacfwd, jacobian, jacrev
from mixad.transforms.recording import tape
from mixad.version import __version__

if TYPE_CHECKING:
    from mixad import scipy

__all__ = [
    "Array",
    "BroadcastFunction",
    "DualChunk",
    "ScalarRule",
    "__version__",
    "associative_scan",
    "broadcast",
    "check_associative",
    "check_grads",
    "checkpoint",
    "cond",
    "custom_jvp",
    "custom_vjp",
    "errors",
    "fori_loop",
    "grad",
    "hessian",
    "hvp",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "linearize",
    "map",
    "namespace_of",
    "pytree",
    "reduce",
    "reduce_by_index",
    "scalar_rule",
    "scan",
    "scipy",
    "special",
    "stop_gradient",
    "switch",
    "tape",
    "tree_map",
    "value_and_grad",
    "value_and_vjp",
    "vjp",
    "while_loop",
]

add_library_functions()


def __dir__() -> list[str]:
    """Return the names that users import; modules of the inside are not among them."""
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return `mixad.scipy`, which is imported when it is first asked for."""
        if name != "scipy":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module("mixad.scipy")
