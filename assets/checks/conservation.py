"""The check that no row is lost or duplicated between a source and a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dagster as dg

from tidemark.assets.checks.check import CheckDeclaration, Finding
from tidemark.assets.checks.check_context import CheckContext
from tidemark.assets.streams.job_streams import StreamData, emitter, is_whole_side_output, output_streams
from tidemark.errors import SinkError
from tidemark.graph import FilterNode, Job, KeyedProcessNode, Node, OutputTag, SourceNode, StatefulNode
from tidemark.state import EpochProgress, Totals, add_epoch, empty_totals


@dataclass(frozen=True)
class BalanceLine:
    """One line of the balance: ``rows_in`` must equal the sum of ``parts``; ``scope`` says whose rows these are."""

    scope: str
    subject: str
    rows_in: int
    parts: tuple[tuple[str, int], ...]

    @property
    def balanced(self) -> bool:
        """Whether no row is lost or duplicated."""
        return self.rows_in == sum(rows for _, rows in self.parts)

    def __str__(self) -> str:
        terms = " + ".join(f"{name} {rows}" for name, rows in self.parts)
        return f"{self.scope}: {self.subject} {self.rows_in} = {terms}"


@dataclass(frozen=True)
class Conservation:
    """Every row that a source read was passed on, rejected or written to a table, and exactly once.

    Checked for each epoch of the run and for all epochs since the lineage began: per source ``read = passed + malformed``,
    per filter ``in = passed + rejected``, per window ``in = accepted + late``; each side output that is written unchanged must
    have as many rows as its operator emitted to it in that epoch;
    each table to which rows are appended must have as many as were committed to it.

    Args:
        output: output whose asset shows the check; the job's first main output by default.
        compare_tables: count the tables' rows; turn off for tables that other jobs write to or delete from, or that
            had rows before this lineage.
        blocking: keep downstream assets from running when it fails.
    """

    output: str | None = None
    compare_tables: bool = True
    blocking: bool = False
    name: str = "conservation"

    @property
    def compares_runs(self) -> bool:
        """False: it reads whole tables."""
        return False

    def declare(self, stream: StreamData) -> Sequence[CheckDeclaration]:
        """Return the check."""
        text = f"Rows of all sources, filters and windows of `{stream.job.name}` balance, and its tables have all committed rows."
        return (CheckDeclaration(self.name, text, self.blocking),)

    def evaluate(self, stream: StreamData, context: CheckContext) -> Iterator[Finding]:
        """Yield the finding, with the whole balance."""
        del stream  # the balance covers the whole job, whichever asset shows it
        report = context.report
        lines = [line for epoch in report.epochs for line in epoch_lines(context.job, epoch)]
        totals = list(balance("total", report.totals))
        if self.compare_tables:
            totals += table_lines(context)
        wrong = [line for line in (*lines, *totals) if not line.balanced]
        yield Finding(
            self.name,
            passed=not wrong,
            description="; ".join(str(line) for line in wrong[:5]) if wrong else f"{len(lines) + len(totals)} balances hold",
            metadata={
                "tidemark/balance": dg.MetadataValue.md("\n".join(f"- {line}" for line in totals) or "nothing was read yet"),
                "tidemark/balances": len(lines) + len(totals),
                "tidemark/unbalanced": len(wrong),
            },
        )


def balance(scope: str, totals: Totals) -> Iterator[BalanceLine]:
    """Return the lines of sources, filters and stateful operators."""
    for name, counts in totals["sources"].items():
        yield _line(scope, f"source {name}: read", counts, "read", ("passed", "malformed"))
    for name, counts in totals["filters"].items():
        yield _line(scope, f"filter {name}: in", counts, "in", ("passed", "rejected"))
    for uid, counts in totals["operators"].items():
        yield _line(scope, f"operator {uid}: in", counts, "in", tuple(name for name in counts if name != "in"))


def epoch_lines(job: Job, epoch: EpochProgress) -> Iterator[BalanceLine]:
    """Return the lines of one epoch.

    Side outputs are compared only per epoch: one that was added to a job later lacks the rows of earlier epochs.
    """
    scope, totals = f"epoch {epoch.epoch}", add_epoch(empty_totals(), epoch)
    yield from balance(scope, totals)
    yield from side_output_lines(job, scope, totals, epoch)


def side_output_lines(job: Job, scope: str, totals: Totals, epoch: EpochProgress) -> Iterator[BalanceLine]:
    """Return a line for each output that writes a side output unchanged."""
    for stream in output_streams(job):
        node = stream.output.node if stream.output is not None else None
        found = emitter(node) if node is not None and is_whole_side_output(node) else None
        written = totals["outputs"].get(stream.name)
        emitted = _emitted(*found, totals=totals, epoch=epoch) if found is not None else None
        if written is not None and emitted is not None:
            yield BalanceLine(scope, f"{stream.kind} rows emitted", emitted, ((f"in output {stream.name}", written),))


def table_lines(context: CheckContext) -> Iterator[BalanceLine]:
    """Return a line for each table to which rows are appended; none for outputs without a table or with upserts."""
    for stream in output_streams(context.job):
        if stream.changes_rows:
            continue
        committed = context.report.totals["outputs"].get(stream.name)
        try:
            table = context.table(stream)
        except SinkError:
            # Its rows cannot be counted.
            continue
        if committed is not None:
            yield BalanceLine("total", f"output {stream.name}: committed", committed, (("in the table", table.rows()),))


def _emitted(node: Node, tag: OutputTag, *, totals: Totals, epoch: EpochProgress) -> int | None:
    match node:
        case SourceNode(name=name):
            return totals["sources"].get(name, {}).get("malformed")
        case KeyedProcessNode():
            # Timers that fail are rows of its output, too, and none of its input.
            return None
        case StatefulNode(uid=str(uid)):
            return totals["operators"].get(uid, {}).get(node.counter_of(tag))
        case FilterNode():
            named = next((name for name, item in epoch.filters.items() if item.rejects_to == tag.name), "")
            return totals["filters"].get(named, {}).get("rejected")
        case _:
            return None


def _line(scope: str, subject: str, counts: dict[str, int], whole: str, parts: tuple[str, ...]) -> BalanceLine:
    return BalanceLine(scope, subject, counts.get(whole, 0), tuple((part, counts.get(part, 0)) for part in parts))
