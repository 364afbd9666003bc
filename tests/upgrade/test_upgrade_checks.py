"""Checks that an upgrade waits for, or that fail while its new code is watched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.upgrade.upgrade_worlds import JOB, NEW, UpgradeWorld
from tidemark.control.alerts.engine.alert_checks import CheckVerdict, report_check
from tidemark.control.model.upgrade_records import UpgradeCheck, newest_step, report_upgrade_check
from tidemark.errors import InvalidNameError, NotReachedError

TEN_MINUTES = 600_000


def test_checks_have_their_word(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    world.begin(checks=("rows",))
    upgrading = world.upgrading()
    with pytest.raises(NotReachedError, match=r"check rows has not passed.*heading for done"):
        upgrading.resume(JOB, timeout_ms=5_000)
    step = newest_step(world.store, JOB)
    assert step is not None
    report_upgrade_check(world.store, JOB, UpgradeCheck(step.upgrade.identity, "rows", passed=True, at=world.clock.now_ms()))
    report_check(world.store, CheckVerdict(JOB, "old", passed=False, at=step.at - 1, text="before"))
    report_check(world.store, CheckVerdict(JOB, "mild", passed=False, at=step.at + 1, severity="warn", text="mild"))
    assert upgrading.resume(JOB, timeout_ms=TEN_MINUTES).step == "done"
    # What anybody reports to the alerts counts as well.
    world.begin(code="fares_v3:job", version="3", good_epochs=10_000)
    with pytest.raises(NotReachedError, match="good epochs"):
        upgrading.resume(JOB, timeout_ms=5_000)
    report_check(world.store, CheckVerdict(JOB, "balance", passed=False, at=world.clock.now_ms(), text="7 rows are missing"))
    end = upgrading.resume(JOB, timeout_ms=TEN_MINUTES)
    assert (end.step, end.reason) == ("rolled-back", "failed: check balance (7 rows are missing)")
    assert world.spec.code == NEW


def test_a_name_that_no_check_can_have_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path).started()
    with pytest.raises(InvalidNameError, match="check name 'hourly/rows' is not allowed"):
        world.begin(checks=("rows", "hourly/rows"))
    assert newest_step(world.store, JOB) is None


def test_a_check_that_passes_elsewhere_counts_as_one_that_has_to(tmp_path: Path) -> None:
    """Such as an asset check of Dagster's, which knows nothing of the upgrade."""
    world = UpgradeWorld(tmp_path).started()
    world.begin(checks=("hourly.rows",))
    report_check(world.store, CheckVerdict(JOB, "hourly.rows", passed=True, at=world.clock.now_ms()))
    upgrading = world.upgrading()
    with pytest.raises(NotReachedError, match=r"check hourly\.rows has not passed"):
        upgrading.resume(JOB, timeout_ms=5_000)
    step = newest_step(world.store, JOB)
    assert step is not None
    report_check(world.store, CheckVerdict(JOB, "hourly.rows", passed=True, at=step.at - 1))
    with pytest.raises(NotReachedError, match=r"check hourly\.rows has not passed"):
        upgrading.resume(JOB, timeout_ms=1_000)
    report_check(world.store, CheckVerdict(JOB, "hourly.rows", passed=True, at=step.at + 1))
    assert upgrading.resume(JOB, timeout_ms=TEN_MINUTES).step == "done"
    # What fails after it passed counts, too.
    world.begin(code="fares_v3:job", version="3", checks=("hourly.rows",), good_epochs=10_000)
    with pytest.raises(NotReachedError):
        upgrading.resume(JOB, timeout_ms=5_000)
    now = world.clock.now_ms()
    report_check(world.store, CheckVerdict(JOB, "hourly.rows", passed=True, at=now))
    report_check(world.store, CheckVerdict(JOB, "hourly.rows", passed=False, at=now + 1, text="7 rows are missing"))
    assert upgrading.resume(JOB, timeout_ms=TEN_MINUTES).reason == "failed: check hourly.rows (7 rows are missing)"
