from __future__ import annotations

import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from docs.grafana import dashboard
from tests.control.alert_cases import HOUR, T0, job_view
from tests.driver_resources.resource_cases import RESOURCES
from tests.repeated import repeated
from tests.state.conftest import epoch_progress
from tidemark.control.alerts.delivery.delivery_queue import ReceiverCounts
from tidemark.control.alerts.engine.alert_evaluator import WatchReport
from tidemark.control.alerts.model.alert_state import Condition
from tidemark.control.alerts.model.hysteresis import ThresholdState, ThresholdStates
from tidemark.control.metrics.metric_catalog import MAX_SPLITS
from tidemark.control.metrics.metric_otel import export_metrics, otel_name
from tidemark.control.metrics.metric_registry import ALL_METRICS, MetricRegistry, MetricSnapshot, series_of
from tidemark.control.metrics.metric_server import StoredJob, listen_address, serve_metrics
from tidemark.control.model.autoscaler_records import ScalingEvaluation
from tidemark.control.model.records import DriverStart
from tidemark.control.model.sanitizing import safe_label
from tidemark.control.model.view import AutoscalerView, Backpressure, JobView, KeyedView, SourceView, SplitView
from tidemark.errors import DefinitionError, SetupError, StoreError
from tidemark.semantics.watermarks.shortfalls import Shortfalls
from tidemark.state.log.records import OwnerInfo
from tidemark.state.log.totals import Totals, add_epoch, empty_totals
from tidemark.state.status.driver_load import Backlog
from tidemark.state.status.status import JobStatus, write_status
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

CHECKOUT = Path(__file__).resolve().parents[2]
Sample = tuple[str, tuple[tuple[str, str], ...]]


def busy_view() -> JobView:
    """A job that has something to say of every metric."""
    splits = {f"trips-{number}": SplitView(T0 - 1_000 * number, 1_000 * number, idle=number == 2) for number in range(3)}
    return replace(
        job_view(lag_ms=HOUR, health="failing"),
        sources={"trips": SourceView(T0 - HOUR, HOUR, "trips-2", 100, 1, splits)},
        totals=Totals(
            sources={"trips": {"read": 100, "passed": 99, "malformed": 1}},
            filters={"paid": {"in": 99, "passed": 90, "rejected": 9}},
            operators={"hourly": {"in": 90, "accepted": 88, "late": 2}, "watch": {"in": 24, "accepted": 21, "late": 0, "failed": 3}},
            outputs={"tips": 24},
            shortfalls={"hourly": {"late": Shortfalls.of([5_000, 40_000])}},
        ),
        heartbeat_at=T0 - 5_000,
        epoch_at=T0 - 9_000,
        epoch_ms=250,
        autoscaler=AutoscalerView("advise", ScalingEvaluation(T0, 2, 4, 0.5, 1.0, "why", utilization=1.25), totals={"advised": 3}),
        pressure=Backpressure(
            busy_since=T0 - 2_000,
            busy_share=0.4,
            catch_up_ms=60_000,
            waiting={"trips": Backlog(files=3, bytes=4096, rows=70, splits={"trips-0": 70})},
        ),
        restarts_done=2,
        start=DriverStart(2, T0 - 60_000, "", T0 - 50_000, {"jvm": 2_500}),
        generation=4,
        generation_seen=3,
        state_rows=10,
        state_bytes=2048,
        state_files=1,
        keyed={"watch": KeyedView(keys=12, timers=5, timers_fired=3, state_expired=2)},
        resources=RESOURCES,
    )


def everything() -> MetricSnapshot:
    on = ThresholdStates(ThresholdState(on=True, above=True), ThresholdState(on=True, above=True))
    report = WatchReport(is_leader=True, firing={"taxi": (Condition("lag", "trips", on),)}, pending={"ops": 1})
    return MetricSnapshot((busy_view(),), passed_at=T0, pass_seconds=0.25, alerts=report, counts={"ops": ReceiverCounts(sent=5, failed=2)})


def scrape(url: str) -> dict[Sample, float]:
    """Return what Prometheus would store, and check that no series comes twice."""
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - loopback
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = [((sample.name, tuple(sorted(sample.labels.items()))), sample.value) for family in families for sample in family.samples]
    found = dict(samples)
    assert len(found) == len(samples), "a series comes twice"
    return found


def series(name: str, **labels: str) -> Sample:
    return name, tuple(sorted(labels.items()))


@contextmanager
def board(shown: MetricSnapshot) -> Iterator[str]:
    made = MetricRegistry()
    made.publish(shown)
    server = serve_metrics(made, 0)
    try:
        yield server.url
    finally:
        server.close()


def test_what_a_supervisor_shows_is_what_its_views_say() -> None:
    with board(everything()) as url:
        found = scrape(url)
    assert {
        series("tidemark_scrape_success"): 1,
        series("tidemark_job_state", job="taxi", state="running", lifecycle="running", health="failing"): 1,
        series("tidemark_job_healthy", job="taxi"): 0,
        series("tidemark_restarts_total", job="taxi"): 2,
        series("tidemark_spec_generation", job="taxi"): 4,
        series("tidemark_spec_generation_seen", job="taxi"): 3,
        series("tidemark_heartbeat_timestamp_seconds", job="taxi"): T0 / 1000 - 5,
        series("tidemark_driver_start_stage_seconds", job="taxi", stage="jvm"): 2.5,
        series("tidemark_watermark_lag_seconds", job="taxi", source="trips"): 3600,
        series("tidemark_watermark_timestamp_seconds", job="taxi", source="trips"): T0 / 1000 - 3600,
        series("tidemark_split_watermark_lag_seconds", job="taxi", source="trips", split="trips-2"): 2,
        series("tidemark_source_splits", job="taxi", source="trips"): 3,
        series("tidemark_source_idle_splits", job="taxi", source="trips"): 1,
        series("tidemark_source_rows_total", job="taxi", source="trips"): 100,
        series("tidemark_source_malformed_rows_total", job="taxi", source="trips"): 1,
        series("tidemark_filter_rejected_rows_total", job="taxi", filter="paid"): 9,
        series("tidemark_operator_rows_total", job="taxi", operator="hourly"): 90,
        series("tidemark_operator_late_rows_total", job="taxi", operator="hourly"): 2,
        series("tidemark_operator_late_within_rows_total", job="taxi", operator="hourly", counter="late", seconds="10"): 1,
        series("tidemark_operator_late_within_rows_total", job="taxi", operator="hourly", counter="late", seconds="86400"): 2,
        series("tidemark_operator_failed_rows_total", job="taxi", operator="watch"): 3,
        series("tidemark_output_rows_total", job="taxi", output="tips"): 24,
        series("tidemark_epochs_total", job="taxi"): 8,
        series("tidemark_epoch_duration_seconds", job="taxi"): 0.25,
        series("tidemark_epoch_at_hand_seconds", job="taxi"): 2,
        series("tidemark_busy_ratio", job="taxi"): 0.4,
        series("tidemark_catch_up_seconds", job="taxi"): 60,
        series("tidemark_autoscaler_parallelism", job="taxi"): 2,
        series("tidemark_autoscaler_recommended_parallelism", job="taxi"): 4,
        series("tidemark_autoscaler_intake_ratio", job="taxi"): 0.5,
        series("tidemark_autoscaler_recommended_intake_ratio", job="taxi"): 1,
        series("tidemark_autoscaler_utilization_ratio", job="taxi"): 1.25,
        series("tidemark_autoscaler_decisions_total", job="taxi", kind="advised"): 3,
        series("tidemark_autoscaler_decisions_total", job="taxi", kind="scaled"): 0,
        series("tidemark_waiting_files", job="taxi", source="trips"): 3,
        series("tidemark_waiting_bytes", job="taxi", source="trips"): 4096,
        series("tidemark_waiting_rows", job="taxi", source="trips"): 70,
        series("tidemark_split_waiting_rows", job="taxi", source="trips", split="trips-0"): 70,
        series("tidemark_state_bytes", job="taxi"): 2048,
        series("tidemark_jvm_memory_used_bytes", job="taxi", area="heap"): 600e6,
        series("tidemark_jvm_memory_used_bytes", job="taxi", area="direct"): 3e6,
        series("tidemark_jvm_memory_max_bytes", job="taxi", area="heap"): 1e9,
        series("tidemark_jvm_heap_live_bytes", job="taxi"): 250e6,
        series("tidemark_jvm_gc_seconds_total", job="taxi"): 2.5,
        series("tidemark_jvm_gc_pauses_total", job="taxi"): 40,
        series("tidemark_jvm_gc_time_ratio", job="taxi"): 0.012,
        series("tidemark_process_resident_memory_bytes", job="taxi", process="jvm"): 1.4e9,
        series("tidemark_process_resident_memory_bytes", job="taxi", process="python_workers"): 480e6,
        series("tidemark_process_cpu_seconds_total", job="taxi", process="driver"): 12,
        series("tidemark_python_workers", job="taxi"): 4,
        series("tidemark_container_memory_used_bytes", job="taxi"): 2e9,
        series("tidemark_epoch_stage_seconds_total", job="taxi", stage="output tips"): 4,
        series("tidemark_store_files", job="taxi"): 12,
        series("tidemark_executor_tasks_total", job="taxi", executor="driver"): 211,
        series("tidemark_executor_shuffle_write_bytes_total", job="taxi", executor="driver"): 38_484,
        series("tidemark_executor_disk_spilled_bytes_total", job="taxi", executor="driver"): 7_000,
        series("tidemark_executor_heap_used_bytes", job="taxi", executor="driver"): 194e6,
        series("tidemark_supervisor_jobs"): 1,
        series("tidemark_supervisor_pass_duration_seconds"): 0.25,
        series("tidemark_supervisor_tells"): 1,
        series("tidemark_alerts_firing", job="taxi", rule="lag", severity="error"): 1,
        series("tidemark_alerts_waiting", receiver="ops"): 1,
        series("tidemark_alert_messages_total", receiver="ops"): 5,
        series("tidemark_alert_failures_total", receiver="ops"): 2,
    }.items() <= found.items()
    assert {name for name, _ in found} == {metric.name for metric in ALL_METRICS} | {"tidemark_scrape_success"}, "each metric is shown"


def test_names_follow_the_conventions() -> None:
    names = [metric.name for metric in ALL_METRICS]
    assert len(set(names)) == len(names)
    for metric in ALL_METRICS:
        assert re.fullmatch(r"tidemark(_[a-z]+)+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.unit in {"", "seconds", "bytes", "ratio", "rows", "files"}, "base units only"
        assert metric.text.endswith(".")
        assert all(re.fullmatch(r"[a-z]+", label) for label in metric.labels)


def test_splits_from_data_do_not_become_series_without_end() -> None:
    names = [f"zone-{number:05d}" for number in range(5_000)] + ["x" * 5_000, "x" * 5_001, "\ud800", "\ud801", '"\n\\']
    splits = {name: SplitView(T0, 1_000, idle=False) for name in names}
    view = replace(busy_view(), sources={"trips": SourceView(T0, 0, None, 0, 0, splits)})
    with board(MetricSnapshot((view,))) as url:
        found = scrape(url)
    shown = {sample for sample in found if sample[0] == "tidemark_split_watermark_lag_seconds"}
    assert len(shown) == MAX_SPLITS
    assert found[series("tidemark_source_splits", job="taxi", source="trips")] == len(names)
    assert len({safe_label(name) for name in names}) == len(names)
    odd = replace(view, sources={"trips": SourceView(T0, 0, None, 0, 0, {name: splits[name] for name in names[-5:]})})
    with board(MetricSnapshot((odd,))) as url:
        assert sum(name == "tidemark_split_watermark_lag_seconds" for name, _ in scrape(url)) == 5


def test_times_at_the_ends_of_time_are_no_numbers() -> None:
    view = replace(busy_view(), sources={"trips": SourceView(2**62, None, None, 0, 0)}, epoch=None, epoch_ms=None)
    with board(MetricSnapshot((view,))) as url:
        names = {name for name, _ in scrape(url)}
    assert names.isdisjoint({"tidemark_watermark_timestamp_seconds", "tidemark_watermark_lag_seconds", "tidemark_epochs_total"})


def test_a_thousand_jobs_are_scraped_while_passes_go_on() -> None:
    made = MetricRegistry()
    views = tuple(replace(busy_view(), job=f"job-{number}") for number in range(1000))
    with closing(serve_metrics(made, 0)) as server, repeated(lambda: made.publish(MetricSnapshot(views)), every=0.01):
        made.publish(MetricSnapshot(views))
        assert sum(name == "tidemark_epochs_total" for name, _ in scrape(server.url)) == 1000


def test_a_driver_shows_its_own_job_from_the_store(tmp_path: Path) -> None:
    root, clock, progress = JobStore.open(str(tmp_path)), ManualClock(T0), epoch_progress(7)
    owner, totals = OwnerInfo("here", 1), add_epoch(empty_totals(), progress)
    status = JobStatus("taxi", "a1", "running", T0, T0 - 1_000, last=progress, totals=totals, owner=owner)
    write_status(root, status)
    stored = StoredJob(root, "taxi", clock=clock)
    (view,) = stored.read().views
    assert view.sources["trips"].bound_ms == 999, "what the newest event and the watermark of its split are apart"
    server = serve_metrics(stored, 0)
    try:
        found = scrape(server.url)
        assert found[series("tidemark_epochs_total", job="taxi")] == 8
        assert found[series("tidemark_watermark_lag_seconds", job="taxi", source="trips")] == 1
        assert found[series("tidemark_source_rows_total", job="taxi", source="trips")] == 10
        write_status(root, replace(status, last=epoch_progress(8)))
        assert scrape(server.url)[series("tidemark_epochs_total", job="taxi")] == 8, "read at most once a second"
        clock.advance(1_000)
        assert scrape(server.url)[series("tidemark_epochs_total", job="taxi")] == 9
    finally:
        server.close()


def test_a_store_that_is_away_is_shown_as_such() -> None:
    class Away:
        def read(self) -> MetricSnapshot:
            raise StoreError("the store is away", fix="wait")

    server = serve_metrics(Away(), 0)
    try:
        assert scrape(server.url) == {series("tidemark_scrape_success"): 0}
    finally:
        server.close()


def test_it_listens_on_loopback_and_says_when_it_cannot() -> None:
    server = serve_metrics(MetricRegistry(), 0)
    try:
        assert server.url.startswith("http://127.0.0.1:")
        port = int(server.url.split(":")[2].partition("/")[0])
        with pytest.raises(
            SetupError, match=rf"cannot be served on 127\.0\.0\.1:{port}.*Fix: use another port \(of a supervisor `--metrics PORT`"
        ):
            serve_metrics(MetricRegistry(), port)
    finally:
        server.close()
    serve_metrics(MetricRegistry(), port).close()
    assert listen_address("0.0.0.0:9464") == ("0.0.0.0", 9464)  # noqa: S104 - a text
    assert listen_address("[::1]:9464") == ("::1", 9464)
    for wrong in ("", "x", "localhost:", "70000", "1:-1"):
        with pytest.raises(DefinitionError, match="is not a valid address"):
            listen_address(wrong)


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    written = (CHECKOUT / "docs/grafana/tidemark.json").read_text(encoding="utf-8")
    assert written == dashboard.text(), "run python -m docs.grafana.dashboard"
    plain = json.loads(written)
    labels = {metric.name: set(metric.labels) for metric in ALL_METRICS}
    asked: set[str] = set()
    for panel in plain["panels"]:
        for target in panel.get("targets", []):
            used = re.findall(r"(tidemark_\w+)(?:\{([^}]*)\})?", target["expr"])
            assert used
            for name, matchers in used:
                assert name in labels, target["expr"]
                assert set(re.findall(r"(\w+)=", matchers)) <= labels[name]
                asked.add(name)
            (first, *_) = used
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels[first[0]]
            counters = {metric.name for metric in ALL_METRICS if metric.kind == "counter"}
            assert all(f"rate({name}" in target["expr"] for name, _ in used if name in counters)
    assert asked == set(labels), "each metric has a panel"
    places = [tuple(panel["gridPos"].values()) for panel in plain["panels"]]
    assert not any(overlap(one, other) for number, one in enumerate(places) for other in places[:number])
    assert [panel["id"] for panel in plain["panels"]] == list(range(1, len(places) + 1))
    (_, variable) = plain["templating"]["list"]
    assert set(re.findall(r"tidemark_\w+", variable["definition"])) <= set(labels)


def overlap(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    (x1, y1, w1, h1), (x2, y2, w2, h2) = one, other
    return x1 < x2 + w2 and x2 < x1 + w1 and y1 < y2 + h2 and y2 < y1 + h1


def test_every_metric_is_in_the_documentation() -> None:
    page = (CHECKOUT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(tidemark_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", page, re.MULTILINE)
    assert rows == [(metric.name, metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.text) for metric in ALL_METRICS]


def test_opentelemetry_gets_the_same_numbers() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    reader = export.InMemoryMetricReader()
    shown = MetricRegistry()
    shown.publish(everything())
    export_metrics(shown, provider=sdk.MeterProvider([reader]))
    data = reader.get_metrics_data()
    found: dict[str, Any] = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    assert len({otel_name(metric) for metric in ALL_METRICS}) == len(ALL_METRICS)
    for info, numbers in series_of(everything()):
        metric = found[otel_name(info)]
        points = {tuple(point.attributes[label] for label in info.labels): point.value for point in metric.data.data_points}
        assert points == dict(numbers)
        if info.kind == "counter":
            assert metric.data.is_monotonic
    assert (found["tidemark.watermark_lag"].unit, found["tidemark.source.rows"].unit) == ("s", "{row}")


def test_opentelemetry_sends_by_otlp(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    bodies: list[bytes] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    shown = MetricRegistry()
    shown.publish(everything())
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
            export_metrics(shown).close()
        finally:
            server.shutdown()
            thread.join()
    request = service.ExportMetricsServiceRequest.FromString(bodies[-1])
    names = {metric.name for resource in request.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics}
    assert names == {otel_name(info) for info, _ in series_of(everything())}
