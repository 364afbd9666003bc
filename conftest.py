"""Which files pytest looks into for examples in docstrings."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

EXAMPLE = ">>> "


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Leave out files without such an example: each worker imported and searched all files of the project."""
    found = yield
    if file_path.suffix == ".py" and EXAMPLE not in file_path.read_text(encoding="utf-8"):
        # Of examples there is a collector of another class, below that of tests.
        found = [collector for collector in found if type(collector) is pytest.Module]
    return found
