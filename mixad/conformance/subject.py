"""The backend under test, and what was executed on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from mixad.backends.execute import execute
from mixad.backends.hookspecs import BackendSpec
from mixad.backends.protocols import Backend
from mixad.conformance.arrays import Conversion
from mixad.kernel.spec import OutputRequest
from mixad.scalar.ir import Program
from mixad.scalar.types import STORED_TYPES, ScalarType
from mixad.testing import Expected, assert_agrees

__all__ = ["Subject"]


@dataclass(frozen=True, eq=False)
class Subject:
    """A backend under test, and how it is given arrays.

    `counts` has "launches", "results" compared, and "undetermined" ones, which were not.
    """

    backend: Backend
    spec: BackendSpec  # as announced
    arrays: Conversion
    examples: int = 1  # factor of the numbers of random examples
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def types(self) -> tuple[ScalarType, ...]:
        """The scalar types that it declares and that arrays can be made of."""
        return tuple(t for t in STORED_TYPES if self.declares(t) and self.has_arrays_of(t))

    def declares(self, type: ScalarType) -> bool:
        """Whether arrays of a type are served."""
        return type.dtype_name in self.spec.capability.dtypes

    def has_arrays_of(self, type: ScalarType) -> bool:
        """Whether the library, and NumPy, have arrays of a type."""
        if type.brain:
            return False
        try:
            self.arrays.to_library(np.zeros(1, type.dtype))
        except (TypeError, ValueError):
            return False
        return True

    def need(self, *types: ScalarType) -> None:
        """Skip the test if a type is not declared, or has no arrays."""
        for type in types:
            if not self.declares(type):
                pytest.skip(f"the backend does not declare {type.dtype_name}")
            if not self.has_arrays_of(type):
                pytest.skip(f"{self.arrays.name} are never of {type.dtype_name}")

    def run(
        self,
        passes: Program | Sequence[Program],
        arguments: Sequence[Any],
        requests: Sequence[OutputRequest] | None = None,
    ) -> list[Any]:
        """Run programs on arguments and return the outputs as NumPy arrays.

        Arguments are NumPy arrays, which are converted, arrays of the library, or scalars for
        uniforms. By default every output of the first pass is stored.
        """
        programs = (passes,) if isinstance(passes, Program) else tuple(passes)
        if requests is None:
            requests = [OutputRequest(0, k) for k in range(len(programs[0].outputs))]
        pairs = zip(programs[0].params, arguments, strict=True)
        given = [
            self.arrays.to_library(a) if p.kind != "uniform" and isinstance(a, np.ndarray) else a
            for p, a in pairs
        ]
        outputs = execute(programs, tuple(requests), given, self.spec.name)
        self.counts["launches"] += 1
        return [np.asarray(self.arrays.to_numpy(output)) for output in outputs]

    def check(self, expected: Expected, outputs: Sequence[Any]) -> None:
        """Compare outputs with what the interpreter computed; 16-bit ones as float32."""
        narrow = [atom.type.is_narrow for atom in expected.program.outputs]
        wide = [o.astype(np.float32) if n else o for o, n in zip(outputs, narrow, strict=True)]
        self.counts["results"] += sum(int(np.sum(d)) for d in expected.determined)
        self.counts["undetermined"] += sum(int(np.sum(~d)) for d in expected.determined)
        assert_agrees(expected, wide)

    def same(self, got: Any, wanted: Any) -> None:
        """Compare an output with an array, element for element, shape and dtype too."""
        wanted = np.asarray(wanted)
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(got, wanted)
        self.counts["results"] += wanted.size
