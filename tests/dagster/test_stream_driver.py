"""A continuous job that is YAML alone, for real: a driver outside Dagster, a savepoint, a verdict, an upgrade to a changed YAML."""

from __future__ import annotations

import json
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

from tests.control.drivers import until
from tests.dagster.instances import temporary_instance
from tests.dagster.sandboxes import MARKS
from tests.few_rows import FEW_ROWS
from tests.repeated import repeated
from tidemark.cli.program.main import main
from tidemark.components import TidemarkStreamComponent
from tidemark.control import launchers_here, observe, read_spec
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    def operate(self, **do: Mapping[str, object]) -> dict[str, object]:
        """Launch an operation of the Dagster job, and return what its output says."""
        with self.sandbox.load_component_and_build_defs(self.defs) as (_, definitions):
            config = {"ops": {"operate_rides": {"config": {"do": do}}}}
            result = definitions.resolve_job_def("rides_operate").execute_in_process(run_config=config, instance=self.instance)
        (output,) = (event.step_output_data for event in result.all_events if event.event_type_value == "STEP_OUTPUT")
        return {key.removeprefix("tidemark/"): value.value for key, value in output.metadata.items()}

    def table(self) -> list[dict[str, object]]:
        """Return the rows of the main output, oldest first."""
        if not (self.root / "hourly").exists():
            return []
        rows = DeltaTable(self.root / "hourly").to_pyarrow_table(columns=["window_start", "rides", "fares"]).to_pylist()
        return sorted(rows, key=lambda row: str(row["window_start"]))

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
        attributes["sources"]["rides"]["files"]["path"] = str(tmp_path / "landing")
        attributes["outputs"] = {name: {"input": name, "delta": {"path": str(tmp_path / name)}} for name in ("hourly", "late", "malformed")}
        (defs / "defs.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
        made = Rides(sandbox, instance, tmp_path, defs)
        yield made
        seen = observe(made.store, "rides", launchers_here())
        if seen.handle is not None:
            launchers_here()[seen.handle.launcher].kill(seen.handle)


def test_a_life_in_yaml_alone(rides: Rides, spark: SparkSession) -> None:
    assert spark.getActiveSession() is not None, "the command that runs takes the session that is there"
    for _ in range(3):
        rides.land()
    started = rides.operate(start={})
    assert (started["lifecycle"], int(str(started["attempt"]))) == ("running", 1)
    until(lambda: len(rides.table()) == 2, "two hours")
    assert [(row["rides"], row["fares"]) for row in rides.table()] == [(2, 5.0), (2, 5.0)]
    spec = read_spec(rides.store, "rides")
    assert spec is not None
    assert spec.spec.code == f"{rides.defs / 'defs.yaml'}:rides"

    rides.operate(savepoint={"name": "good"})
    assert SavepointStore(rides.store, "rides").get("good").record.epoch >= 0

    # Another key does not fit the state; a filter does.
    rides.change("- zone", "- fare")
    check = rides.tidemark("check", str(rides.defs / "defs.yaml"))
    assert check.exit_code == 1, check.output
    assert "hourly" in check.stdout
    with pytest.raises(Exception, match="hourly"):
        rides.operate(upgrade={"code": str(rides.defs / "defs.yaml"), "good_epochs": 1})
    rides.change("- fare", "- zone")
    rides.change("fare >= 0", "fare > 0")
    check = rides.tidemark("check", str(rides.defs / "defs.yaml"))
    assert check.exit_code == 0, check.output

    before = len(rides.table())
    with repeated(rides.land, every=1):
        rides.operate(upgrade={"code": str(rides.defs / "defs.yaml"), "good_epochs": 2, "why": "free rides are not counted"})
    until(lambda: len(rides.table()) >= rides.landed - 1, "the rest")
    counts = [int(str(row["rides"])) for row in rides.table()]
    assert set(counts[:before]) == {2}, "what was there stays"
    assert counts[-1] == 1, "the driver has the changed YAML"
    assert counts == sorted(counts, reverse=True)
    upgraded = read_spec(rides.store, "rides")
    assert upgraded is not None
    assert (upgraded.spec.code, '"fare > 0"' in str(upgraded.spec.definition)) == (spec.spec.code, True)

    stopped = rides.operate(stop={"why": "enough"})
    assert (stopped["lifecycle"], stopped["wanted"]) == ("suspended", "suspended")
    ran = rides.tidemark("run", str(rides.defs / "defs.yaml"), "--conf", "spark.ui.enabled=false")
    assert ran.exit_code == 0, (ran.output, ran.exception)
    assert ran.stdout.startswith("rides: "), "the same state, run in a terminal"
