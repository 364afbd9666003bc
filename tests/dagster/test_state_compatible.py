"""The compatibility verdict as an asset check: found where the example and many jobs are defined, and right on what is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

import tidemark as tm
from examples.taxi.job import build_job
from tests.dagster.fake_engine import ENGINES, FakeTidemark, fake_resource
from tests.verdict.stored import record_of, stored_state
from tidemark.assets import StateFits, build_asset_checks, streaming_assets
from tidemark.control.model.spec import JobSpec
from tidemark.control.model.upgrade_records import Upgrade, UpgradeStep, create_step
from tidemark.errors import CorruptStoreError
from tidemark.graph.operators.window.node import WindowNode
from tidemark.resources.run_events import StreamingEvent
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.store.store import JobStore

pytestmark = pytest.mark.dagster

KEY = dg.AssetKey(["taxi", "hourly_tips"])


def taxi(folder: Path) -> tm.Job:
    """Return the example's job, with places of a test's own."""
    return build_job(folder / "landing", folder / "warehouse", store=folder / "store")


def changed(folder: Path, uid: str = "hourly-tips", **aggregates: tm.Aggregate) -> tm.Job:
    """Return a job of the example's name whose windows are others, or that knows them by another name."""
    trips = tm.source(
        "trips", tm.files(str(folder / "landing"), format="json", schema="zone INT, at TIMESTAMP"), watermarks=tm.ascending(timestamp="at")
    )
    hourly = trips.key_by("zone").window(tm.tumbling("2 hours")).aggregate(trips=tm.count(), **aggregates).uid(uid)
    return tm.Job("taxi", outputs={"hourly_tips": tm.memory(hourly, "hourly_tips")}, store=str(folder / "store"))


@pytest.fixture
def root(tmp_path: Path) -> JobStore:
    """Return a store in which the example's job has an epoch, and a savepoint of it."""
    found = JobStore.open(str(tmp_path / "store"))
    driver = JobLog(found.at("taxi"), "taxi").acquire(current_owner(""))
    nodes = [node for node in taxi(tmp_path).nodes if isinstance(node, WindowNode)]
    driver.append(replace(record_of(), operators={str(node.uid): stored_state(node) for node in nodes}))
    driver.release()
    SavepointStore(found, "taxi").take("before")
    return found


def check(job: tm.Job, *checks: StateFits) -> dict[str, dg.AssetCheckEvaluation]:
    """Make checks on their own, and return what they found, by name."""
    defs = dg.Definitions(assets=[dg.AssetSpec(KEY)], asset_checks=build_asset_checks(job, checks))
    result = defs.resolve_implicit_global_asset_job_def().execute_in_process()
    return {found.check_name: found for found in result.get_asset_check_evaluations()}


def test_the_example_has_the_check_on_the_results_of_both_of_its_jobs() -> None:
    from examples.taxi.definitions import defs

    keys = defs.get_repository_def().asset_graph.asset_check_keys
    shown = {key.asset_key.to_user_string() for key in keys if key.name == "state_fits"}
    assert shown == {"taxi/hourly_tips", "taxi_live/hourly_tips"}


def test_the_example_job_is_compatible_with_its_state_and_a_changed_one_is_not(tmp_path: Path, root: JobStore) -> None:
    assert SavepointStore(root, "taxi").get("before").record.operators, "there is state to be held against"
    both = (StateFits(), StateFits(against="before", name="goes_back"))
    for found in check(taxi(tmp_path), *both).values():
        assert (found.passed, found.description) == (True, "compatible with epoch 3 of lineage a1")
        assert found.metadata["tidemark/verdict"].value == "compatible"
    for name, found in check(changed(tmp_path), *both).items():
        assert (found.asset_key, found.passed, found.severity) == (KEY, False, dg.AssetCheckSeverity.ERROR)
        assert found.metadata["tidemark/against"].value == ("head" if name == "state_fits" else "before")
        assert str(found.description).startswith("incompatible with epoch 3 of lineage a1: hourly-tips: ")
        assert "Fix: " in str(found.description)
        assert "| operator | hourly-tips | incompatible |" in str(found.metadata["tidemark/findings"].value)


def test_renames_and_discarded_state_are_given_as_on_the_command_line(tmp_path: Path, root: JobStore) -> None:
    del root
    other = changed(tmp_path, "by-zone")
    dropped = check(other, StateFits())["state_fits"]
    assert "hourly-tips: the job has no operator of this uid" in str(dropped.description)
    assert check(other, StateFits(allow_non_restored_state=True))["state_fits"].passed
    # It takes the state over by its map, and then does not fit it: it is judged, and not only dropped.
    renamed = check(other, StateFits(uids={"hourly-tips": "by-zone"}))["state_fits"]
    assert str(renamed.description).startswith("incompatible with epoch 3 of lineage a1: by-zone: ")
    wrong = check(other, StateFits(uids={"hourly-tip": "by-zone"}), StateFits(against="gone", name="goes_back"))
    assert not any(found.passed for found in wrong.values())
    assert "the map of uids names 'hourly-tip', which has no stored state" in str(wrong["state_fits"].description)
    assert "gone" in str(wrong["goes_back"].description)


def test_a_job_without_state_is_compatible(tmp_path: Path) -> None:
    found = check(taxi(tmp_path), StateFits())["state_fits"]
    assert (found.passed, found.description) == (True, "nothing is stored of taxi yet")
    assert not check(taxi(tmp_path), StateFits(against="before"))["state_fits"].passed


def test_damaged_state_gives_no_verdict(tmp_path: Path, root: JobStore) -> None:
    folder = root.at("taxi")
    for file in folder.list("log"):
        folder.put(file.path, b"torn")
    with pytest.raises(CorruptStoreError):
        check(taxi(tmp_path), StateFits())


def test_the_check_does_not_roll_back_an_upgrade_under_way(tmp_path: Path, root: JobStore) -> None:
    specs = JobSpec("taxi", "taxi:job"), JobSpec("taxi", "taxi_v2:job")
    step = UpgradeStep(1, "watching", 0, "ada", Upgrade("upgrade-1", "taxi", *specs, "before-upgrade-1", 0))
    create_step(root, step)
    found = check(changed(tmp_path), StateFits())["state_fits"]
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "An upgrade is under way: upgrade upgrade-1 is watching" in str(found.description)
    create_step(root, replace(step, number=2, step="done"))
    assert check(changed(tmp_path), StateFits())["state_fits"].severity == dg.AssetCheckSeverity.ERROR


@pytest.mark.parametrize("code", [taxi, changed], ids=["example", "changed"])
def test_executing_the_checks_of_a_job_that_is_drained_runs_nothing(tmp_path: Path, root: JobStore, code: object) -> None:
    from examples.taxi.definitions import CHECKS

    del root
    job = code(tmp_path) if callable(code) else None
    assert isinstance(job, tm.Job)
    ours: Sequence[StateFits] = [found for found in CHECKS if isinstance(found, StateFits)]

    @streaming_assets(job=job, checks=ours)
    def drained(context: dg.AssetExecutionContext, tidemark: FakeTidemark) -> Iterator[StreamingEvent]:
        yield from tidemark.run(context=context)

    selection = dg.AssetSelection.checks(dg.AssetCheckKey(KEY, "state_fits"))
    result = dg.materialize([drained], selection=selection, resources={"tidemark": fake_resource(tmp_path / "store")})
    (found,) = result.get_asset_check_evaluations()
    assert found.passed == (code is taxi)
    assert ENGINES[str(tmp_path / "store")].runs == []
    assert not result.get_asset_materialization_events()
