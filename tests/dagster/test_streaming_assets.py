from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

import tidemark as tm
from tests.dagster.fake_engine import ENGINES, HOUR, START, FakeEpoch, FakeTidemark, fake_resource, make_job, window_rows
from tidemark.assets import (
    Conservation,
    LateRatio,
    NoGaps,
    StreamData,
    TidemarkTranslator,
    UniquePanes,
    build_output_asset_specs,
    build_source_asset_specs,
    streaming_assets,
)
from tidemark.assets.checks.check import OutputCheck
from tidemark.assets.checks.conservation import epoch_lines
from tidemark.assets.report.output_metadata import CHART_KEY, output_metrics
from tidemark.assets.report.run_report import RunReport
from tidemark.assets.streams.job_streams import output_streams
from tidemark.assets.values.annotations import with_types
from tidemark.errors import DefinitionError
from tidemark.resources.run_events import StreamingEvent
from tidemark.state.log.progress import EpochProgress, OperatorProgress, OutputProgress

pytestmark = pytest.mark.dagster

HOURLY, LATE = dg.AssetKey(["cabs", "hourly"]), dg.AssetKey(["cabs", "late"])


def make_assets(job: tm.Job, *checks: OutputCheck, translator: TidemarkTranslator | None = None) -> dg.AssetsDefinition:
    @streaming_assets(job=job, checks=checks, translator=translator)
    def cabs(context: dg.AssetExecutionContext, tidemark: FakeTidemark) -> Iterator[StreamingEvent]:
        yield from tidemark.run(context=context)

    return cabs


def materialize(assets: dg.AssetsDefinition, store: Path, *, selection: list[dg.AssetKey] | None = None) -> dg.ExecuteInProcessResult:
    return dg.materialize([assets], resources={"tidemark": fake_resource(store)}, selection=selection, raise_on_error=True)


def events_of(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetMaterialization]:
    return {
        event.asset_key.path[-1]: event.step_materialization_data.materialization
        for event in result.get_asset_materialization_events()
        if event.asset_key is not None
    }


def test_each_output_is_an_asset_that_depends_on_its_sources(tmp_path: Path) -> None:
    assets = make_assets(make_job(tmp_path))
    assert [spec.key.path for spec in assets.specs] == [["cabs", name] for name in ("hourly", "late", "rejected", "malformed")]
    for spec in assets.specs:
        assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey(["trips"])]
        assert spec.kinds == {"tidemark", "spark", "delta"}
        assert spec.owners == ["team:streams"]
        assert spec.tags["domain"] == "cabs"
        assert spec.group_name == "cabs"
        assert spec.code_version
    kinds = {spec.metadata["tidemark/output"]: spec.metadata["tidemark/kind"] for spec in assets.specs}
    assert kinds == {"hourly": "main", "late": "late", "rejected": "rejected", "malformed": "malformed"}


def test_a_spec_says_columns_lineage_table_and_graph(tmp_path: Path) -> None:
    spec = next(iter(make_assets(make_job(tmp_path)).specs))
    schema: dg.TableSchema = spec.metadata["dagster/column_schema"]
    names = [column.name for column in schema.columns]
    assert names == ["zone", "window_start", "window_end", "trips", "fares", "pane_timing", "pane_index"]
    lineage: dg.TableColumnLineage = spec.metadata["dagster/column_lineage"]
    assert [(dep.asset_key, dep.column_name) for dep in lineage.deps_by_column["fares"]] == [(dg.AssetKey(["trips"]), "fare")]
    assert spec.metadata["dagster/table_name"] == "hourly"
    assert spec.metadata["tidemark/graph"].value.startswith("```mermaid\n")
    assert "allowed lateness 10m" in spec.metadata["tidemark/windows"].value


def test_sources_are_external_assets_shared_by_jobs(tmp_path: Path) -> None:
    one, two = make_job(tmp_path, "one"), make_job(tmp_path, "two")
    specs = build_source_asset_specs(one, two)
    assert [spec.key.path for spec in specs] == [["trips"]]
    assert specs[0].metadata["tidemark/out_of_orderness"] == "5m"
    with pytest.raises(DefinitionError, match=r"'trips'.*another location.*'one'"):
        build_source_asset_specs(one, make_job(tmp_path / "elsewhere", "two"))


def test_a_translator_has_the_last_word(tmp_path: Path) -> None:
    class Ours(TidemarkTranslator):
        def get_asset_spec(self, data: StreamData) -> dg.AssetSpec:
            spec = super().get_asset_spec(data)
            return spec.replace_attributes(key=["lake", data.kind, data.name], group_name="ours", owners=["team:lake"])

    job = make_job(tmp_path)
    assets = make_assets(job, Conservation(), translator=Ours())
    assert {tuple(key.path) for key in assets.keys} >= {("lake", "main", "hourly"), ("lake", "late", "late")}
    assert {dep.asset_key.to_user_string() for spec in assets.specs for dep in spec.deps} == {"lake/source/trips"}
    ENGINES.pop(str(tmp_path), None)
    resource = fake_resource(tmp_path)
    ENGINES[str(tmp_path)].queue.append(FakeEpoch(window_rows((1, 0, 0, 3))))
    result = dg.materialize([assets], resources={"tidemark": resource})
    keys = {event.asset_key.to_user_string() for event in result.get_asset_materialization_events() if event.asset_key is not None}
    assert "lake/main/hourly" in keys
    lineage = next(
        event for event in result.get_asset_materialization_events() if event.asset_key == dg.AssetKey(["lake", "main", "hourly"])
    )
    columns = lineage.step_materialization_data.materialization.metadata["dagster/column_lineage"]
    assert isinstance(columns, dg.TableColumnLineageMetadataValue)
    assert columns.value.deps_by_column["zone"][0].asset_key == dg.AssetKey(["lake", "source", "trips"])


def test_a_run_materializes_all_outputs_with_numbers(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    resource = fake_resource(tmp_path / "store")
    engine = ENGINES[str(tmp_path / "store")]
    engine.queue += [
        FakeEpoch(window_rows((1, 0, 0, 3), (2, 0, 0, 4)), late=2, rejected=1, early=6, shortfalls=(5, 7_000)),
        FakeEpoch(window_rows((1, 1, 0, 5)), malformed=3),
    ]
    result = dg.materialize([make_assets(job)], resources={"tidemark": resource})
    found = events_of(result)
    assert set(found) == {"hourly", "late", "rejected", "malformed"}
    numbers = {key: value.value for key, value in found["hourly"].metadata.items()}
    assert numbers["dagster/row_count"] == 3
    assert [key.removeprefix("tidemark/") for key in numbers][:7] == [
        "watermark_and_late_rows",
        "summary",
        "dagster/row_count",
        "rows_added",
        "rows_read",
        "rows_per_second",
        "late_rows",
    ]
    rows, late, times, windows, state, run = str(numbers["tidemark/summary"]).splitlines()[2:]
    assert rows.startswith("| **rows** | 3 added (")
    assert rows.endswith(", 3 in all, 26 read at 26 a second |")
    assert late == "| **late** | 2 too late (9.09%), 1 rejected, 3 malformed |"
    assert times.startswith("| **event time** | watermark 20")
    assert " UTC, 5m behind, oldest open window 20" in times
    assert windows == "| **windows** | 3 on time, 0 corrected, 6 early, 2 closed |"
    assert state.endswith(" rows, 700 B in 1 file |")
    assert run.endswith(" up to epoch 1 of lineage l1 |")
    assert numbers["tidemark/rows_added"] == 3
    assert numbers["tidemark/late_rows"] == 2
    assert numbers["tidemark/panes_early"] == 6
    assert numbers["tidemark/windows_closed"] == 2
    assert numbers["tidemark/oldest_open_window"] == (START + HOUR) / 1000
    assert numbers["tidemark/late_ratio"] == 0.090909
    assert numbers["tidemark/epochs"] == 2
    assert numbers["tidemark/rows_per_second"] == pytest.approx(26.0)
    assert numbers["tidemark/state_bytes"] == 700
    assert (numbers["tidemark/watermark_lag_seconds"], numbers["tidemark/watermark_lag"]) == (300.0, "5m")
    assert found["late"].metadata["dagster/row_count"].value == 2
    assert str(found["late"].metadata["tidemark/late_advice"].value).startswith("an allowed lateness of 10m 1s would have kept 50% of 2")
    assert found["late"].metadata["tidemark/results_hourly"].value == dg.AssetKey(["cabs", "hourly"])
    assert found["hourly"].tags is not None
    assert found["hourly"].tags["dagster/data_version"] == "l1:1"
    assert found["hourly"].tags["tidemark/lineage"] == "l1"
    assert engine.runs == [result.run_id]
    # Another run: totals go on, this run's rows are its own.
    engine.queue.append(FakeEpoch(window_rows((1, 2, 0, 1))))
    again = events_of(dg.materialize([make_assets(job)], resources={"tidemark": resource}))
    assert again["hourly"].metadata["dagster/row_count"].value == 4
    assert again["hourly"].metadata["tidemark/rows_added"].value == 1


def test_a_run_shows_the_changes_of_a_changelog_by_operation(tmp_path: Path) -> None:
    assets, store = make_assets(make_job(tmp_path)), tmp_path / "store"
    fake_resource(store)
    for changes in ({"insert": 4, "update": 0, "delete": 0}, {"insert": 1, "update": 2, "delete": 3}):
        ENGINES[str(store)].queue.append(FakeEpoch(window_rows((1, 0, 0, 3)), late=1, changes=changes))
        found = events_of(materialize(assets, store))
        shown = {name: found["hourly"].metadata[f"tidemark/{name}s"].value for name in changes}
        assert shown == changes
        assert "tidemark/inserts" not in found["late"].metadata


def test_rows_written_are_no_row_count_of_a_table_whose_rows_are_changed(tmp_path: Path) -> None:
    assets, store = make_assets(make_job(tmp_path, mode="upsert")), tmp_path / "store"
    fake_resource(store)
    ENGINES[str(store)].queue.append(FakeEpoch(window_rows((1, 0, 0, 3)), late=1))
    found = events_of(materialize(assets, store))
    assert "dagster/row_count" not in found["hourly"].metadata
    assert "dagster/row_count" in found["late"].metadata


def test_process_functions_show_keys_timers_and_what_expired(tmp_path: Path) -> None:
    job = make_function_job(tmp_path)
    output = next(stream for stream in output_streams(job) if stream.name == "silent")
    first = function_epoch(0, keys=5, timers=3, fired=2, expired=0, failed=1)
    second = function_epoch(1, keys=4, timers=6, fired=1, expired=7, failed=0)
    report = RunReport(job=job, lineage="l1", epochs=(first, second), head=second)
    numbers = {key.removeprefix("tidemark/"): value for key, value in output_metrics(output, report).items()}
    assert (numbers["keys"], numbers["timers"], numbers["timers_fired"], numbers["state_expired"], numbers["failed_rows"]) == (
        4,
        6,
        3,
        7,
        1,
    )
    assert (numbers["state_rows"], numbers["state_bytes"]) == (7, 900)
    assert not {"late_rows", "panes_on_time"} & set(numbers)
    names = list(numbers)
    assert names.index("keys") < names.index("timers") < names.index("state_rows") < names.index("epoch")
    (spec,) = (spec for spec in build_output_asset_specs(job) if spec.key.path[-1] == "silent")
    text = spec.metadata["tidemark/process_functions"]
    assert "- `watch`: process by zone with watched, n: value of BIGINT" in str(getattr(text, "value", text))


def test_rows_of_failed_timers_are_no_elements_that_failed(tmp_path: Path) -> None:
    job = make_function_job(tmp_path)
    epoch = function_epoch(0, keys=1, timers=0, fired=2, expired=0, failed=1, rows={"silent": 0, "failed": 3})
    assert [str(line) for line in epoch_lines(job, epoch) if not line.balanced] == []


def watched(element: dict[str, object], ctx: tm.ProcessContext) -> None:
    """Do nothing."""


def make_function_job(folder: Path) -> tm.Job:
    read = tm.source(
        "trips", tm.files(str(folder), format="json", schema="zone INT, at TIMESTAMP"), watermarks=tm.ascending(timestamp="at")
    )
    failed = tm.OutputTag("failed")
    made = read.key_by("zone").process(watched, returns="zone INT", state={"n": tm.value_state("BIGINT")}, on_error=failed).uid("watch")
    return tm.Job("cabs", outputs={"silent": tm.memory(made, "silent"), "failed": tm.memory(made.side_output(failed), "failed")})


def function_epoch(
    number: int, *, keys: int, timers: int, fired: int, expired: int, failed: int, rows: dict[str, int] | None = None
) -> EpochProgress:
    operator = OperatorProgress(
        10, 10 - failed, 0, START, 0, 0, 7, 900, 1, counters={"failed": failed}, kind="keyed_process", keys=keys, timers=timers,
        timers_fired=fired, state_expired=expired,
    )  # fmt: skip
    outputs = {name: OutputProgress(count, 1, 10, "memory") for name, count in (rows or {"silent": 1, "failed": 0}).items()}
    return EpochProgress("cabs", "l1", number, START, 20, rows_in=10, rows_out=1, operators={"watch": operator}, outputs=outputs)


def test_a_run_without_anything_new_keeps_the_data_version(tmp_path: Path) -> None:
    job, store = make_job(tmp_path), tmp_path / "store"
    fake_resource(store)
    ENGINES[str(store)].queue.append(FakeEpoch(window_rows((1, 0, 0, 3))))
    assets = make_assets(job, Conservation(), LateRatio())
    first = events_of(materialize(assets, store))["hourly"]
    second = events_of(materialize(assets, store))["hourly"]
    assert first.tags is not None
    assert second.tags is not None
    assert first.tags["dagster/data_version"] == second.tags["dagster/data_version"] == "l1:0"
    assert second.metadata["tidemark/rows_added"].value == 0
    assert "tidemark/rows_per_second" not in second.metadata


def test_a_selection_chooses_what_is_reported_and_checked_not_what_is_run(tmp_path: Path) -> None:
    job, store = make_job(tmp_path), tmp_path / "store"
    fake_resource(store)
    ENGINES[str(store)].queue.append(FakeEpoch(window_rows((1, 0, 0, 3)), late=1))
    result = materialize(make_assets(job, Conservation(), LateRatio("late")), store, selection=[LATE])
    assert set(events_of(result)) == {"late"}
    assert [check.check_name for check in result.get_asset_check_evaluations()] == ["late_ratio"]
    assert (tmp_path / "warehouse" / "hourly").exists()


def test_outputs_without_new_rows_can_be_left_out(tmp_path: Path) -> None:
    job, store = make_job(tmp_path), tmp_path / "store"

    @streaming_assets(job=job)
    def cabs(context: dg.AssetExecutionContext, tidemark: FakeTidemark) -> Iterator[StreamingEvent]:
        yield from tidemark.run(context=context, skip_unchanged=True)

    fake_resource(store)
    ENGINES[str(store)].queue.append(FakeEpoch(window_rows((1, 0, 0, 3)), rejected=2))
    assert set(events_of(materialize(cabs, store))) == {"hourly", "rejected"}


def test_rows_that_no_run_has_reported_are_not_left_out(tmp_path: Path) -> None:
    job, store = make_job(tmp_path), tmp_path / "store"

    @streaming_assets(job=job)
    def cabs(context: dg.AssetExecutionContext, tidemark: FakeTidemark) -> Iterator[StreamingEvent]:
        yield from tidemark.run(context=context, skip_unchanged=True)

    resources = {"tidemark": fake_resource(store)}
    ENGINES[str(store)].queue.append(FakeEpoch(window_rows((1, 0, 0, 3))))
    with dg.DagsterInstance.ephemeral() as instance:
        # An epoch writes all outputs, and this run reports one, which got nothing.
        dg.materialize([cabs], resources=resources, instance=instance, selection=[LATE])
        assert set(events_of(dg.materialize([cabs], resources=resources, instance=instance))) == {"hourly"}
        assert events_of(dg.materialize([cabs], resources=resources, instance=instance)) == {}


def test_jobs_may_read_a_shared_source_at_their_own_pace(tmp_path: Path) -> None:
    def reading(name: str, most: int | None) -> tm.Job:
        files = tm.files(str(tmp_path / "landing"), format="json", schema="at TIMESTAMP", max_files_per_epoch=most)
        trips = tm.source("trips", files, watermarks=tm.ascending(timestamp="at"))
        return tm.Job(name, outputs={"all": tm.console(trips)})

    jobs = reading("one", 2), reading("two", None)
    assert [spec.key.path for spec in build_source_asset_specs(*jobs)] == [["trips"]]

    def polling(name: str, topic: str, **options: str) -> tm.Job:
        spec = tm.streaming_format("kafka", options={"subscribe": topic, "kafka.bootstrap.servers": "here:9092", **options})
        trips = tm.source("trips", spec, watermarks=tm.ascending(timestamp="timestamp"))
        return tm.Job(name, outputs={"all": tm.console(trips)})

    jobs = polling("one", "trips", startingOffsets="earliest"), polling("two", "trips", maxOffsetsPerTrigger="9")
    assert len(build_source_asset_specs(*jobs)) == 1
    with pytest.raises(DefinitionError, match="reads another location"):
        build_source_asset_specs(jobs[0], polling("two", "fares"))


def test_labels_that_dagster_does_not_take_are_left_out(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    odd = tm.Job("odd", outputs=job.outputs, owners=["Ada", "team:data"], tags={"purpose": "tips of drivers", "domain": "taxi"})
    for spec in (*build_source_asset_specs(odd), *make_assets(odd).specs):
        assert (list(spec.owners), "purpose" in spec.tags, spec.tags["domain"]) == (["team:data"], False, "taxi")


def test_row_counts_come_from_the_table_when_asked_for(tmp_path: Path) -> None:
    import deltalake

    job, store = make_job(tmp_path), tmp_path / "store"
    deltalake.write_deltalake(str(tmp_path / "warehouse" / "hourly"), window_rows((9, 0, 0, 1), (8, 0, 0, 1)))

    @streaming_assets(job=job)
    def cabs(context: dg.AssetExecutionContext, tidemark: FakeTidemark) -> Iterator[StreamingEvent]:
        yield from tidemark.run(context=context).with_row_counts()

    fake_resource(store)
    ENGINES[str(store)].queue.append(FakeEpoch(window_rows((1, 0, 0, 3))))
    found = events_of(materialize(cabs, store))
    assert found["hourly"].metadata["dagster/row_count"].value == 3
    assert found["late"].metadata["dagster/row_count"].value == 0


def test_the_picture_is_an_svg_with_a_bar_per_epoch_with_late_rows(tmp_path: Path) -> None:
    job, store = make_job(tmp_path), tmp_path / "store"
    fake_resource(store)
    ENGINES[str(store)].queue += [FakeEpoch(window_rows((1, hour, 0, 3)), late=hour % 2) for hour in range(6)]
    markdown = str(events_of(materialize(make_assets(job), store))["hourly"].metadata[CHART_KEY].value)
    found = re.fullmatch(r"!\[(.+)\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", markdown)
    assert found is not None
    assert "3 late rows" in found[1]
    drawn = ET.fromstring(base64.b64decode(found[2]))  # noqa: S314 - our own text
    names = [element.tag.rsplit("}", 1)[-1] for element in drawn.iter()]
    assert names.count("rect") == 3
    assert (names.count("polyline"), names.count("path")) == (3, 1)
    assert "at most 1<" in base64.b64decode(found[2]).decode()
    assert "lag of the watermark" in base64.b64decode(found[2]).decode()


@pytest.mark.parametrize(
    ("checks", "message"),
    [
        ((UniquePanes("hourli"),), "'hourli'.*hourly, late"),
        ((UniquePanes("late"),), "'late' has no window results"),
        ((NoGaps("malformed"),), "'malformed' has no window results"),
        ((LateRatio("malformed"),), "no window, join by time or deduplication leads to output 'malformed'"),
        ((Conservation(), Conservation(compare_tables=False)), "two checks named 'conservation'"),
    ],
)
def test_checks_that_cannot_be_made_are_refused_at_definition(tmp_path: Path, checks: tuple[OutputCheck, ...], message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as raised:
        make_assets(make_job(tmp_path), *checks)
    assert "Fix: " in str(raised.value)
    assert "'cabs'" in str(raised.value)


def test_a_job_without_a_store_says_where_to_set_one(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"no job store is known.*'cabs'.*TidemarkResource"):
        FakeTidemark().store_of(make_job(tmp_path))


def test_assets_of_another_kind_are_refused(tmp_path: Path) -> None:
    def other(context: dg.AssetExecutionContext, tidemark: FakeTidemark) -> Iterator[StreamingEvent]:
        yield from tidemark.run(context=context)

    foreign = dg.multi_asset(specs=[dg.AssetSpec("other")])(with_types(other))
    with pytest.raises(DefinitionError, match="have no streaming job"):
        materialize(foreign, tmp_path)


def test_columns_that_are_made_on_the_way_say_of_what(tmp_path: Path) -> None:
    hourly = tm.Stream(make_job(tmp_path).outputs["hourly"].node)
    made = hourly.with_columns(mean="fares / trips", place="zone").select("place", "mean", "trips")
    job = tm.Job("cabs", outputs={"means": tm.delta(made, str(tmp_path / "means"))}, description="Mean fares.", store=str(tmp_path))
    (spec,) = build_output_asset_specs(job)
    assert str(spec.description).startswith("Mean fares. One row for each `zone`, window and pane")
    assert [column.description for column in spec.metadata["dagster/column_schema"].columns] == [
        "Key of the window. There `zone`.",
        "`fares / trips`",
        "`count()` over the window.",
    ]
