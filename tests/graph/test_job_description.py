"""A job as data: what is read back says the same as the job, without its code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from inspect import isabstract
from pathlib import Path
from typing import Any

import pytest

import tidemark as tm
from examples.taxi.dispatch import dispatch_job as dispatch
from examples.taxi.job import job as taxi
from examples.transfers.job import build_job as build_transfers
from tests.savepoints.every_operator import streams_of
from tidemark.control import job_document, job_document_apart, read_job_document
from tidemark.errors import DefinitionError
from tidemark.graph import (
    DescribedJob,
    Job,
    WindowNode,
    code_version,
    describe_firing,
    describe_job,
    described_job,
    kind_of,
    lineage,
    output_schema,
)
from tidemark.graph.job.described_classes import described_classes
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.nodes import StatefulNode
from tidemark.graph.operators.registry import kinds
from tidemark.semantics.watermarks.watermark_generators import SplitStats

GOLDEN = Path(__file__).parent / "golden_description.json"
RIDES = "zone INT, fare DOUBLE, at TIMESTAMP"


def every_operator() -> Job:
    streams = streams_of(Path("landing"))
    return tm.Job("every", {name: tm.parquet(stream, f"warehouse/{name}") for name, stream in streams.items()}, owners=["team:a"])


def every_connector() -> Job:
    """A job with a sink of each connector."""
    rides = tm.source("rides", tm.files("landing", format="json", schema=RIDES), watermarks=tm.ascending(timestamp="at"))
    return tm.Job(
        "connectors",
        {
            "kafka": tm.kafka_sink(rides, servers="localhost:9092", topic="rides"),
            "postgres": tm.postgres(rides, table="rides", dsn_env="RIDES_DSN"),
            "sqlite": tm.sql_table(rides, database="sqlite", table="rides", dsn_env="RIDES_FILE"),
            "iceberg": tm.iceberg(rides, table="lake.rides", catalog="lake"),
        },
    )


class Lagging:
    """A watermark generator of the user's own."""

    bound_ms = 7_000
    options = "password=hunter2"

    @property
    def metrics(self) -> dict[str, str]:
        return {}

    def watermark(self, stats: SplitStats) -> int | None:
        return None if stats.max_event_time is None else stats.max_event_time - self.bound_ms


class Loud(tm.QuietTrigger):
    """A trigger of the user's own."""

    def describe(self) -> str:
        return "loud()"


def described(job: Job) -> DescribedJob:
    return described_job(json.loads(json.dumps(describe_job(job, "rides.job:job"))))


JOBS = (taxi, dispatch, build_transfers("landing", "warehouse"), every_operator(), every_connector())


@pytest.mark.parametrize("job", JOBS, ids=[job.name for job in JOBS])
def test_a_described_job_says_what_the_job_says(job: Job) -> None:
    found = described(job)
    assert found.explain() == job.explain()
    assert found.explain("mermaid") == job.explain("mermaid")
    assert code_version(found) == code_version(job)
    assert (found.name, found.store, found.owners, found.tags, found.description) == (
        job.name,
        job.store,
        job.owners,
        job.tags,
        job.description,
    )
    for name, output in job.outputs.items():
        schema = output_schema(output)
        assert output_schema(found.outputs[name]) == schema
        for column in schema.names if schema is not None else ():
            assert lineage(found.outputs[name].node, column) == lineage(output.node, column)


def test_every_kind_of_operator_is_described() -> None:
    seen = {node.KIND for job in JOBS for node in job.nodes if isinstance(node, StatefulNode)}
    assert seen <= kinds().keys()
    assert kinds().keys() - seen == set()


def test_every_connector_is_described() -> None:
    sinks = {type(output.sink) for output in every_connector().outputs.values()}
    assert sinks == {kind for kind in all_subclasses(ConnectorSpec) if not isabstract(kind)}
    assert {type(output.sink) for output in described(every_connector()).outputs.values()} == sinks


def test_counters_and_side_outputs_are_the_operators_own() -> None:
    job = every_operator()
    pairs = [(a, b) for a, b in zip(job.nodes, described(job).nodes, strict=True) if isinstance(a, StatefulNode)]
    assert pairs
    for own, read in pairs:
        assert isinstance(read, StatefulNode)
        assert read.uid == own.uid
        assert read.side_tags == own.side_tags
        assert kind_of(read).counters(read) == kind_of(own).counters(own)
        assert read.bound_ms == own.bound_ms


def test_what_is_the_users_own_keeps_its_name_and_cannot_run() -> None:
    rides = tm.source("rides", tm.files("landing", format="json", schema=RIDES), watermarks=tm.ascending(timestamp="at"))
    job = tm.Job("rides", {"doubled": tm.parquet(rides.map(double, returns=RIDES), "warehouse/doubled")})
    (node,) = (node for node in described(job).nodes if hasattr(node, "function"))
    with pytest.raises(DefinitionError, match="double is known by its description only"):
        node.function({"fare": 1.0})


def test_triggers_and_watermarks_of_the_users_own_keep_their_texts() -> None:
    spec = tm.files("landing", format="json", schema=RIDES)
    rides = tm.source("rides", spec, watermarks=tm.watermark_strategy(Lagging(), timestamp="at"))
    hourly = rides.key_by("zone").window(tm.tumbling("1 hour")).trigger(Loud()).aggregate(n=tm.count()).uid("hourly")
    job = tm.Job("rides", {"hourly": tm.parquet(hourly, "warehouse/hourly")})
    found = described(job)
    assert "watermarks by Lagging" in found.explain()
    assert found.explain() == job.explain()
    (window,) = (node for node in found.nodes if isinstance(node, WindowNode))
    assert describe_firing(window) == "tumbling 1h, trigger loud"
    assert found.sources["rides"].watermarks.generator.bound_ms == 7_000
    assert "hunter2" not in json.dumps(describe_job(job, "rides.job:job"))


def test_a_described_job_is_not_run() -> None:
    with pytest.raises(DefinitionError, match=r"cannot run.*Fix: run the job that its code declares, rides\.job:job"):
        tm.run(described(taxi))


def all_subclasses(base: type) -> Iterator[type]:
    kind: type
    for kind in base.__subclasses__():
        yield kind
        yield from all_subclasses(kind)


def double(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "fare": row["fare"] * 2}


def test_secrets_are_not_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hidden_rides.py").write_text(
        "import tidemark as tm\n"
        "options = {'subscribe': 'rides', 'kafka.sasl.jaas.config': 'user=\"a\" password=\"hunter2\"'}\n"
        "source = tm.source('rides', tm.streaming_format('kafka', options=options), watermarks=tm.ascending(timestamp='timestamp'))\n"
        "job = tm.Job('rides', {'all': tm.parquet(source, 'lake/all')}, description='see https://a:hunter2@wiki.example/rides')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    document = job_document("hidden_rides:job")
    assert "hunter2" not in document
    assert "subscribe" in document
    assert read_job_document(document).name == "rides"


def wrong_documents() -> Iterator[tuple[str, object]]:
    yield "no description", {"jobs": []}
    yield "nothing", None
    yield "another format", {**describe_job(taxi, "a:b"), "format": 99}
    yield "no graph", {key: value for key, value in describe_job(taxi, "a:b").items() if key != "graph"}
    changes: dict[str, dict[str, object]] = {
        "a class that is not Tidemark's": {"is": "Popen"},
        "an unknown field": {"colour": "red"},
        "a node that is not there": {"inputs": [{"node": 99}]},
        "no node": {"is": "OutputTag", "name": "late"},
    }
    for name, change in changes.items():
        found: dict[str, Any] = json.loads(json.dumps(describe_job(taxi, "a:b")))
        nodes = found["graph"]["nodes"]
        nodes[-1] = change if "name" in change else {**nodes[-1], **change}
        yield name, found


@pytest.mark.parametrize(("name", "document"), list(wrong_documents()), ids=[name for name, _ in wrong_documents()])
def test_a_damaged_description_is_refused_with_the_fix(name: str, document: object) -> None:
    del name
    with pytest.raises(DefinitionError, match="refresh-defs-state"):
        described_job(document)


def test_a_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(DefinitionError, match="tidemark graph MODULE:JOB --json"):
        read_job_document("job taxi\n")


def test_a_description_of_an_earlier_build_is_read() -> None:
    job = read_job_document(GOLDEN.read_text(encoding="utf-8"))
    assert job.explain() == GOLDEN.with_suffix(".txt").read_text(encoding="utf-8").rstrip("\n")
    assert (job.code, job.version) == ("rides.job:job", "6a4d3c0f9f6b1c52")


def test_classes_are_found_by_names_that_differ() -> None:
    found = described_classes()
    assert {name for name, each in found.items() if each.__qualname__ != name} == set()
    assert all(each.__module__.startswith("tidemark.") for each in found.values())


def test_the_command_prints_one_document(tmp_path: Path) -> None:
    (tmp_path / "loud_rides.py").write_text("print('imported')\nfrom examples.taxi.job import job\n")
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from tidemark.cli.program.main import main; main()",
    ]
    done = subprocess.run([*command, "graph", "loud_rides:job", "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["job"]["name"] == "taxi"


def test_a_process_of_its_own_imports_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other_rides.py").write_text("print('imported')\nfrom examples.taxi.job import job\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert read_job_document(job_document_apart("other_rides:job")).explain() == taxi.explain()
    assert "other_rides" not in sys.modules


def test_why_a_job_cannot_be_described_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_rides.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DefinitionError, match=r"broken_rides:job cannot be described: .*ZeroDivisionError.*Fix: correct it"):
        job_document_apart("broken_rides:job")
