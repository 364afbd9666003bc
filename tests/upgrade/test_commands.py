"""``tidemark upgrade`` and ``promote`` as they are typed; the new code is judged in a process of its own, and nothing is started."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.docs.page_commands import require_understood
from tests.savepoints.delta_jobs import job_with_tables, run_epoch
from tests.upgrade.upgrade_worlds import JOB, NEW, OLD, UpgradeWorld, fits
from tidemark.cli.program.main import main
from tidemark.control.forks.forks import fork
from tidemark.control.forks.promoting import promotion_of
from tidemark.control.model.spec import JobSpec
from tidemark.control.upgrade.code_check import Maps, judge_code
from tidemark.control.upgrade.upgrade_request import begin_upgrade
from tidemark.errors import UpgradeError
from tidemark.savepoints.core.savepoint_store import SavepointStore

CODE = """
import os
import tidemark as tm

rows = tm.from_elements([], schema="timestamp TIMESTAMP")
trips = tm.source("trips", rows, watermarks=tm.ascending(timestamp="timestamp"))
counts = trips.window_all(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("hourly" + os.environ.get("SUFFIX", ""))
job = tm.Job(os.environ.get("NAME", "taxi"), outputs={"hourly": tm.memory(counts, "hourly")})
"""


def type_in(*words: str, store: str) -> Result:
    return CliRunner().invoke(main, [*words, "--store", store])


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "taxi_v2.py").write_text(CODE)
    return folder


def test_code_is_judged_where_its_driver_would_find_it(tmp_path: Path, code: Path) -> None:
    made = job_with_tables(tmp_path)
    run_epoch(made)
    spec = JobSpec("taxi", "taxi_v2:job", code_paths=(str(code),), variables={"SUFFIX": "-new"})
    found = judge_code(made.root, spec, Maps())
    assert {each.uid: each.status for each in found.operators} == {"hourly": "dropped", "hourly-new": "new"}
    assert not found.fits
    assert judge_code(made.root, spec, Maps(allow_non_restored_state=True)).fits
    with pytest.raises(UpgradeError, match="hourly-other"):
        judge_code(made.root, spec, Maps({"hourly": "hourly-other"}))
    with pytest.raises(UpgradeError, match="is job 'cabs', not 'taxi'"):
        judge_code(made.root, JobSpec("taxi", "taxi_v2:job", code_paths=(str(code),), variables={"NAME": "cabs"}), Maps())
    with pytest.raises(UpgradeError, match="No module named 'taxi_v3'"):
        judge_code(made.root, JobSpec("taxi", "taxi_v3:job"), Maps())


def test_a_job_that_only_drains_gets_a_verdict_a_savepoint_and_a_command_to_paste(
    tmp_path: Path, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = job_with_tables(tmp_path)
    run_epoch(made)
    store = str(tmp_path / "store")
    words = ("upgrade", "taxi", "--code", "taxi_v2:job", "--code-path", str(code), "--env", "SUFFIX=-new")
    refused = type_in(*words, store=store)
    assert refused.exit_code == 1
    assert "the stored state does not fit the job" in refused.output
    assert made.savepoints.list() == ()
    said = type_in(*words, "--allow-non-restored-state", store=store)
    assert said.exit_code == 0, said.output
    (taken,) = made.savepoints.list()
    assert taken.info.kind == "before-upgrade"
    runs, back = re.findall("`(.+?)`", said.output)
    assert shlex.split(runs) == [
        *("SUFFIX=-new", f"PYTHONPATH={code}", "tidemark", "run", "taxi_v2:job", "--restore", taken.name),
        *("--allow-non-restored-state", "--store", store),
    ]
    assert shlex.split(back) == ["tidemark", "rewind", "taxi", "--to", taken.name, "--store", store]
    for line in (runs.partition("tidemark ")[2], back.removeprefix("tidemark ")):
        require_understood(line)
    monkeypatch.setenv("TIDEMARK_STORE", store)
    there = ("--folder", str(code), "--env", "SUFFIX=-new", "--allow-non-restored-state")
    plain = type_in("upgrade", "taxi", "--code", "taxi_v2:job", *there, store=store)
    assert f"`cd {code} && SUFFIX=-new tidemark run taxi_v2:job --restore " in plain.output
    assert "--store" not in plain.output, "the environment says where"
    nothing = type_in("upgrade", "taxi", store=store)
    assert (nothing.exit_code, "no upgrade of the job was begun" in nothing.output) == (1, True)


def test_the_old_name_of_the_code_is_understood_for_a_release_and_not_shown(tmp_path: Path, code: Path) -> None:
    made = job_with_tables(tmp_path)
    run_epoch(made)
    words = ("upgrade", "taxi", "--to", "taxi_v2:job", "--code-path", str(code), "--env", "SUFFIX=-new", "--allow-non-restored-state")
    store = str(tmp_path / "store")
    both = type_in(*words, "--code", "taxi_v2:job", store=store)
    assert (both.exit_code, "--to is the old name of --code" in both.output) == (1, True)
    prepared = type_in(*words, store=store)
    assert prepared.exit_code == 0, prepared.output
    assert "tidemark run taxi_v2:job --restore" in prepared.stdout
    assert prepared.stderr == "--to is now --code, as for `tidemark fork`; the next release will not accept --to\n"
    assert "--to " not in type_in("upgrade", "--help", store=store).output


def test_status_says_where_an_upgrade_is_heading_for(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path, on_disk=True).started()
    store = str(tmp_path / "store")
    world.begin()
    assert "is stopping, heading for fares_v2:job version 2" in type_in("status", JOB, store=store).output
    aborted = type_in("upgrade", JOB, "--abort", "--no-wait", "--why", "a mistake", store=store)
    assert "is reverting, heading for fares:job (aborted by" in aborted.output
    assert f"{JOB}: upgrading, " in type_in("status", JOB, store=store).output
    assert "upgrading (reverting, for fares:job)  " in type_in("list", store=store).output
    for words in (("status", JOB, "--json"), ("list", "--json")):
        view = json.loads(type_in(*words, store=store).output)
        assert (view["lifecycle"], view["driver_lifecycle"]) == ("upgrading", "running")
        assert (view["upgrade"]["step"], view["upgrade"]["heading"], view["upgrade"]["code"]) == ("reverting", "rolled-back", OLD)
    both = type_in("upgrade", JOB, "--abort", "--accept", store=store)
    assert "exclude one another" in both.output
    world.upgrading().resume(JOB, timeout_ms=600_000)
    assert "heading" not in type_in("status", JOB, store=store).output
    view = json.loads(type_in("status", JOB, "--json", store=store).output)
    assert (view["lifecycle"] == "upgrading", view["upgrade"]["step"]) == (False, "rolled-back")


def test_a_fork_takes_the_jobs_place_in_its_tables(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path, on_disk=True).started()
    with pytest.raises(UpgradeError, match="is not a fork"):
        promotion_of(world.store, JOB)
    SavepointStore(world.store, JOB, world.clock).take("good", epoch=1)
    world.want(version="1")
    fork(world.store, JOB, "good", name="what-if", code=NEW, start=False, clock=world.clock, judge=fits)
    # The label is of the job's code; an earlier release gave it to the fork, too.
    world.want("what-if", version="1")
    begin_upgrade(world.store, promotion_of(world.store, "what-if"), launchers=world.launchers, clock=world.clock, judge=fits)
    end = world.upgrading().resume(JOB, timeout_ms=600_000)
    assert (end.step, world.spec.version) == ("done", "")
    assert world.rows() == [(0, OLD), (1, OLD), (2, NEW), (3, NEW), (4, NEW)]
    assert world.spec.outputs_root is None


def test_a_promotion_may_have_a_label_and_checks_of_its_own(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path, on_disk=True).started()
    SavepointStore(world.store, JOB, world.clock).take("good", epoch=1)
    world.want(version="1")
    fork(world.store, JOB, "good", name="what-if", code=NEW, start=False, clock=world.clock, judge=fits)
    request = promotion_of(world.store, "what-if", version="2", checks=("sums",), within_ms=30_000)
    begin_upgrade(world.store, request, launchers=world.launchers, clock=world.clock, judge=fits)
    end = world.upgrading().resume(JOB, timeout_ms=600_000)
    assert (end.step, "sums" in end.reason) == ("rolled-back", True), "nobody ran the check"
    assert (world.spec.code, world.spec.version) == (OLD, "1")
    world.want("what-if", version="1.1")
    assert promotion_of(world.store, "what-if").version == "1.1"


def test_a_fork_that_does_not_prove_itself_leaves_the_job_as_it_was(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path, on_disk=True, breaks_at=3).started()
    SavepointStore(world.store, JOB, world.clock).take("good", epoch=1)
    fork(world.store, JOB, "good", name="what-if", code=NEW, start=False, clock=world.clock, judge=fits)
    begin_upgrade(world.store, promotion_of(world.store, "what-if"), launchers=world.launchers, clock=world.clock, judge=fits)
    assert world.upgrading().resume(JOB, timeout_ms=600_000).step == "rolled-back"
    assert world.rows() == [(epoch, OLD) for epoch in range(4)]
    assert world.spec.code == OLD


def test_code_behind_the_jobs_name_gets_a_hint_at_the_option(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["upgrade", "shop", "fares:job", "--store", str(tmp_path)])
    assert done.exit_code == 2
    assert "unexpected extra argument (fares:job). The new code is an option: --code fares:job" in done.output
    other = CliRunner().invoke(main, ["upgrade", "shop", "again", "--store", str(tmp_path)])
    assert (other.exit_code, "--code" in other.output) == (2, False)
