"""Kernels of real programs as CUDA C++: run by the emulator, and compiled by NVRTC."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_emulator import DryDriver, needs_nvrtc

from mixad.backends import registry
from mixad.backends.cuda import compile_text

sys.path.insert(0, str(Path(__file__).parents[1] / "real_kernels"))
from real_subjects import SUBJECTS, Subject

EACH = pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)


FEWER_AT_ONCE = {"chemistry": 4}
"""Inputs of one pass where eight partials of all that a loop carries do not fit into registers."""


def given(
    subject: Subject, backend: str, arrays: list[Any], chunk: int | None = None
) -> tuple[Any, Any]:
    """Return values and Jacobians of a subject's kernel."""
    kernel = subject.kernel.with_options(backend=backend, chunk=chunk)
    return kernel.value_and_jacobian(*arrays, wrt=subject.wrt)


@pytest.mark.slow
@EACH
def test_values_and_jacobians_are_those_of_the_cpu(subject: Subject) -> None:
    few = [a[:20] if isinstance(a, np.ndarray) else a for a in subject.arguments]
    (got, partials), (want, wanted) = (given(subject, b, few) for b in ("emulated", "cpu"))
    size = abs(wanted).max(axis=0)
    assert (abs(partials - wanted) <= 1e-10 * (abs(wanted) + size)).all()
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


@cache
def texts_of(name: str) -> list[str]:
    """Return the texts of a subject's values and Jacobian, of aligned arrays."""
    driver = registry.default_registry().backend("dry").driver
    before, subject = len(driver.texts), SUBJECTS[name]
    aligned = [
        DryDriver().empty((64, 64), a.dtype, "dry") if isinstance(a, np.ndarray) else a
        for a in subject.arguments
    ]
    given(subject, "dry", aligned, FEWER_AT_ONCE.get(name))
    return driver.texts[before:]


@pytest.mark.slow
@needs_nvrtc
@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_they_compile_without_spills(name: str, architecture: str) -> None:
    assert texts_of(name)
    for text in texts_of(name):
        log = compile_text(text, architecture, ["--ptxas-options=-v"]).log
        assert not re.findall(r"[1-9]\d* bytes spill", log), log
