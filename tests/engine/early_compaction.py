"""Lets every epoch merge the state files that it finds, so that a few epochs see what many would."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import pytest

from tidemark.state.gc.compaction import plan_compaction


def compact_early(patch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Let these modules plan to merge any two files."""
    for module in modules:
        patch.setattr(module, "plan_compaction", partial(plan_compaction, min_files=1))
