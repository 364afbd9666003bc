"""Builds the progress of an epoch that has run, for status, history, sensors and checks."""

from __future__ import annotations

from tidemark.graph.model.nodes import SourceNode, StatefulNode
from tidemark.graph.operators.registry import kind_of
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK, SourceState
from tidemark.spark.columns.row_counts import MALFORMED
from tidemark.spark.epoch.epoch import EpochRun
from tidemark.spark.operators.base.contract import LATE, OperatorEpoch
from tidemark.spark.sinks.delta.delta_changes import changes_of
from tidemark.state.log.progress import EpochProgress, OperatorProgress, OutputProgress, SourceProgress, SplitProgress


def build_progress(run: EpochRun, job: str, *, duration_ms: int, spark_jobs: int) -> EpochProgress:
    """Return the progress of an epoch; call it after ``EpochRun.execute``."""
    sources = {source.name: _source(run, source) for source in run.topology.sources}
    outputs = {
        name: OutputProgress(
            rows=record.rows,
            files=len(record.files),
            bytes=sum(file.bytes for file in record.files),
            sink=record.sink,
            location=record.location,
            changes=changes_of(record),
        )
        for name, record in run.outputs.items()
    }
    return EpochProgress(
        job=job,
        lineage=run.plan.lineage,
        epoch=run.plan.epoch,
        processing_time=run.plan.processing_time,
        duration_ms=duration_ms,
        rows_in=sum(source.rows_read for source in sources.values()),
        rows_out=sum(output.rows for output in outputs.values()),
        sources=sources,
        filters=run.conservation.filters(),
        operators={run.topology.name(node): _operator(run, node, run.operators[id(node)]) for node in run.topology.operators},
        outputs=outputs,
        stages=dict(run.stages),
        spark_jobs=spark_jobs,
        end_of_input=run.plan.end_of_input,
        transforms=run.conservation.transforms(),
    )


def _source(run: EpochRun, source: SourceNode) -> SourceProgress:
    state = run.sources[source.name]
    end = run.rows.ends.get(source.name)
    row_counts = run.conservation.counts_of(end) if end is not None else None
    read = row_counts.total if row_counts else 0
    malformed = row_counts.by_status.get(MALFORMED, 0) if row_counts else 0
    observed = run.observed[source.name]
    watermark = known(state.watermark)
    return SourceProgress(
        rows_read=read,
        rows_passed=read - malformed,
        rows_malformed=malformed,
        watermark=watermark,
        lag_ms=None if watermark is None or run.plan.end_of_input else run.plan.processing_time - watermark,
        held_by=_held_by(state),
        splits={
            name: SplitProgress(
                rows=observed[name].rows if name in observed else 0,
                watermark=known(split.watermark),
                max_event_time=split.max_event_time,
                idle=split.idle,
            )
            for name, split in state.splits.items()
        },
    )


def _held_by(state: SourceState) -> str | None:
    """Return the active split with the least watermark, None where the source has no splits."""
    active = {name: split.watermark for name, split in state.splits.items() if not split.idle and name}
    return min(active, key=lambda name: (active[name], name)) if active else None


def _operator(run: EpochRun, node: StatefulNode, operator: OperatorEpoch) -> OperatorProgress:
    """Return the progress of an operator: the fields common to all kinds, and those that its kind adds."""
    state = operator.snapshot()
    ports = run.conservation.input_counts.get(id(node), {}).values()
    others: dict[str, int] = {}
    for counts in ports:
        for name, rows in counts.others.items():
            others[name] = others.get(name, 0) + rows
    common = OperatorProgress(
        rows_in=sum(run.conservation.rows_emitted(port.node) for port in node.ports),
        rows_accepted=sum(counts.accepted for counts in ports),
        rows_late=others.pop(LATE, 0),
        watermark=known(state.watermark),
        panes_on_time=0,
        panes_late=0,
        state_rows=sum(file.rows for file in state.files),
        state_bytes=sum(file.bytes for file in state.files),
        state_files=len(state.files),
        late_to=node.side_tags[LATE].name if LATE in node.side_tags else None,
        counters=others,
        kind=node.KIND,
        late_counters=tuple(name for name in kind_of(node).late_counters(node) if name != LATE),
    )
    return operator.progress(common)


def known(watermark: int) -> int | None:
    """Return a watermark, None where there is none yet."""
    return None if watermark == MIN_WATERMARK else watermark
