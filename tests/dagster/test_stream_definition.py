"""A continuous job in YAML: its definitions, the job that a driver makes of what the spec holds, and files read outside a project."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.testing.utils import DefsFolderSandbox, create_defs_folder_sandbox

from tests.dagster.control_world import launchers, make_world
from tests.dagster.instances import instance_in_memory
from tests.dagster.sandboxes import MARKS, texts_of
from tidemark.components import TidemarkStreamComponent
from tidemark.components.scaffolding import EXAMPLE
from tidemark.components.stream_component import JOB_FIELDS
from tidemark.control import JobSpec, checked_spec, job_code, job_document, judge_code, load_job, read_job_document, require_spec
from tidemark.control.desired import job_import
from tidemark.control.upgrade.code_check import Maps
from tidemark.errors import DefinitionError, UpgradeError
from tidemark.graph import code_version
from tidemark.operations import build_job_definitions, control_jobs
from tidemark.state import JobStore

pytestmark = MARKS

TYPE = "tidemark.TidemarkStreamComponent"
DOCUMENT = yaml.safe_dump({"type": TYPE, "attributes": {"name": "rides", "store": "jobs", **EXAMPLE}}, sort_keys=False)


@pytest.fixture
def sandbox() -> Iterator[DefsFolderSandbox]:
    with create_defs_folder_sandbox() as made:
        yield made


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with instance_in_memory() as made:
        yield made


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rides.yaml"
    path.write_text(DOCUMENT)
    return path


def scaffold(sandbox: DefsFolderSandbox, **attributes: object) -> Path:
    params = {"continuous": True}
    path = sandbox.scaffold_component(component_cls=TidemarkStreamComponent, defs_path="rides", scaffold_params=params) / "defs.yaml"
    document = yaml.safe_load(path.read_text())
    assert document["attributes"]["continuous"] is True
    document["attributes"] |= attributes
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def test_a_continuous_job_has_what_one_in_python_has(sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sandbox.project_root)
    path = scaffold(
        sandbox,
        driver={"trigger": "2 seconds", "standby": True},
        partitions={"hourly": {"type": "hourly", "start_date": "2026-01-01-00:00"}},
    )
    with sandbox.load_component_and_build_defs(path.parent) as (component, definitions):
        assert isinstance(component, TidemarkStreamComponent)
        assert {sensor.name for sensor in definitions.sensors or ()} == {
            "rides_progress", "rides_reconcile", "rides_job_health", "rides_checks"
        }  # fmt: skip
        assert {each.name for each in definitions.jobs or ()} == {"rides_operate", "rides_savepoint", "rides_maintenance"}
        checks = {key.name for check in definitions.asset_checks or () for key in check.check_keys}
        assert {"job_runs", "state_fits"} <= checks
        hourly = next(spec for spec in definitions.resolve_all_asset_specs() if spec.key.path[-1] == "hourly")
        assert isinstance(hourly.partitions_def, dg.HourlyPartitionsDefinition)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"cron": "0 * * * *"}, "cron belongs to jobs with continuous: false"),
        ({"continuous": False, "driver": {"trigger": "1 second"}}, "driver belongs to jobs with continuous: true"),
        ({"driver": {"trigger": "often"}}, "driver.trigger: trigger='often' is not a duration"),
    ],
)
def test_fields_of_the_other_kind_are_refused(sandbox: DefsFolderSandbox, attributes: dict[str, object], said: str) -> None:
    path = scaffold(sandbox, **attributes)
    with pytest.raises(Exception, match=r".") as raised, sandbox.load_component_and_build_defs(path.parent):
        pass
    assert said in texts_of(raised.value)


def test_a_driver_makes_the_job_of_the_spec_and_does_not_read_the_file(sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANDING", "s3://lake/landing")
    sources: Any = copy.deepcopy(EXAMPLE["sources"])
    sources["rides"]["files"]["path"] = "{{ env.LANDING }}"
    path = scaffold(sandbox, sources=sources, parallelism=3, owners=["team:data"], translation={"group_name": "lake"})
    with sandbox.load_component_and_build_defs(path.parent) as (component, _):
        assert isinstance(component, TidemarkStreamComponent)
        here, definition = component.job(), component.definition()
    path.unlink()
    monkeypatch.delenv("LANDING")
    made = load_job("rides/defs.yaml:rides", definition)
    assert made.explain() == here.explain()
    assert code_version(made) == code_version(here)
    assert (made.name, made.parallelism, made.owners, made.retained_epochs) == ("rides", 3, ("team:data",), 100)
    assert "s3://lake/landing" in made.explain()
    assert "lake" not in definition.replace("s3://lake/landing", ""), "what Dagster has of the job is not part of it"


def test_every_field_of_the_job_is_in_its_definition() -> None:
    """A new field is either of the job, and then a driver has to know it, or of what Dagster has of the job."""
    others = {
        *("store", "continuous", "driver", "partitions", "savepoints", "single_jobs", "translation", "checks", "source_assets"),
        *("alerts", "default_status", "cron", "spark_config"),
    }
    assert set(TidemarkStreamComponent.model_fields) == {*JOB_FIELDS, *others}


def test_a_file_is_named_like_a_module(file: Path) -> None:
    code = job_code("rides.yaml")
    assert code.code == "rides.yaml:rides"
    assert code.definition is not None
    versions = {code_version(load_job(reference)) for reference in ("rides.yaml", "rides.yaml:rides", str(file))}
    assert versions == {code_version(load_job(code.code, code.definition))}
    assert job_code("rides.job:job") == job_import.JobCode("rides.job:job")


def test_a_job_is_found_among_the_documents_of_a_file(file: Path) -> None:
    other = DOCUMENT.replace("name: rides", "name: fares")
    file.write_text(f"{DOCUMENT}---\ntype: tidemark.TidemarkJobComponent\nattributes: {{job: 'a:b'}}\n---\n{other}")
    assert load_job("rides.yaml:fares").name == "fares"
    with pytest.raises(DefinitionError, match=r"rides\.yaml has several jobs.*Fix: write rides\.yaml:NAME, with one of rides, fares"):
        load_job("rides.yaml")
    with pytest.raises(DefinitionError, match=r"has no job 'tips'.*Fix: name one of rides, fares"):
        load_job("rides.yaml:tips")
    file.write_text("type: tidemark.TidemarkJobComponent\nattributes: {job: 'a:b'}\n")
    with pytest.raises(DefinitionError, match=r"rides\.yaml has no job in YAML"):
        load_job("rides.yaml")


MISTAKES = {
    "no YAML": ("name: rides", "name: {rides", "rides.yaml is no YAML"),
    "a field that is not there": (
        "tumbling: 1 hour",
        "tumblin: 1 hour",
        r"streams\.hourly\.window\.tumblin: there is no such field \(at rides\.yaml:\d+.*Fix: write 'tumbling'$",
    ),
    "a field that is missing": (
        "        path: landing\n",
        "",
        r"sources\.rides\.files\.path: the field is missing \(at rides\.yaml:\d+.*Fix: add it: 'path: \.\.\.'$",
    ),
    "a value that is none": ("format: json", "format: xml", r"sources\.rides\.files\.format: Input should be 'json'.*\(at rides\.yaml:\d+"),
    "two aggregates of one": (
        "sum: fare",
        "sum: fare\n          avg: fare",
        r"streams\.hourly\.aggregates\.fares: sum and avg given .*rides\.yaml:\d+",
    ),
    "a number for a text": (
        "bound: 5 minutes",
        "bound: 5",
        r"sources\.rides\.event_time\.bound: Input should be a valid string .*Fix: write text, such as '5 minutes'",
    ),
    "a text for a block": (
        "delta:\n        path: warehouse/late",
        "delta: warehouse/late",
        r"outputs\.late\.delta: it has a value of its own, and takes fields .*Fix: write below it, indented, fields of these: path, mode",
    ),
    "an aggregate that is none": (
        "sum: fare",
        "median: fare",
        r"fares\.median: there is no such field .*Fix: leave it out, or write one of sum, avg, min",
    ),
    "a field of another place": (
        "path: landing\n",
        "path: landing\n        bound: 5 minutes\n",
        r"Fix: leave it out, or write one of .*path.*schema",
    ),
    "a column that is not there": ("sum: fare", "sum: fair", r"did you mean 'fare'.*rides\.yaml:\d+ \(attributes\.streams\.hourly"),
    "an input that is not there": ("input: late\n", "input: lat\n", r"'lat' is no source.*attributes\.outputs\.late"),
    "a field of the job that is none": (
        "store: jobs",
        "paralelism: 4",
        r"paralelism: there is no such field \(at rides\.yaml:\d+.*Fix: write 'parallelism'$",
    ),
    "a list as a key": ("store: jobs", "? [a]\n  : b", r"rides\.yaml has a list or mapping as a key"),
    "deep nesting": ("path: landing", f"path: {'[' * 1_000}", r"rides\.yaml .*nested too deeply"),
    "a variable that is not set": (
        "path: landing",
        'path: "{{ env.NOT_SET }}"',
        r"NOT_SET is not set \(at rides\.yaml:\d+ \(attributes\.sources",
    ),
    "an expression": ("path: landing", 'path: "{{ ().__class__ }}"', r"is not of the form {{ env\.NAME }}.*rides\.yaml:\d+"),
    "a statement": ("path: landing", 'path: "{% if 1 %}a{% endif %}"', r"is not of the form {{ env\.NAME }}"),
    "a function": ("path: landing", "path: \"{{ env('HOME') }}\"", r"is not of the form {{ env\.NAME }}"),
    "an object of Python": ("path: landing", "path: !!python/name:os.system", "could not determine a constructor"),
}


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_a_mistake_in_a_file_is_named_with_its_line_and_field(file: Path, mistake: str) -> None:
    right, wrong, said = MISTAKES[mistake]
    assert right in DOCUMENT
    file.write_text(DOCUMENT.replace(right, wrong, 1))
    with pytest.raises(DefinitionError, match=said) as raised:
        load_job("rides.yaml")
    assert "Fix: " in str(raised.value)


def test_a_template_of_the_environment_is_filled_in_as_text(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANDING", "{{ 1 + 1 }}")
    file.write_text(DOCUMENT.replace("path: landing", 'path: "in/{{ env.LANDING }}"'))
    assert "in/{{ 1 + 1 }}" in load_job("rides.yaml").explain(), "what a variable holds is not read as a template again"


def test_a_file_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DefinitionError, match=r"none\.yaml cannot be read: No such file.*Fix: name an existing file"):
        load_job("none.yaml")
    (tmp_path / "none.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DefinitionError, match=r"none\.yaml is no text in UTF-8"):
        load_job("none.yaml")


def test_dagster_is_named_where_it_cannot_be_imported(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del file
    monkeypatch.setattr(job_import, "_JOBS_IN_YAML", "tidemark.components.not_there")
    with pytest.raises(DefinitionError, match=r"jobs in YAML are read with Dagster.*Fix: run pip install -e '\.\[dagster\]'"):
        load_job("rides.yaml")


def test_a_definition_of_another_release_is_refused(file: Path) -> None:
    del file
    code = job_code("rides.yaml")
    assert code.definition is not None
    with pytest.raises(
        DefinitionError, match=r"cannot be read by this release: streams\.hourly\.windowing: there is no such field.*Fix: submit"
    ):
        load_job(code.code, code.definition.replace('"window":', '"windowing":'))


def test_a_spec_holds_what_the_file_says(file: Path) -> None:
    code = job_code("rides.yaml")
    spec = checked_spec(JobSpec("rides", code.code, definition=code.definition))
    file.write_text(DOCUMENT.replace("fare >= 0", "fare > 0"))
    changed = replace(spec, definition=job_code("rides.yaml").definition)
    assert changed.requires_restart_from(spec)
    assert changed.has_other_code_than(spec)
    with pytest.raises(DefinitionError, match=r"rides\.yaml:rides is a file, and what it says is not given"):
        checked_spec(replace(spec, definition=None))
    with pytest.raises(DefinitionError, match=r"is no file of YAML, and has a definition"):
        checked_spec(replace(spec, code="rides.job:job"))
    secret = replace(spec, definition=str(spec.definition).replace("landing", "s3://me:hunter2@lake"))
    with pytest.raises(DefinitionError, match="contains a secret") as raised:
        checked_spec(secret)
    assert "hunter2" not in str(raised.value)


TEXTS = {
    "nothing": "",
    "no JSON": "{name: rides}",
    "a list": "[]",
    "an end that is missing": '{"name": "rides"',
    "deep nesting": "[" * 100_000,
}


@pytest.mark.parametrize("text", list(TEXTS))
def test_a_definition_that_is_no_json_is_named(text: str) -> None:
    said = r"is not the JSON that was read from its file: .*at rides\.yaml:rides\)\. Fix: submit the file again"
    with pytest.raises(DefinitionError, match=rf"{said}: `tidemark submit rides\.yaml:rides`.*job_code\('rides\.yaml:rides'\)") as raised:
        checked_spec(JobSpec("rides", "rides.yaml:rides", definition=TEXTS[text]))
    assert raised.value.job == "rides"
    with pytest.raises(DefinitionError, match=said):
        load_job("rides.yaml:rides", TEXTS[text])


def test_a_stored_definition_of_nothing_is_not_taken_for_the_file(file: Path, tmp_path: Path) -> None:
    assert file.exists()
    with pytest.raises(UpgradeError, match="is a file, and what it says is not given"):
        judge_code(JobStore.open(str(tmp_path / "jobs")), JobSpec("rides", "rides.yaml:rides", definition=""), Maps())


def test_definitions_in_python_take_a_file(file: Path, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """The spec that ``start`` submits holds what the file said when the definitions loaded, also where the user gives the spec."""
    world = make_world(tmp_path)

    def started(defs: dg.Definitions, verb: str, config: dict[str, object]) -> JobSpec:
        run_config = {"ops": {f"{verb}_rides": {"config": config}}}
        defs.resolve_job_def(f"rides_{verb}").execute_in_process(run_config=run_config, instance=instance)
        return require_spec(world.store, "rides").spec

    definition = job_code("rides.yaml").definition
    for spec, trigger_ms in ((None, 10_000), (lambda code, job: JobSpec(job.name, code, trigger_ms=1_000), 1_000)):
        file.write_text(DOCUMENT)
        defs = build_job_definitions("rides.yaml", store=world.store.uri, spec=spec, alert_key=None, launchers=lambda: launchers(world))
        assert {each.name for each in defs.jobs or ()} == {"rides_operate", "rides_savepoint", "rides_maintenance"}
        file.unlink()
        made = started(defs, "operate", {"do": {"start": {"resubmit": True, "wait": False}}})
        assert made == JobSpec("rides", "rides.yaml:rides", definition=definition, trigger_ms=trigger_ms)
        # What a driver loads.
        assert load_job(made.code, made.definition).name == "rides"
    file.write_text(DOCUMENT)
    single = control_jobs(
        load_job("rides.yaml"), spec=JobSpec("rides", str(file)), store=world.store.uri, launchers=lambda: launchers(world)
    )
    assert started(single, "start", {"resubmit": True, "wait": False}).definition == definition


def test_a_file_that_is_wrong_is_shown_beside_the_other_jobs(file: Path, tmp_path: Path) -> None:
    described = read_job_document(job_document("rides.yaml"))
    (tmp_path / "wrong.yaml").write_text(DOCUMENT.replace("sum: fare", "sum: fair").replace("name: rides", "name: fares"))
    (tmp_path / "right.yaml").write_text(DOCUMENT.replace("name: rides", "name: trips"))
    file.unlink()
    for continuous in (True, False):
        defs = build_job_definitions(
            "wrong.yaml", described, "right.yaml", "none.yaml", store="jobs", continuous=continuous, alert_key=None
        )
        dg.Definitions.validate_loadable(defs)
        specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
        broken = {key: str(spec.description) for key, spec in specs.items() if key.startswith("broken/")}
        assert sorted(broken) == ["broken/none_yaml", "broken/rides_yaml", "broken/wrong_yaml"]
        assert "did you mean 'fare'" in broken["broken/wrong_yaml"]
        assert "rides.yaml cannot be read" in broken["broken/rides_yaml"]
        assert "trips/hourly" in specs


def test_a_secret_in_a_file_is_an_error_of_its_job(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs drain has no spec; nor has a store whose operations ask for a job's name."""
    monkeypatch.setenv("KEY", "hunter2")
    file.write_text(DOCUMENT.replace("path: landing", "path: landing\n        options: {fs.s3a.secret.key: '{{ env.KEY }}'}"))
    (tmp_path / "right.yaml").write_text(DOCUMENT.replace("name: rides", "name: trips"))

    def shown(**settings: Any) -> dict[str, str]:
        defs = build_job_definitions("rides.yaml", "right.yaml", store="jobs", alert_key=None, **settings)
        return {spec.key.to_user_string(): str(spec.description) for spec in defs.resolve_all_asset_specs()}

    specs = shown()
    assert {"trips/hourly", "broken/rides_yaml"} <= specs.keys()
    assert "the option 'fs.s3a.secret.key' contains a secret" in specs["broken/rides_yaml"]
    assert "hunter2" not in repr(specs)
    for settings in ({"continuous": False}, {"operations": "store"}):
        assert {"trips/hourly", "rides/hourly"} <= shown(**settings).keys()


def test_a_secret_in_an_option_of_a_reader_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of connectors are refused with the job; Spark's readers take those of object stores, too."""
    monkeypatch.setenv("KEY", "hunter2")
    for options, refused in (("fs.s3a.secret.key: '{{ env.KEY }}'", True), ("multiLine: 'true'", False)):
        file.write_text(DOCUMENT.replace("path: landing", f"path: landing\n        options: {{{options}}}"))
        code = job_code("rides.yaml")
        spec = JobSpec("rides", code.code, definition=code.definition)
        if not refused:
            assert checked_spec(spec) == spec
            continue
        with pytest.raises(DefinitionError, match=r"the option 'fs\.s3a\.secret\.key' contains a secret") as raised:
            checked_spec(spec)
        assert "hunter2" not in str(raised.value)
