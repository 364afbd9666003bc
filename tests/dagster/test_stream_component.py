"""``TidemarkStreamComponent``: YAML gives the job that a program gives, and a mistake in it is named with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster.components.testing.utils import DefsFolderSandbox, create_defs_folder_sandbox
from pydantic import ValidationError

import tidemark as tm
from tests.dagster.sandboxes import MARKS, texts_of
from tidemark.assets.checks.expectations import ExpectationChecks
from tidemark.assets.checks.gx_validation import validate_rows
from tidemark.components import TidemarkStreamComponent
from tidemark.components.sink_models import OutputModel
from tidemark.components.source_models import SourceModel
from tidemark.components.stream_models import AggregateModel, WindowModel
from tidemark.errors import DefinitionError
from tidemark.graph import Aggregate, Job, code_version
from tidemark.semantics import WindowAssigner

pytestmark = MARKS

RIDES = "zone INT, fare DOUBLE, at TIMESTAMP"


@pytest.fixture
def sandbox() -> Iterator[DefsFolderSandbox]:
    with create_defs_folder_sandbox() as made:
        yield made


def scaffold(sandbox: DefsFolderSandbox) -> Path:
    return sandbox.scaffold_component(component_cls=TidemarkStreamComponent, defs_path="rides")


def by_hand() -> Job:
    """The scaffolded job as a program."""
    malformed, late = tm.OutputTag("malformed"), tm.OutputTag("late")
    spec = tm.files("landing", format="json", schema=RIDES)
    rides = tm.source("rides", spec, watermarks=tm.bounded_out_of_orderness("5 minutes", timestamp="at"), malformed_to=malformed)
    windows = rides.filter("fare >= 0").key_by("zone").window(tm.tumbling("1 hour")).allowed_lateness("10 minutes").late_to(late)
    hourly = windows.aggregate(rides=tm.count(), fares=tm.sum("fare")).uid("hourly")
    outputs = {
        "hourly": tm.delta(hourly, "warehouse/hourly"),
        "late": tm.delta(hourly.side_output(late), "warehouse/late"),
        "malformed": tm.delta(rides.side_output(malformed), "warehouse/malformed"),
    }
    return tm.Job("rides", outputs, store="jobs")


def test_what_is_scaffolded_is_the_job_of_the_same_program(sandbox: DefsFolderSandbox) -> None:
    with sandbox.load_component_and_build_defs(scaffold(sandbox)) as (component, definitions):
        assert isinstance(component, TidemarkStreamComponent)
        assert component.job().explain() == by_hand().explain()
        assert code_version(component.job()) == code_version(by_hand())
        keys = {spec.key.to_user_string() for spec in definitions.resolve_all_asset_specs()}
        assert keys == {"rides", "rides/hourly", "rides/late", "rides/malformed"}
        assert [schedule.name for schedule in definitions.schedules or ()] == ["rides_drain_schedule"]
        checks = definitions.resolve_assets_def(dg.AssetKey(["rides", "hourly"])).check_specs
        assert [check.name for check in checks] == ["conservation"]


SUITE = """  checks:
    - type: expectations
      output: hourly
      suite: fares
      blocking: true
      expectations:
        - {type: expect_column_values_to_not_be_null, kwargs: {column: zone}}
        - {type: expect_column_values_to_be_between, kwargs: {column: fares, min_value: 0}, severity: warning, check: fares_are_positive}
"""


def test_a_suite_of_great_expectations_stands_in_yaml(sandbox: DefsFolderSandbox) -> None:
    path = scaffold(sandbox) / "defs.yaml"
    path.write_text(path.read_text() + SUITE)
    with sandbox.load_component_and_build_defs(path.parent) as (component, definitions):
        assert isinstance(component, TidemarkStreamComponent)
        (suite,) = component.checks
        checks = definitions.resolve_assets_def(dg.AssetKey(["rides", "hourly"])).check_specs
        assert isinstance(suite, ExpectationChecks)
        names = {check.name: check.blocking for check in checks}
        assert names == {"conservation": False, "expect_column_values_to_not_be_null_zone": True, "fares_are_positive": True}
        rows = pa.table({"zone": [1, None], "fares": [2.0, -3.0]})
        found = {outcome.name: outcome for outcome in validate_rows(rows, suite.expectations)}
        assert {name: outcome.success for name, outcome in found.items()} == dict.fromkeys(suite.expectations, False)
        assert {name: outcome.severity for name, outcome in found.items()} == {
            "expect_column_values_to_not_be_null_zone": "critical",
            "fares_are_positive": "warning",
        }


def test_a_suite_may_set_the_severity_of_all_its_checks(sandbox: DefsFolderSandbox) -> None:
    path = scaffold(sandbox) / "defs.yaml"
    path.write_text(path.read_text() + SUITE.replace("      suite: fares\n", "      severity: warn\n      rows: run\n      max_rows: 9\n"))
    with sandbox.load_component_and_build_defs(path.parent) as (component, _):
        assert isinstance(component, TidemarkStreamComponent)
        (suite,) = component.checks
        assert isinstance(suite, ExpectationChecks)
        assert (suite.severity, suite.rows, suite.max_rows) == ("warn", "run", 9)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("expect_column_values_to_not_be_null", "__import__('os')", "String should match pattern"),
        ("kwargs: {column: zone}", "column: zone", "column"),
        ("severity: warning", "severity: fatal", "'critical', 'warning' or 'info'"),
        ("      suite: fares\n", "      sweet: fares\n", "sweet"),
        ("      suite: fares\n", "      suite: fares\n      severity: fatal\n", "'error' or 'warn'"),
    ],
)
def test_a_suite_that_cannot_be_is_refused_with_its_place(sandbox: DefsFolderSandbox, old: str, new: str, said: str) -> None:
    path = scaffold(sandbox) / "defs.yaml"
    assert old in SUITE
    path.write_text(path.read_text() + SUITE.replace(old, new))
    with pytest.raises(Exception, match=r".") as raised, sandbox.load_component_and_build_defs(path.parent):
        pass
    assert said in texts_of(raised.value)
    assert "defs.yaml" in texts_of(raised.value)


def test_streams_stand_in_any_order_and_can_be_united(sandbox: DefsFolderSandbox) -> None:
    path = scaffold(sandbox) / "defs.yaml"
    text = path.read_text()
    more = """  streams:
    all:
      input: [cheap, dear]
      select: {zone: zone, euros: fare * 0.9}
    cheap: {input: rides, filter: fare < 10, rejects_to: dear}
"""
    text = text.replace("  streams:\n", more).replace("  outputs:\n", "  outputs:\n    all: {input: all, parquet: {path: warehouse/all}}\n")
    path.write_text(text)
    with sandbox.load_component_and_build_defs(path.parent) as (component, _):
        assert isinstance(component, TidemarkStreamComponent)
        assert "select zone, euros = fare * 0.9" in component.job().explain()


AGGREGATES: tuple[tuple[dict[str, Any], Aggregate], ...] = (
    ({"count": "*"}, tm.count()),
    ({"count": "fare"}, tm.count("fare")),
    ({"sum": "fare"}, tm.sum("fare")),
    ({"min_by": "zone", "by": "fare"}, tm.min_by("zone", "fare")),
    ({"approx_percentile": "fare", "p": 0.95}, tm.approx_percentile("fare", 0.95)),
    ({"top_k": "fare", "k": 3}, tm.top_k("fare", 3)),
    ({"top_k": "zone", "k": 3, "by": "fare"}, tm.top_k("zone", 3, "fare")),
    ({"first": "fare"}, tm.first("fare")),
    ({"collect_set": "zone"}, tm.collect_set("zone")),
)


@pytest.mark.parametrize(("given", "expected"), AGGREGATES, ids=[next(iter(given)) for given, _ in AGGREGATES])
def test_an_aggregate_is_that_of_the_function_of_its_name(given: dict[str, Any], expected: Aggregate) -> None:
    assert AggregateModel(**given).aggregate() == expected


WINDOWS: tuple[tuple[dict[str, Any], WindowAssigner], ...] = (
    ({"tumbling": "1 hour", "offset": "5 minutes"}, tm.tumbling("1 hour", offset="5 minutes")),
    ({"tumbling": "1 day", "zone": "Asia/Tokyo"}, tm.tumbling("1 day", zone="Asia/Tokyo")),
    ({"sliding": "1 hour", "slide": "10 minutes"}, tm.sliding("1 hour", "10 minutes")),
    ({"cumulative": "1 day", "step": "1 hour"}, tm.cumulative("1 day", "1 hour")),
    ({"session": "30 minutes"}, tm.session("30 minutes")),
    ({"session_by": "gap"}, tm.session(gap_by="gap")),
    ({"count": 100}, tm.count_window(100)),
    ({"count": 100, "slide": 10}, tm.count_window(100, 10)),
    ({"tumbling": "1 hour", "time": "processing"}, tm.tumbling("1 hour", time="processing")),
)


@pytest.mark.parametrize(("given", "expected"), WINDOWS, ids=[" ".join(given) for given, _ in WINDOWS])
def test_windows_are_those_of_the_function_of_their_name(given: dict[str, Any], expected: WindowAssigner) -> None:
    assert WindowModel(**given).assigner() == expected


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [
        (AggregateModel, {"sum": "fare", "avg": "fare"}, "sum and avg given"),
        (AggregateModel, {}, "none of these given"),
        (AggregateModel, {"sum": "fare", "by": "zone"}, "sum takes no by"),
        (AggregateModel, {"max_by": "fare"}, "max_by lacks by"),
        (AggregateModel, {"median": "fare"}, "median"),
        (WindowModel, {"tumbling": "1 hour", "slide": "1 minute"}, "tumbling takes no slide"),
        (WindowModel, {"sliding": "1 hour"}, "sliding lacks slide"),
        (WindowModel, {"session": "1 hour", "zone": "Asia/Tokyo"}, "session takes no zone"),
        (SourceModel, {}, "none of these given"),
        (OutputModel, {"input": "rides", "delta": {"path": "a"}, "parquet": {"path": "b"}}, "delta and parquet given"),
    ],
)
def test_what_does_not_go_together_is_refused(model: Callable[..., object], given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        model(**given)


def test_sources_are_those_of_the_function_of_their_name() -> None:
    kafka = {"servers": ["broker:9092"], "topics": ["rides"], "format": "json", "schema": RIDES}
    assert SourceModel.model_validate({"kafka": kafka}).spec() == tm.kafka_source(
        servers=["broker:9092"], topics=["rides"], format="json", schema=RIDES
    )
    delta = {"path": "lake/rides", "schema": RIDES, "start": "latest"}
    assert SourceModel.model_validate({"delta": delta}).spec() == tm.delta_source("lake/rides", schema=RIDES, start="latest")
    assert SourceModel.model_validate({"delta": delta}).watermarks() == tm.ingestion_time()


@pytest.mark.parametrize(
    "sink",
    [
        {"delta": {"path": "warehouse/hourly", "mode": "upsert"}},
        {"parquet": {"path": "warehouse/hourly"}},
        {"kafka": {"servers": ["broker:9092"], "topic": "hourly", "key": ["zone"]}},
        {"postgres": {"table": "hourly", "dsn_env": "LAKE_DSN", "with_epoch": True}},
        {"sql_table": {"database": "sqlite", "table": "hourly", "dsn_env": "LAKE_DSN", "mode": "upsert"}},
        {"iceberg": {"table": "lake.hourly", "catalog": "lake"}},
    ],
    ids=lambda sink: next(iter(sink)),
)
def test_sinks_are_those_of_the_function_of_their_name(sink: dict[str, Any]) -> None:
    (name, arguments), stream = next(iter(sink.items())), hourly()
    found = OutputModel.model_validate({"input": "hourly", **sink, "description": "Fares."}).bind(stream)
    assert found.description == "Fares."
    make: dict[str, Callable[[], tm.Output]] = {
        "delta": lambda: tm.delta(stream, "warehouse/hourly", mode="upsert"),
        "parquet": lambda: tm.parquet(stream, "warehouse/hourly"),
        "kafka": lambda: tm.kafka_sink(stream, servers=["broker:9092"], topic="hourly", key=["zone"]),
        "postgres": lambda: tm.postgres(stream, table="hourly", dsn_env="LAKE_DSN", with_epoch=True),
        "sql_table": lambda: tm.sql_table(stream, database="sqlite", table="hourly", dsn_env="LAKE_DSN", mode="upsert"),
        "iceberg": lambda: tm.iceberg(stream, table="lake.hourly", catalog="lake"),
    }
    assert arguments
    assert found.sink == make[name]().sink


def hourly() -> tm.Stream:
    spec = tm.files("landing", format="json", schema=RIDES)
    rides = tm.source("rides", spec, watermarks=tm.bounded_out_of_orderness("5 minutes", timestamp="at"))
    return rides.key_by("zone").window(tm.tumbling("1 hour")).aggregate(fares=tm.sum("fare")).uid("hourly")


MISTAKES = {
    "an unknown column": ("sum: fare", "sum: fair", "did you mean 'fare'", "attributes.streams.hourly"),
    "an unknown input": ("input: late\n", "input: lat\n", "'lat' is no source, stream or side output", "attributes.outputs.late"),
    "no duration": ("tumbling: 1 hour", "tumbling: 1 our", "'1 our' is not a duration", "attributes.streams.hourly"),
    "an unknown field": ("tumbling: 1 hour", "tumblin: 1 hour", "tumblin", "hourly.window"),
    "two aggregates of one": ("sum: fare", "sum: fare\n          avg: fare", "sum and avg given", "attributes.streams.hourly.aggregates"),
    "no SQL": ("filter: fare >= 0", "filter: fare >=", "fare >=", "attributes.streams.hourly"),
    "two aggregates of one place": ("path: warehouse/late", "path: warehouse/hourly", "both write to one place", "attributes.outputs.late"),
    "another format": ("format: json", "format: xml", "'json', 'csv', 'parquet', 'orc' or 'text'", "attributes.sources.rides.files"),
    "a stream of itself": ("input: rides", "input: hourly", "hourly → hourly: a stream is made of itself", "attributes.streams.hourly"),
    "a name used twice": ("late_to: late", "late_to: malformed", "'malformed' is used twice", "attributes.streams.hourly.late_to"),
    "a name with a space": ("name: rides\n", "name: ri des\n", "ri des", "attributes.name"),
    "windows without aggregates": ("tumbling: 1 hour", "{}", "none of these given", "attributes.streams.hourly.window"),
    "code in place of SQL": ("sum: fare", "sum: \"__import__('os')\"", "__import__", "attributes.streams.hourly"),
    "a missing field": ("        path: landing\n", "", "Field required", "attributes.sources.dict[str,SourceModelModel].rides.files"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_its_line_and_field(sandbox: DefsFolderSandbox, mistake: str) -> None:
    right, wrong, said, place = MISTAKES[mistake]
    path = scaffold(sandbox) / "defs.yaml"
    text = path.read_text()
    assert right in text
    path.write_text(text.replace(right, wrong, 1))
    with pytest.raises(Exception) as found, sandbox.load_component_and_build_defs(path.parent):  # noqa: PT011 - Dagster's own, of several kinds
        pass
    text = texts_of(found.value)
    assert said in text
    assert place in text
    assert "defs.yaml:" in text


def test_templates_may_use_the_environment(sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANDING", "s3://lake/landing")
    path = scaffold(sandbox) / "defs.yaml"
    path.write_text(path.read_text().replace("path: landing", 'path: "{{ env.LANDING }}"'))
    with sandbox.load_component_and_build_defs(path.parent) as (component, _):
        assert isinstance(component, TidemarkStreamComponent)
        assert "s3://lake/landing" in component.job().explain()


def test_a_component_of_python_names_fields(sandbox: DefsFolderSandbox) -> None:
    del sandbox
    source = SourceModel.model_validate({"files": {"path": "landing", "format": "json", "schema": RIDES}})
    output = OutputModel.model_validate({"input": "fares", "parquet": {"path": "warehouse/fares"}})
    component = TidemarkStreamComponent(name="rides", sources={"rides": source}, outputs={"fares": output}, store="jobs")
    with pytest.raises(DefinitionError, match=r"'fares' is no source.*at attributes\.outputs\.fares\)"):
        component.job()
