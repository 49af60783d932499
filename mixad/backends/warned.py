"""Warnings that point at the user's line, however deep in mixad they are found out."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

__all__ = ["warn_user"]

_OWN = str(Path(__file__).parents[1]) + os.sep


def warn_user(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Issue a warning at the innermost line that is not mixad's."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
