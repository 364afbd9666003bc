"""``TidemarkJobComponent`` in a sandbox of Dagster's: it loads from a description, and imports the job in runs only."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from inspect import signature
from pathlib import Path
from typing import Any, get_args

import dagster as dg
import pytest
import yaml
from dagster.components.testing.utils import DefsFolderSandbox, create_defs_folder_sandbox

from tests.dagster.sandboxes import MARKS, texts_of
from tidemark.assets import expectation_checks
from tidemark.components import TidemarkJobComponent
from tidemark.components.checks import CHECKS, CheckModel
from tidemark.errors import DefinitionError

pytestmark = MARKS

JOB = """
import tidemark as tm
rides = tm.source("rides", tm.files("{root}/landing", format="json", schema="zone INT, fare DOUBLE, at TIMESTAMP"),
                  watermarks=tm.bounded_out_of_orderness("5 minutes", timestamp="at"))
hourly = rides.key_by("zone").window(tm.tumbling("1 hour")).aggregate(fares=tm.sum("fare")).uid("hourly")
job = tm.Job("{name}", outputs={outputs}, owners=["team:data"])
"""
HOURLY = '{"hourly": tm.delta(hourly, "ROOT/hourly")}'


@dataclass(frozen=True)
class Project:
    """A project with one component, and the module of its job."""

    sandbox: DefsFolderSandbox
    defs: Path
    root: Path
    module: str

    def configure(self, **attributes: object) -> None:
        """Change the component's YAML."""
        document = yaml.safe_load((self.defs / "defs.yaml").read_text())
        document["attributes"] |= attributes
        (self.defs / "defs.yaml").write_text(yaml.safe_dump(document))

    def write_job(self, name: str = "rides", outputs: str = HOURLY) -> None:
        """Write the module of the job."""
        code = JOB.format(root=self.root, name=name, outputs=outputs.replace("ROOT", str(self.root)))
        (self.root / f"{self.module}.py").write_text(code)

    @contextmanager
    def load(self) -> Iterator[tuple[TidemarkJobComponent, dg.Definitions]]:
        """Load the component, and build its definitions."""
        with self.sandbox.load_component_and_build_defs(self.defs) as (component, definitions):
            assert isinstance(component, TidemarkJobComponent)
            yield component, definitions

    def refresh(self) -> None:
        """Describe the job, as ``dg utils refresh-defs-state`` does."""
        with self.load() as (component, _):
            asyncio.run(component.refresh_state(self.sandbox.project_root))

    def imported(self) -> set[str]:
        """Return which of the modules that loading must not import were imported."""
        return {name for name in sys.modules if name in {self.module, "pyspark", "py4j"}}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Project]:
    module = f"job_of_{request.node.name.partition('[')[0]}"
    monkeypatch.syspath_prepend(tmp_path)
    with create_defs_folder_sandbox() as sandbox:
        params = {"job": f"{module}:job", "store": str(tmp_path / "store")}
        defs = sandbox.scaffold_component(component_cls=TidemarkJobComponent, defs_path="rides", scaffold_params=params)
        made = Project(sandbox, defs, tmp_path, module)
        made.write_job()
        yield made
        sys.modules.pop(module, None)


def specs_of(definitions: dg.Definitions) -> Mapping[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}


def test_what_is_scaffolded_loads_and_says_that_nothing_was_described(project: Project) -> None:
    document = yaml.safe_load((project.defs / "defs.yaml").read_text())
    assert document["attributes"] == {"job": f"{project.module}:job", "store": str(project.root / "store"), "continuous": True}
    with project.load() as (_, definitions):
        (spec,) = specs_of(definitions).values()
        assert spec.key.path[0] == "broken"
        assert "dg utils refresh-defs-state" in (spec.description or "")
        (check,) = definitions.asset_checks or ()
        assert [key.name for key in check.check_keys] == ["code_loads"]
    assert project.module not in sys.modules


def test_a_described_job_loads_without_its_code_and_without_spark(project: Project) -> None:
    before = project.imported()
    project.refresh()
    with project.load() as (_, definitions):
        specs = specs_of(definitions)
        assert specs.keys() == {"rides", "rides/hourly"}
        hourly = specs["rides/hourly"]
        assert [column.name for column in hourly.metadata["dagster/column_schema"].columns][:2] == ["zone", "window_start"]
        assert hourly.metadata["dagster/column_lineage"].deps_by_column["fares"][0].column_name == "fare"
        assert hourly.owners == ["team:data"]
        assert {sensor.name for sensor in definitions.sensors or ()} == {
            "rides_progress", "rides_reconcile", "rides_job_health", "rides_checks"
        }  # fmt: skip
        assert {each.name for each in definitions.jobs or ()} == {"rides_operate", "rides_savepoint", "rides_maintenance"}
        definitions.get_repository_def().load_all_definitions()
    assert project.imported() - before == set()
    assert project.module not in sys.modules


def test_everything_can_be_set_in_yaml(project: Project) -> None:
    project.configure(
        translation={"key_prefix": ["lake"], "group_name": "streams", "tags": {"kind": "{{ data.kind }}"}, "owners": ["team:lake"]},
        checks=[{"type": "late_ratio", "error_above": 0.2}, {"type": "unique_panes", "output": "hourly", "blocking": True}],
        partitions={"hourly": {"type": "hourly", "start_date": "2026-01-01-00:00"}},
        driver={"trigger": "5 seconds", "conf": {"spark.ui.enabled": "false"}},
        savepoints=False,
        single_jobs=True,
        default_status="STOPPED",
    )
    project.refresh()
    with project.load() as (_, definitions):
        specs = specs_of(definitions)
        assert specs.keys() == {"lake/rides", "lake/rides/hourly"}
        hourly = specs["lake/rides/hourly"]
        assert (hourly.group_name, hourly.owners, hourly.tags["kind"]) == ("streams", ["team:lake"], "main")
        assert [dep.asset_key.to_user_string() for dep in hourly.deps] == ["lake/rides"]
        assert isinstance(hourly.partitions_def, dg.HourlyPartitionsDefinition)
        names = {key.name for check in definitions.asset_checks or () for key in check.check_keys}
        assert names == {"job_runs", "late_ratio", "unique_panes"}
        assert "rides_start" in {each.name for each in definitions.jobs or ()}
        assert {sensor.default_status for sensor in definitions.sensors or ()} == {dg.DefaultSensorStatus.STOPPED}


def test_two_components_of_one_store_load_together(project: Project) -> None:
    project.refresh()
    other = project.root / "job_of_fares.py"
    other.write_text((project.root / f"{project.module}.py").read_text().replace('Job("rides"', 'Job("fares"').replace("/hourly", "/fares"))
    fares = {"job": "job_of_fares:job", "store": str(project.root / "store")}
    second = project.sandbox.scaffold_component(component_cls=TidemarkJobComponent, defs_path="fares", scaffold_params=fares)
    Project(project.sandbox, second, project.root, "job_of_fares").configure(source_assets=False)
    Project(project.sandbox, second, project.root, "job_of_fares").refresh()
    with project.sandbox.build_all_defs() as definitions:
        assert specs_of(definitions).keys() == {"rides", "rides/hourly", "fares/hourly"}
        definitions.get_repository_def().load_all_definitions()


def test_a_run_imports_the_job_and_reports_its_outputs(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.configure(continuous=False)
    project.refresh()
    ran: list[object] = []

    def run(job: Any, **_: object) -> Any:
        ran.append(job)
        return type("Result", (), {"lineage": "a", "epochs": (), "head": None})

    monkeypatch.setattr("tidemark.spark.run", run)
    monkeypatch.setattr("tidemark.resources.runner.session_of", lambda _: None)
    with project.load() as (_, definitions), dg.DagsterInstance.ephemeral() as instance:
        assert project.module not in sys.modules
        assets = definitions.resolve_assets_def(dg.AssetKey(["rides", "hourly"]))
        made = dg.materialize([assets], instance=instance, selection=["rides/hourly"], raise_on_error=False)
        assert project.module in sys.modules
        (job,) = ran
        assert job is sys.modules[project.module].job
        assert [event.asset_key for event in made.get_asset_materialization_events()] == [dg.AssetKey(["rides", "hourly"])]


def test_a_run_of_a_job_that_changed_says_what_to_do(project: Project) -> None:
    project.configure(continuous=False)
    project.refresh()
    for name, outputs, said in (
        ("fares", HOURLY, "was job 'rides' when it was described, and is 'fares' now"),
        ("rides", '{"nightly": tm.delta(hourly, "ROOT/hourly")}', "'hourly' is gone, 'nightly' is new"),
    ):
        project.write_job(name, outputs)
        sys.modules.pop(project.module, None)
        with project.load() as (_, definitions), dg.DagsterInstance.ephemeral() as instance:
            assets = definitions.resolve_assets_def(dg.AssetKey(["rides", "hourly"]))
            with pytest.raises(DefinitionError, match=rf"{said}.*Fix: run `dg utils refresh-defs-state`, then reload"):
                dg.materialize([assets], instance=instance)


def test_a_job_that_cannot_be_described_says_why(project: Project) -> None:
    (project.root / f"{project.module}.py").write_text("import nothing_of_that_name\n")
    with pytest.raises(DefinitionError, match="No module named 'nothing_of_that_name'"):
        project.refresh()


def test_development_describes_the_job_and_loads_also_where_that_fails(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_IS_DEV_CLI", "1")
    with project.load() as (_, definitions):
        assert specs_of(definitions).keys() == {"rides", "rides/hourly"}
    (project.root / f"{project.module}.py").write_text("import nothing_of_that_name\n")
    with project.load() as (_, definitions):
        (spec,) = specs_of(definitions).values()
        assert spec.key.path[0] == "broken"
        assert "nothing_of_that_name" in (spec.description or "").replace("\\", "")
    assert project.module not in sys.modules


def test_a_damaged_description_does_not_keep_the_location_from_loading(project: Project) -> None:
    project.refresh()
    (state,) = (path for path in project.sandbox.project_root.rglob("state") if path.is_file())
    for damaged in (b'{"format": 99}\n', b'{"format"', b"\xff\xfe\x00"):
        state.write_bytes(damaged)
        with project.load() as (_, definitions):
            (spec,) = specs_of(definitions).values()
            assert "dg utils refresh-defs-state" in (spec.description or ""), damaged


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"job": "rides"}, "MODULE:JOB"),
        ({"colour": "red"}, "colour"),
        ({"checks": [{"type": "conservation", "outputs": "x"}]}, "outputs"),
        ({"checks": [{"type": "tidy"}]}, "tidy"),
        ({"partitions": {"type": "static", "partition_keys": ["a"]}}, "static"),
        ({"default_status": "ON"}, "RUNNING"),
        ({"driver": {"parallelism": 0}}, "parallelism"),
        ({"cron": "0 * * * *", "spark_config": {}}, "cron and spark_config belong to jobs with continuous: false"),
        ({"continuous": False, "driver": {"trigger": "1 minute"}}, "driver belongs to jobs with continuous: true"),
    ],
)
def test_a_mistake_in_yaml_is_named_with_its_place(project: Project, attributes: Mapping[str, object], said: str) -> None:
    project.configure(**attributes)
    with pytest.raises(Exception) as found, project.load():  # noqa: PT011 - Dagster's own, of several kinds
        pass
    said_all = texts_of(found.value)
    assert said in said_all
    assert "defs.yaml" in said_all


def test_a_check_of_an_output_that_is_not_there_is_named_with_its_place(project: Project) -> None:
    project.configure(checks=[{"type": "late_ratio", "output": "nightly"}])
    project.refresh()
    with pytest.raises(Exception) as found, project.load():  # noqa: PT011 - Dagster's own, of several kinds
        pass
    assert re.search(r"names output 'nightly', which the job does not have.*at defs\.yaml:\d+ \(attributes\)", texts_of(found.value))


def test_a_check_takes_in_yaml_what_it_takes_in_python() -> None:
    models = {get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(get_args(CheckModel)[0])}
    assert models.keys() == CHECKS.keys()
    # In YAML the expectations of a suite stand beside its name.
    taken = {"expectations": {*signature(expectation_checks).parameters, "expectations"}}
    for name, check in CHECKS.items():
        wanted = taken[name] if name in taken else {field.name for field in fields(check)}  # type: ignore[arg-type]
        assert set(models[name].model_fields) - {"type"} == wanted
