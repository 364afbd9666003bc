"""Operations by which changed code takes stored state over, launched with all that their forms offer; drivers are fakes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tests.dagster.instances import instance_in_memory
from tests.dagster.test_savepoint_ops import Launchpad
from tests.upgrade.upgrade_worlds import JOB, NEW, OLD, UpgradeWorld
from tidemark.control.desired.spec_store import require_spec
from tidemark.control.model.upgrade_records import newest_step
from tidemark.errors import DefinitionError, RewindError
from tidemark.savepoints.model.rewind_journal import read_rewind
from tidemark.savepoints.rewind import rewinding

pytestmark = pytest.mark.dagster

COLUMNS = {"per-hour": {"fares": "total", "tips": None}}


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with instance_in_memory() as found:
        yield found


@pytest.fixture
def pad(tmp_path: Path, instance: dg.DagsterInstance) -> Launchpad:
    """Return the launchpad of a job of six epochs, with a savepoint of the second one."""
    instance.wipe_assets(list(instance.get_asset_keys()))
    made = Launchpad(tmp_path, instance, UpgradeWorld(tmp_path, on_disk=True).started(epochs=6))
    made.launch("savepoint", name="base", epoch=1)
    return made


def test_a_restore_has_maps_a_mode_and_a_parallelism_and_waits_for_the_driver(pad: Launchpad) -> None:
    renames = {"uids": {"hourly": "per-hour"}, "columns": COLUMNS, "allow_non_restored_state": True}
    said = pad.launch("restore", savepoint="base", mode="claim", parallelism=7, **renames)
    restore = pad.world.spec.restore
    assert restore is not None
    assert (restore.savepoint, restore.mode, restore.job, restore.uids) == ("base", "claim", "", {"hourly": "per-hour"})
    assert (restore.columns, restore.allow_non_restored_state, pad.world.spec.parallelism) == (COLUMNS, True, 7)
    assert (said["lifecycle"], said["savepoint"]) == ("running", "base")
    head = pad.savepoints.pins.log.load().epoch
    assert head is not None
    assert head.restored is not None
    assert head.restored.identity == restore.identity, "the driver that was waited for has made it"
    pad.launch("savepoint", name="later")
    with pytest.raises(DefinitionError, match="did you mean 'per-hour'"):
        pad.launch("restore", savepoint="later", uids={"per-our": "hourly"})
    assert pad.world.spec.restore == restore, "nothing was asked for"


def test_a_restore_takes_another_job_s_savepoint(pad: Launchpad) -> None:
    pad.launch("fork", savepoint="base", code=NEW, start=False)
    pad.launch("restore", job="fares-what-if", savepoint="base", savepoint_of=JOB)
    spec = require_spec(pad.world.store, "fares-what-if").spec
    assert spec.restore is not None
    assert (spec.restore.job, spec.restore.savepoint, spec.wanted) == (JOB, "base", "suspended")


def test_a_fork_takes_over_what_was_renamed(pad: Launchpad) -> None:
    said = pad.launch("fork", savepoint="base", code=NEW, start=False, uids={"hourly": "per-hour"}, columns=COLUMNS)
    restore = require_spec(pad.world.store, str(said["fork"])).spec.restore
    assert restore is not None
    assert (restore.uids, restore.columns, restore.allow_non_restored_state) == ({"hourly": "per-hour"}, COLUMNS, False)
    assert "lifecycle" not in said, "one that is not to start is not waited for"


def test_an_upgrade_goes_back_to_a_savepoint_first(pad: Launchpad) -> None:
    said = pad.launch("upgrade", code=NEW, savepoint="base", uids={"hourly": "hourly"})
    assert (said["upgrade_end"], said["reason"]) == ("done", "3 good epochs")
    assert pad.world.rows()[:3] == [(0, OLD), (1, OLD), (2, NEW)]
    restore = pad.world.spec.restore
    assert restore is not None
    assert (restore.savepoint, restore.uids) == ("base", {"hourly": "hourly"})
    with pytest.raises(DefinitionError, match="`savepoint` requires `code`"):
        pad.launch("upgrade", savepoint="base")


def test_an_upgrade_that_is_only_begun_is_gone_on_with_by_others(pad: Launchpad) -> None:
    said = pad.launch("upgrade", code=NEW, folder=str(pad.folder), columns={"hourly": {"n": "rides"}}, wait=False)
    assert (said["upgrade_step"], said["code"], "upgrade_end" in said) == ("stopping", NEW, False)
    step = newest_step(pad.world.store, JOB)
    assert step is not None
    assert step.upgrade.after.folder == str(pad.folder)
    assert step.upgrade.after.restore is not None
    assert step.upgrade.after.restore.columns == {"hourly": {"n": "rides"}}
    assert pad.launch("upgrade", end="abort", wait=False)["upgrade_step"] == "reverting"
    with pytest.raises(dg.Failure, match="is rolled back"):
        pad.launch("upgrade")


def test_a_rewind_that_was_begun_is_given_up(pad: Launchpad, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RewindError, match="no rewind"):
        pad.launch("rewind", abort=True)
    with pytest.raises(DefinitionError, match="exclude one another"):
        pad.launch("rewind", abort=True, savepoint="base")
    pad.suspend()
    before = pad.world.rows()

    def dies(point: str) -> None:
        if point == "rewind-noted":
            raise RuntimeError(point)

    with monkeypatch.context() as patch:
        patch.setattr(rewinding, "crash_point", dies)
        with pytest.raises(RuntimeError, match="rewind-noted"):
            pad.launch("rewind", savepoint="base", dry_run=False)
    assert read_rewind(pad.world.store.at(JOB)) is not None
    pad.world.clock.advance(60_000)
    said = pad.launch("rewind", abort=True)
    assert (said["savepoint"], said["aborted"]) == ("base", True)
    assert read_rewind(pad.world.store.at(JOB)) is None
    assert pad.world.rows() == before


def test_a_savepoint_is_of_the_lineage_that_is_named(pad: Launchpad) -> None:
    before = pad.savepoints.get("base").record.lineage
    assert pad.launch("rewind", savepoint="base", dry_run=False)["lifecycle"] == "running"
    pad.launch("savepoint", name="older", epoch=1, lineage=before)
    pad.launch("savepoint", name="newer", epoch=1)
    assert pad.savepoints.get("older").record.lineage == before
    assert pad.savepoints.get("newer").record.lineage != before
