"""Operations that compare and discard forks, hold code against savepoints first, and take a savepoint at the end; drivers are fakes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.dagster.instances import instance_in_memory
from tests.dagster.test_savepoint_ops import Launchpad
from tests.savepoints.stored_jobs import StoredJob
from tests.upgrade.upgrade_worlds import JOB, NEW, OLD, UpgradeWorld, fits
from tidemark.control.desired.spec_store import read_spec, require_spec
from tidemark.control.model.spec import JobSpec
from tidemark.control.upgrade.code_check import Maps
from tidemark.errors import DefinitionError, InvalidNameError, JobRunningError, NotReachedError, StateMismatchError
from tidemark.operations import control_jobs, savepoint_jobs
from tidemark.savepoints.model.verdict import Finding, OperatorVerdict, Verdict
from tidemark.state.log.records import OutputRecord
from tidemark.state.store.store import JobStore

pytestmark = pytest.mark.dagster

FORK = f"{JOB}-what-if"


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with instance_in_memory() as found:
        yield found


@pytest.fixture
def pad(tmp_path: Path, instance: dg.DagsterInstance) -> Launchpad:
    """Return the launchpad of a job of four epochs, with a savepoint of the second one."""
    instance.wipe_assets(list(instance.get_asset_keys()))
    made = Launchpad(tmp_path, instance, UpgradeWorld(tmp_path, on_disk=True).started())
    made.defs = dg.Definitions.merge(made.defs, control_jobs(made.job, launchers=lambda: made.world.launchers, clock=made.world.clock))
    made.launch("savepoint", name="good", epoch=1)
    return made


def forked(pad: Launchpad) -> StoredJob:
    """Return a fork that was launched, and began as its driver does; its code writes another row for epoch 2."""
    pad.launch("fork", savepoint="good", code=NEW, start=False)
    spec = require_spec(pad.world.store, FORK).spec
    assert spec.restore is not None
    made = StoredJob(pad.world.store, FORK, pad.world.clock, outputs={"hourly": OutputRecord("delta", f"{spec.outputs_root}/hourly")})
    made.restore(spec.restore)
    return made


def test_a_fork_is_compared_with_its_job_and_discarded(pad: Launchpad) -> None:
    fork = forked(pad)
    with pytest.raises(NotReachedError, match="still at epoch 1"):
        pad.launch("diff")
    write_deltalake(fork.outputs["hourly"].location or "", pa.table({"epoch": [2, 3], "code": [NEW, OLD]}))
    fork.commit()
    said = pad.launch("diff")
    counts = {name: said[name] for name in ("same", "added", "removed", "changed", "left_out")}
    assert (said["other"], said["equal"], counts) == (
        FORK,
        False,
        {"same": 1, "added": 1, "removed": 1, "changed": 0, "left_out": 2},
    )
    assert "hourly: 1 rows the same, 1 added, 1 removed" in str(said["rows"])
    assert f"code={NEW}" in str(said["rows"])
    by_key = pad.launch("diff", output="hourly", keys=["epoch"], samples=0)
    assert (by_key["changed"], f"code={NEW}" in str(by_key["rows"])) == (1, False)
    with pytest.raises(DefinitionError, match="has no table 'daily'"):
        pad.launch("diff", output="daily")

    with pytest.raises(DefinitionError, match=f"must name its fork.*Fix: .*{FORK}"):
        pad.launch("discard")
    with pytest.raises(DefinitionError, match="is not a fork"):
        pad.launch("discard", fork=JOB)
    for verb in ("discard", "promote"):
        with pytest.raises(DefinitionError, match=f"'{FORK}' is a fork of job '{JOB}'.*Fix: .*'rides'"):
            pad.launch(verb, fork=FORK, job="rides")
    with pytest.raises(JobRunningError):
        pad.launch("discard", fork=FORK)
    fork.driver.release()
    said = pad.launch("discard", fork=FORK)
    assert said["fork"] == FORK
    assert f"{pad.world.store.at(FORK).location}" in str(said["deleted"])
    assert FORK not in pad.world.store.folders()
    assert len(pad.world.rows()) == 4, "the job's own table is as it was"


def test_jobs_without_a_table_in_common_are_not_compared(pad: Launchpad) -> None:
    fork = forked(pad)
    fork.outputs = {"other": OutputRecord("delta", str(pad.folder / "other"))}
    fork.commit()
    with pytest.raises(DefinitionError, match="have no output that both write to a table"):
        pad.launch("diff")


def test_code_that_does_not_fit_the_savepoint_is_not_restored_or_forked(pad: Launchpad) -> None:
    asked: list[tuple[str, str, Maps, str, str]] = []

    def does_not(store: JobStore, spec: JobSpec, maps: Maps, against: str, of: str) -> Verdict:
        asked.append((spec.job, spec.code, maps, against, of))
        if maps.allow_non_restored_state:
            return fits(store, spec, maps, against, of)
        finding = Finding("the key is another", "incompatible", "40 rows", "give it another uid")
        return Verdict(spec.job, "a", 1, (OperatorVerdict("hourly", "hourly", "incompatible", (finding,)),), ())

    world = pad.world
    pad.defs = savepoint_jobs(pad.job, launchers=lambda: world.launchers, clock=world.clock, judge=does_not)
    before = require_spec(world.store, JOB)
    for verb, config in (("fork", {"code": NEW, "start": False}), ("restore", {"uids": {"hourly": "hourly"}})):
        with pytest.raises(StateMismatchError, match="the key is another"):
            pad.launch(verb, savepoint="good", **config)
    assert read_spec(world.store, FORK) is None
    assert require_spec(world.store, JOB) == before
    assert asked == [(FORK, NEW, Maps(), "good", JOB), (JOB, OLD, Maps({"hourly": "hourly"}), "good", JOB)]
    pad.launch("fork", savepoint="good", code=NEW, start=False, allow_non_restored_state=True)
    pad.launch("restore", savepoint="good", allow_non_restored_state=True, wait=False)
    assert pad.world.spec.restore is not None
    with pytest.raises(StateMismatchError):
        pad.launch("restore", job=FORK, savepoint="good", savepoint_of=JOB)
    assert asked[-1] == (FORK, NEW, Maps(), "good", JOB)


def test_a_job_is_stopped_with_a_savepoint_of_where_it_ended(pad: Launchpad) -> None:
    with pytest.raises(InvalidNameError, match="there is a savepoint 'good' already, and nothing was done"):
        pad.launch("stop", savepoint="good")
    with pytest.raises(DefinitionError, match="without `wait` the run does not wait"):
        pad.launch("stop", savepoint="rest", wait=False)
    assert pad.world.spec.wanted == "running"
    said = pad.launch("stop", savepoint="rest", why="the lake is moved")
    taken = pad.savepoints.get("rest")
    assert (said["lifecycle"], said["savepoint"], said["savepoint_kind"]) == ("suspended", "rest", "stop")
    assert (taken.record.epoch, taken.info.kind, taken.info.note) == (said["epoch"], "stop", "the lake is moved")
    assert "Dagster run" in taken.info.by
    (record,) = pad.instance.fetch_observations(dg.AssetKey([JOB, "hourly"]), limit=1).records
    assert record.asset_observation is not None
    assert record.asset_observation.metadata["tidemark/savepoint"].value == "rest"
    # Of another job, such as a fork, the savepoint is not observed on this one's assets.
    other = StoredJob(pad.world.store, "rides", pad.world.clock, outputs={"hourly": OutputRecord("delta", str(pad.folder / "rides"))})
    other.commit()
    pad.launch("savepoint", job="rides", name="theirs")
    newest = {key: pad.instance.fetch_observations(dg.AssetKey([key, "hourly"]), limit=1).records[0] for key in (JOB, "rides")}
    names = {
        key: record.asset_observation.metadata["tidemark/savepoint"].value for key, record in newest.items() if record.asset_observation
    }
    assert names == {JOB: "rest", "rides": "theirs"}
    pad.launch("start")
    assert str(pad.launch("stop", savepoint="")["savepoint"]).startswith("sp-"), "one without a name is given one"
    pad.launch("start")
    assert "savepoint" not in pad.launch("stop")
