"""A Great Expectations suite as asset checks on an output: one check per expectation, on the output's table.

The suite is plain data, as Great Expectations itself stores it, so that a code location loads without importing it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import dagster as dg

from tidemark.assets.checks.check import CheckDeclaration, Finding
from tidemark.assets.checks.check_context import CheckContext, table_of
from tidemark.assets.checks.gx_validation import ExpectationOutcome, validate_rows
from tidemark.assets.checks.sample_rows import sample_markdown
from tidemark.assets.streams.job_streams import StreamData
from tidemark.assets.values.metadata_values import MetadataItem
from tidemark.errors import DefinitionError

if TYPE_CHECKING:
    import pyarrow as pa
    from great_expectations import ExpectationSuite

Rows = Literal["table", "run"]
"""All rows of the table, or only those that this run added."""

_WARNINGS = {"warning", "info"}


@dataclass(frozen=True)
class ExpectationChecks:
    """The expectations of a suite, by check name; made by ``expectation_checks``."""

    output: str | None
    suite_name: str
    expectations: Mapping[str, Mapping[str, object]]
    rows: Rows = "table"
    severity: Literal["error", "warn"] | None = None
    blocking: bool = False
    max_rows: int = 5_000_000

    @property
    def compares_runs(self) -> bool:
        """Whether only the run's rows are checked."""
        return self.rows == "run"

    def declare(self, stream: StreamData) -> Sequence[CheckDeclaration]:
        """Return one check per expectation.

        Raises:
            SinkError: the output's sink keeps no table that can be read.
        """
        table_of(stream, None)
        scope = "rows of the run" if self.rows == "run" else "all rows"
        return tuple(
            CheckDeclaration(name, f"{given['type']}({_arguments(given)}) on {scope}, suite {self.suite_name!r}.", self.blocking)
            for name, given in self.expectations.items()
        )

    def evaluate(self, stream: StreamData, context: CheckContext) -> Iterator[Finding]:
        """Yield one finding per expectation; all pass if the table does not exist yet."""
        table = context.table(stream)
        before = context.before.get(stream.name) if self.rows == "run" else None
        if before is None and (count := table.rows()) > self.max_rows:
            yield from self._too_many(count)
            return
        rows = table.read() if before is None else table.read_since(before)
        if rows is None:
            yield from (Finding(name, passed=True, description="the table does not exist yet") for name in self.expectations)
            return
        for outcome in validate_rows(naive_times(rows), self.expectations, job=stream.job.name):
            yield self._finding(outcome, rows.num_rows)

    def _finding(self, outcome: ExpectationOutcome, rows: int) -> Finding:
        given = self.expectations[outcome.name]
        metadata: dict[str, MetadataItem] = {
            "tidemark/rows_checked": rows,
            "great_expectations/expectation": str(given["type"]),
            **{f"great_expectations/{key}": value for key, value in outcome.statistics.items()},
        }
        if outcome.sample and not outcome.success:
            metadata["tidemark/sample"] = dg.MetadataValue.md(sample_markdown(outcome.sample))
        return Finding(
            outcome.name,
            passed=outcome.success,
            description=outcome.exception or _verdict(outcome, given, rows),
            severity=self._severity(outcome.severity),
            metadata=metadata,
        )

    def _too_many(self, count: int) -> Iterator[Finding]:
        text = f"not checked: the table has {count} rows, more than max_rows={self.max_rows}; use rows='run' or raise max_rows"
        yield from (Finding(name, passed=False, description=text, severity=dg.AssetCheckSeverity.WARN) for name in self.expectations)

    def _severity(self, given: str) -> dg.AssetCheckSeverity:
        warns = given in _WARNINGS if self.severity is None else self.severity == "warn"
        return dg.AssetCheckSeverity.WARN if warns else dg.AssetCheckSeverity.ERROR


def expectation_checks(
    suite: Mapping[str, object] | ExpectationSuite | str | Path,
    *,
    output: str | None = None,
    rows: Rows = "table",
    severity: Literal["error", "warn"] | None = None,
    blocking: bool = False,
    max_rows: int = 5_000_000,
) -> ExpectationChecks:
    """Turn a suite into asset checks on an output.

    Args:
        suite: a suite as Great Expectations stores it (``{"name": ..., "expectations": [{"type", "kwargs", "meta", "severity"}]}``),
            the path of a JSON file with one, or an ``ExpectationSuite``. ``meta: {"check": "name"}`` names the check.
        output: the output; the job's first main output by default.
        rows: check the whole table, or only the rows that the run added (all rows if there is no run).
        severity: of all checks; by default each expectation's own: ``critical`` is an error, ``warning`` and ``info`` a warning.
        blocking: keep downstream assets from running when a check fails as an error.
        max_rows: a larger table is not read into memory; its checks fail as warnings.

    Raises:
        DefinitionError: the suite has no expectations, or another format.
    """
    plain = _plain(suite)
    expectations = plain.get("expectations")
    if not isinstance(expectations, Sequence) or not expectations:
        raise DefinitionError("the suite has no expectations", fix='write {"name": ..., "expectations": [{"type": ..., "kwargs": {...}}]}')
    named: dict[str, Mapping[str, object]] = {}
    for given in expectations:
        if not isinstance(given, Mapping) or not isinstance(given.get("type"), str):
            raise DefinitionError(f"{given!r} is not an expectation", fix='write {"type": "expect_...", "kwargs": {...}}')
        named[_free_name(_check_name(given), named)] = given
    return ExpectationChecks(output, str(plain.get("name", "suite")), named, rows, severity, blocking, max_rows)


def naive_times(rows: pa.Table) -> pa.Table:
    """Return the rows with timestamps as UTC times without a zone, so that expectations can compare them with plain dates."""
    import pyarrow as pa

    for index, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            rows = rows.set_column(index, field.name, rows.column(index).cast(pa.timestamp(field.type.unit)))
    return rows


def _plain(suite: Mapping[str, object] | ExpectationSuite | str | Path) -> Mapping[str, object]:
    if isinstance(suite, Mapping):
        return suite
    if isinstance(suite, str | Path):
        try:
            loaded = json.loads(Path(suite).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DefinitionError(f"the suite {suite} cannot be read: {error}", fix="pass the path of a suite's JSON file") from error
        if isinstance(loaded, Mapping):
            return loaded
        raise DefinitionError(f"the suite {suite} is not a JSON object", fix="pass the path of a suite's JSON file")
    return dict(suite.to_json_dict())


def _check_name(given: Mapping[str, object]) -> str:
    meta, kwargs = given.get("meta"), given.get("kwargs")
    wanted = meta.get("check") if isinstance(meta, Mapping) else None
    column = kwargs.get("column") if isinstance(kwargs, Mapping) else None
    text = str(wanted) if wanted else str(given["type"]) + (f"_{column}" if column else "")
    return re.sub(r"[^A-Za-z0-9_]+", "_", text)


def _free_name(name: str, taken: Mapping[str, object]) -> str:
    candidates = [name, *(f"{name}_{number}" for number in range(2, len(taken) + 2))]
    return next(candidate for candidate in candidates if candidate not in taken)


def _arguments(given: Mapping[str, object]) -> str:
    kwargs = given.get("kwargs")
    return ", ".join(f"{key}={value!r}" for key, value in kwargs.items()) if isinstance(kwargs, Mapping) else ""


def _verdict(outcome: ExpectationOutcome, given: Mapping[str, object], rows: int) -> str:
    unexpected = outcome.statistics.get("unexpected_count")
    observed = outcome.statistics.get("observed_value")
    seen = f"{unexpected} unexpected of {rows} rows" if unexpected is not None else f"observed {observed}" if observed is not None else ""
    return f"{given['type']}({_arguments(given)}) {'holds' if outcome.success else 'does not hold'}" + (f": {seen}" if seen else "")
