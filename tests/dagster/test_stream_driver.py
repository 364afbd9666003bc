"""A continuous job that is YAML alone, for real: drivers outside Dagster, a savepoint, a verdict, an upgrade to a changed YAML, a fork.

The drivers are those of ``spark-submit``; of the last test local ones, with a standby.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner, Result
from dagster.components.testing.utils import DefsFolderSandbox, create_defs_folder_sandbox
from deltalake import DeltaTable

import tidemark as tm
from tests.control.attached_driver import attach_drivers
from tests.control.drivers import until
from tests.control.test_standby import ready_standby
from tests.dagster.instances import temporary_instance
from tests.dagster.sandboxes import MARKS
from tests.few_rows import FEW_ROWS
from tests.repeated import repeated
from tests.seeds import only_long
from tidemark.cli.program.main import main
from tidemark.clock import SYSTEM_CLOCK
from tidemark.components import TidemarkStreamComponent
from tidemark.control import JobSpec, launchers_here, observe, read_spec, upgrading_reconciler
from tidemark.control.driver.driver import FINISHED
from tidemark.control.launch.local_launcher import LocalLauncher
from tidemark.control.launch.processes import session_members
from tidemark.control.launch.run_folder import run_folder
from tidemark.control.launch.spark_submit import SparkSubmitLauncher
from tidemark.operations import build_job_definitions
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.state.status.status import read_status
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORK = "rides-what-if"

pytestmark = [*MARKS, pytest.mark.spark, pytest.mark.slow]


@dataclass
class Rides:
    """A project whose only job is YAML, and the files that land for it: each ends the windows before it."""

    sandbox: DefsFolderSandbox
    instance: dg.DagsterInstance
    root: Path
    defs: Path
    landed: int = field(default=0)

    @property
    def store(self) -> JobStore:
        return JobStore.open(str(self.root / "jobs"))

    def land(self) -> None:
        """Let a file land, with two rides of one hour, one of them for nothing."""
        rides = [{"zone": 1, "fare": fare, "at": f"2026-11-{1 + self.landed // 24:02}T{self.landed % 24:02}:05:00Z"} for fare in (0.0, 5.0)]
        unseen = self.root / f"{self.landed}.json"
        unseen.write_text("".join(json.dumps(ride) + "\n" for ride in rides))
        unseen.rename(self.root / "landing" / unseen.name)
        self.landed += 1

    def change(self, old: str, new: str) -> None:
        """Change the YAML."""
        path = self.defs / "defs.yaml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    @property
    def file(self) -> str:
        return str(self.defs / "defs.yaml")

    def operate(self, job: str = "rides", **do: Mapping[str, object]) -> dict[str, object]:
        """Launch an operation of the component's Dagster job, and return what its output says."""
        with self.sandbox.load_component_and_build_defs(self.defs) as (_, definitions):
            return self._launch(definitions, {"job": job, "do": do})

    def operate_in_python(self, *, standby: bool = False, **do: Mapping[str, object]) -> dict[str, object]:
        """Do the same with definitions in Python that name the file, and want a local driver."""

        def spec(code: str, job: tm.Job) -> JobSpec:
            return JobSpec(job.name, code, trigger_ms=300, parallelism=2, master="local[2]", conf=FEW_ROWS, standby=standby)

        definitions = build_job_definitions(self.file, continuous=True, store=self.store.uri, spec=spec, alert_key=None)
        return self._launch(definitions, {"do": do})

    def _launch(self, definitions: dg.Definitions, config: Mapping[str, object]) -> dict[str, object]:
        run_config = {"ops": {"operate_rides": {"config": config}}}
        result = definitions.resolve_job_def("rides_operate").execute_in_process(run_config=run_config, instance=self.instance)
        (output,) = (event.step_output_data for event in result.all_events if event.event_type_value == "STEP_OUTPUT")
        return {key.removeprefix("tidemark/"): value.value for key, value in output.metadata.items()}

    def table(self, path: str = "hourly") -> list[dict[str, object]]:
        """Return the rows of the main output, oldest first."""
        if not (self.root / path / "_delta_log").exists():
            return []
        rows = DeltaTable(self.root / path).to_pyarrow_table(columns=["window_start", "rides", "fares"]).to_pylist()
        return sorted(rows, key=lambda row: str(row["window_start"]))

    def wait_for_all(self, path: str = "hourly", *, but: int = 0) -> list[int]:
        """Wait until all windows that ended are in a table, and return their numbers of rides, oldest first."""
        until(lambda: len(self.table(path)) == self.landed - 1 - but, "the rest")
        return [int(str(row["rides"])) for row in self.table(path)]

    def tidemark(self, *arguments: str) -> Result:
        """Run the command, in the folder of the project and in this process: what it runs, it runs in the session of the tests."""
        with chdir(self.root):
            return CliRunner().invoke(main, arguments)


@pytest.fixture
def rides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rides]:
    monkeypatch.setenv("TIDEMARK_LOGS", str(tmp_path / "logs"))
    (tmp_path / "landing").mkdir()
    with create_defs_folder_sandbox() as sandbox, temporary_instance() as instance:
        params = {"continuous": True, "store": str(tmp_path / "jobs")}
        defs = sandbox.scaffold_component(component_cls=TidemarkStreamComponent, defs_path="rides", scaffold_params=params)
        document = yaml.safe_load((defs / "defs.yaml").read_text())
        attributes = document["attributes"]
        attributes["driver"] = {"trigger": "300 milliseconds", "master": "local[2]", "conf": dict(FEW_ROWS), "parallelism": 2}
        attributes["driver"]["launcher"] = "spark-submit"
        attributes["sources"]["rides"]["files"]["path"] = str(tmp_path / "landing")
        attributes["outputs"] = {name: {"input": name, "delta": {"path": str(tmp_path / name)}} for name in ("hourly", "late", "malformed")}
        (defs / "defs.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
        made = Rides(sandbox, instance, tmp_path, defs)
        yield made
        for job in ("rides", FORK):
            seen = observe(made.store, job, launchers_here())
            if seen.handle is not None:
                launchers_here()[seen.handle.launcher].kill(seen.handle)


def test_a_life_in_yaml_alone(rides: Rides, spark: SparkSession, jvm: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    # The first driver is that of ``spark-submit``; those after it differ in what they are to do.
    attach_drivers(monkeypatch, SparkSubmitLauncher, jvm, first=2)
    start_and_upgrade(rides)
    rides.change("fare > 0", "fare >= 0")
    rides.operate(fork={"savepoint": "good", "code": rides.file, "start": False})
    require_fork(rides)
    rides.operate(discard={"fork": FORK})
    assert FORK not in rides.store.folders()
    rides.change("fare >= 0", "fare > 0")
    rewound = rides.operate(rewind={"savepoint": "good", "dry_run": False})
    assert rewound["savepoint"] == "good", rewound
    # Three hours were read before the savepoint. What came since is read again, all of it by the changed YAML.
    assert rides.wait_for_all() == [2, 2, 2, *[1] * (rides.landed - 4)]
    stop_and_run(rides, spark)


@only_long
def test_a_fork_a_rewind_and_another_parallelism(rides: Rides, spark: SparkSession) -> None:
    start_and_upgrade(rides)
    try_in_a_fork_and_promote(rides)
    rewind_and_rescale(rides)
    stop_and_run(rides, spark)


def start_and_upgrade(rides: Rides) -> None:
    """Start the job by ``spark-submit``, take the savepoint ``good``, and upgrade to a YAML that counts no free rides."""
    for _ in range(3):
        rides.land()
    started = rides.operate(start={})
    assert (started["lifecycle"], int(str(started["attempt"]))) == ("running", 1)
    until(lambda: len(rides.table()) == 2, "two hours")
    assert [(row["rides"], row["fares"]) for row in rides.table()] == [(2, 5.0), (2, 5.0)]
    spec = read_spec(rides.store, "rides")
    assert spec is not None
    assert spec.spec.code == f"{rides.file}:rides"

    rides.operate(savepoint={"name": "good"})
    assert SavepointStore(rides.store, "rides").get("good").record.epoch >= 0

    # Another key does not fit the state; a filter does.
    rides.change("- zone", "- fare")
    check = rides.tidemark("check", rides.file)
    assert check.exit_code == 1, check.output
    assert "hourly" in check.stdout
    with pytest.raises(Exception, match="hourly"):
        rides.operate(upgrade={"code": rides.file, "good_epochs": 1})
    rides.change("- fare", "- zone")
    rides.change("fare >= 0", "fare > 0")
    check = rides.tidemark("check", rides.file)
    assert check.exit_code == 0, check.output

    before = len(rides.table())
    with repeated(rides.land, every=2):
        rides.operate_in_python(upgrade={"code": rides.file, "good_epochs": 2, "why": "free rides are not counted"})
    counts = rides.wait_for_all()
    assert set(counts[:before]) == {2}, "what was there stays"
    assert counts[-1] == 1, "the driver has the changed YAML"
    assert counts == sorted(counts, reverse=True)
    upgraded = read_spec(rides.store, "rides")
    assert upgraded is not None
    assert (upgraded.spec.code, '"fare > 0"' in str(upgraded.spec.definition)) == (spec.spec.code, True)


def stop_and_run(rides: Rides, spark: SparkSession) -> None:
    stopped = rides.operate(stop={"why": "enough"})
    assert (stopped["lifecycle"], stopped["wanted"]) == ("suspended", "suspended")
    assert spark.getActiveSession() is not None, "the command that runs takes the session that is there"
    ran = rides.tidemark("run", rides.file, "--conf", "spark.ui.enabled=false")
    assert ran.exit_code == 0, (ran.output, ran.exception)
    assert ran.stdout.startswith("rides: "), "the same state, run in a terminal"


def require_fork(rides: Rides) -> None:
    forked = read_spec(rides.store, FORK)
    assert forked is not None
    assert (forked.spec.launcher, forked.spec.code, '"fare >= 0"' in str(forked.spec.definition)) == (
        "spark-submit",
        f"{rides.file}:rides",
        True,
    )


def try_in_a_fork_and_promote(rides: Rides) -> None:
    """Count free rides again: in a fork from the savepoint, whose tables differ, then in the job itself, since the savepoint."""
    counts = [int(str(row["rides"])) for row in rides.table()]
    rides.change("fare > 0", "fare >= 0")
    rides.operate(fork={"savepoint": "good", "code": rides.file})
    require_fork(rides)
    assert set(rides.wait_for_all(f"jobs/{FORK}/outputs/hourly", but=2)) == {2}
    compared = rides.operate(diff={"output": "hourly"})
    assert (compared["changed"], compared["equal"]) == (counts.count(1), False)
    with repeated(rides.land, every=1):
        rides.operate(promote={"good_epochs": 1})
    assert set(rides.wait_for_all()) == {2}
    rides.operate(job=FORK, stop={})
    rides.operate(discard={"fork": FORK})
    assert FORK not in rides.store.folders()


def rewind_and_rescale(rides: Rides) -> None:
    rewound = rides.operate(rewind={"savepoint": "good", "dry_run": False})
    assert rewound["savepoint"] == "good", rewound
    assert set(rides.wait_for_all()) == {2}, "what came since was read again"
    attempt = observe(rides.store, "rides", launchers_here()).attempt
    rides.operate(rescale={"parallelism": 3})
    rides.land()
    rides.wait_for_all()
    spec = read_spec(rides.store, "rides")
    assert spec is not None
    assert (spec.spec.parallelism, '"fare >= 0"' in str(spec.spec.definition)) == (3, True)
    assert observe(rides.store, "rides", launchers_here()).attempt == attempt, "by the same driver"


def test_a_standby_takes_over_a_job_in_yaml_that_python_started(
    rides: Rides, jvm: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The one that is killed; standbys have a JVM of their own.
    attach_drivers(monkeypatch, LocalLauncher, jvm)
    for _ in range(3):
        rides.land()
    assert rides.operate_in_python(standby=True, start={})["lifecycle"] == "running"
    assert rides.wait_for_all() == [2, 2]
    ready = ready_standby(run_folder(rides.store.uri, "rides").logs)
    killed = observe(rides.store, "rides", launchers_here()).handle
    assert killed is not None
    assert killed.pid is not None
    os.kill(killed.pid, signal.SIGKILL)
    rides.land()

    def taken_over() -> bool:
        upgrading_reconciler(rides.store, launchers_here(), SYSTEM_CLOCK).reconcile_all(["rides"])
        handle = observe(rides.store, "rides", launchers_here()).handle
        return handle is not None and handle.pid == ready.pid

    until(taken_over, "the standby")
    assert set(rides.wait_for_all()) == {2}
    assert len(session_members(ready.pid)) > 1, "the JVM is in the driver's session"
    taken = observe(rides.store, "rides", launchers_here()).handle
    assert taken is not None
    assert rides.operate_in_python(standby=True, stop={})["lifecycle"] == "suspended"
    assert launchers_here()["local"].exit_code(taken) == FINISHED
    until(lambda: session_members(ready.pid) == (), "the end of all that it started")
    status = read_status(rides.store, "rides")
    assert status is not None
    assert status.state == "stopped"
