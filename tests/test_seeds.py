"""Random cases are others in each run, and the same in all processes of one."""

from __future__ import annotations

import pytest

from tests import seeds


def test_processes_of_a_run_draw_the_same_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "REPEATABLE", False)
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "a run")
    drawn = seeds.new_seeds("sums", 3)
    assert seeds.new_seeds("sums", 3) == drawn
    assert seeds.new_seeds("others", 3) != drawn
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "another run")
    assert seeds.new_seeds("sums", 3) != drawn
    monkeypatch.delenv("PYTEST_XDIST_TESTRUNUID")
    assert seeds.new_seeds("sums", 3) != seeds.new_seeds("sums", 3)


def test_continuous_integration_draws_the_same_seeds_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "REPEATABLE", True)
    drawn = seeds.new_seeds("sums", 3)
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "a run")
    assert seeds.new_seeds("sums", 3) == drawn
