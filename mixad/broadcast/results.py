"""Results of a call of a kernel: its program's outputs, in the form the function returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mixad.backends.execute import capability_beside
from mixad.backends.integrations import LOADED, follower, integration_results
from mixad.call.arguments import made_of_wholes, make_result
from mixad.call.specialise import Specialisation
from mixad.kernel.options import KernelOptions
from mixad.namespace.constant_array import Constant
from mixad.namespace.elementwise import as_numpy_gives
from mixad.scalar.parse import PYTHON_SCALARS, Parsed
from mixad.tape.apply import apply_call
from mixad.tape.complex_parts import join_complex
from mixad.tape.constant import constants, unwrapped
from mixad.tape.kernel_call import KernelCall, kernel_values
from mixad.tape.tracer import Tracer

__all__ = ["as_numbers", "call_kernel", "made_whole", "stores_whole", "user_result", "with_complex"]


def call_kernel(call: KernelCall, values: Sequence[Any], options: KernelOptions) -> tuple[Any, ...]:
    """Make a call, or record it: here, or where a library has derivatives of its own."""
    if Constant in map(type, values):
        outputs: tuple[Any, ...] = constants(apply_call(call, [*map(unwrapped, values)], options))
        return outputs
    if LOADED and not any(isinstance(v, Tracer) for v in values):
        integration = follower(values)
        if integration is not None:
            return integration_results(integration, call.passes[0], values, options)
    return apply_call(call, values, options)


def stores_whole(parsed: Parsed, values: Sequence[Any], options: KernelOptions) -> bool:
    """Whether a call without derivatives can store elements of arrays side by side."""
    if any(isinstance(v, Tracer) for v in values):
        return False
    if LOADED and follower(values) is not None:
        return False
    given = (v for i, v in enumerate(values) if i not in parsed.made_arrays)
    array = next((v for v in given if not _is_number(v)), None)
    if array is None:
        return False
    return capability_beside(parsed.program, array, options.backend).stores_beside


def made_whole(found: Specialisation, values: Sequence[Any], options: KernelOptions) -> Any:
    """Return the function's result, with the elements of each array stored side by side."""
    assert found.whole is not None
    assert found.parsed.returned is not None
    outputs = found.whole(kernel_values(found.parsed.program, values), options.backend)
    return made_of_wholes(found.parsed.returned, outputs)


def as_numbers(parsed: Parsed, values: Sequence[Any], outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return results of numbers alone as numbers, as NumPy's scalars where its functions do."""
    if parsed.made_arrays:
        values = [v for i, v in enumerate(values) if i not in parsed.made_arrays]
    scalars = parsed.scalars
    if np.ndarray not in map(type, values) and all(map(_is_number, values)):
        return tuple([_as_number(out, values, i in scalars) for i, out in enumerate(outputs)])
    if not scalars:
        return outputs
    return tuple([as_numpy_gives(o) if i in scalars else o for i, o in enumerate(outputs)])


def with_complex(outputs: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...]:
    """Return a kernel's outputs, with complex results in place of their parts."""
    left, found = iter(enumerate(outputs)), []
    for place, output in left:
        found.append(join_complex(output, next(left)[1]) if place in places else output)
    return tuple(found)


def user_result(parsed: Parsed, outputs: Sequence[Any]) -> Any:
    """Return the outputs of a program as its function returns them."""
    if parsed.returned is not None:
        return make_result(parsed.returned, outputs)
    return outputs[0] if parsed.single else tuple(outputs)


def _is_number(value: Any) -> bool:
    return type(value) in PYTHON_SCALARS or isinstance(value, np.generic)


def _as_number(result: Any, values: Sequence[Any], is_scalar: bool) -> Any:
    """Return a result of no axes as a Python number if all arguments are such, else as NumPy's.

    With ``is_scalar`` it is NumPy's for Python numbers, too.
    """
    is_python = not is_scalar and all(type(v) in PYTHON_SCALARS for v in values)
    return result.item() if is_python else result[()]
