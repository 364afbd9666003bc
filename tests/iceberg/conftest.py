"""A catalog on local files for each test, which PyIceberg's configuration has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.iceberg.rig import CATALOG, Lake


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A catalog in SQLite with the namespace ``shop``; the variables that sinks read lead to it."""
    made = Lake(tmp_path / "lake")
    for name, value in made.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path / "nothing"))
    made.catalog().create_namespace("shop")
    assert CATALOG in made.location("orders")
    return made
