"""What the demo prints at its end: the tables, late and malformed records, the checks, the watermark, and whether the counts balance."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow import fs
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from examples.taxi.dispatch_events import DispatchCounts
from examples.taxi.generator import WaveCounts
from tidemark.clock import format_ms
from tidemark.state import JobStatus

TABLES = ("hourly_tips", "late_trips", "rejected_trips", "malformed_trips")


def print_report(
    console: Console,
    home: Path,
    status: JobStatus,
    checks: Sequence[dg.AssetCheckEvaluation],
    *,
    expected: WaveCounts,
    expected_late: int,
) -> bool:
    """Print the report.

    Args:
        console: where to.
        home: the demo's folder.
        status: the job's last status.
        checks: the asset checks of the last materialization.
        expected: what the generator wrote.
        expected_late: how many of its records the rule makes late.

    Returns:
        Whether every record is accounted for: the counts balance and agree with the generator and the tables.
    """
    tables = {name: read_table(home / "warehouse" / name) for name in TABLES}
    print_hourly(console, tables["hourly_tips"])
    print_late(console, tables["late_trips"])
    print_malformed(console, tables["malformed_trips"])
    print_checks(console, checks)
    if status.last is not None:
        console.print(f"\n[bold]Watermark[/bold] {format_ms(status.last.watermark)} after epoch {status.last.epoch}")
    balanced = print_books(console, status)
    agreed = print_comparison(console, tables, status, expected=expected, expected_late=expected_late)
    return balanced and agreed


def read_table(path: Path) -> pa.Table:
    """Return a Delta table's rows; a table without columns if the job has not created it yet."""
    if not DeltaTable.is_deltatable(str(path)):
        return pa.table({})
    # Through a file system in Python, Arrow's threads may still close files when Python ends, which aborts the process.
    return DeltaTable(str(path)).to_pyarrow_table(filesystem=fs.SubTreeFileSystem(str(path), fs.LocalFileSystem()))


def print_hourly(console: Console, table: pa.Table) -> None:
    """Print the hours and zones with the most tips, and how many panes there are."""
    if table.num_rows == 0:
        console.print("\nNo window has closed yet.")
        return
    timing = {row["values"]: row["counts"] for row in pc.value_counts(table["pane_timing"]).to_pylist()}
    panes = ", ".join(f"{name} {count:,}" for name, count in timing.items())
    view = Table(title=f"hourly_tips: {table.num_rows:,} rows ({panes}); those with the most tips")
    columns = ("pickup_zone", "window_start", "trips", "tips", "fares", "typical_fare", "pane_timing", "pane_index")
    for name in columns:
        view.add_column(name, justify="left" if name in {"window_start", "pane_timing"} else "right")
    for row in table.sort_by([("tips", "descending")]).slice(0, 8).to_pylist():
        view.add_row(*(cell(row[name]) for name in columns))
    console.print()
    console.print(view)


def print_late(console: Console, table: pa.Table, *, rows: int = 4) -> None:
    """Print some of the trips that came after their window had expired."""
    columns = ("pickup_datetime", "dropoff_datetime", "minutes", "pickup_location_id", "fare_amount")
    view = Table(*columns, title=f"late_trips: {table.num_rows:,} rows, such as")
    for row in table.slice(0, rows).to_pylist():
        view.add_row(*(cell(row[name]) for name in columns))
    console.print()
    console.print(view)


def print_malformed(console: Console, table: pa.Table) -> None:
    """Print why records are malformed, each reason with an example."""
    view = Table(title=f"malformed_trips: {table.num_rows:,} rows")
    view.add_column("reason", max_width=34)
    view.add_column("rows", justify="right")
    view.add_column("such as", no_wrap=True, overflow="ellipsis", max_width=80)
    reasons = table.column("reason").to_pylist() if table.num_rows else []
    for reason in sorted(set(reasons)):
        raw = table.column("raw")[reasons.index(reason)].as_py()
        view.add_row(escape(str(reason)), f"{reasons.count(reason):,}", escape(str(raw)))
    console.print()
    console.print(view)


def print_checks(console: Console, checks: Sequence[dg.AssetCheckEvaluation]) -> None:
    """Print the asset checks of the last materialization."""
    view = Table(title="Asset checks")
    for name in ("asset", "check", "result"):
        view.add_column(name)
    for check in sorted(checks, key=lambda check: (check.asset_key, check.check_name)):
        result = "[green]passed[/green]" if check.passed else f"[yellow]{check.severity.value.lower()}[/yellow]"
        view.add_row(check.asset_key.to_user_string(), check.check_name, result)
    console.print()
    console.print(view)


def print_books(console: Console, status: JobStatus) -> bool:
    """Print the conservation lines; returns whether all balance."""
    console.print("\n[bold]Conservation[/bold], from what was committed:")
    totals = status.totals
    lines = [("source", name, counts, ("read", "passed", "malformed")) for name, counts in totals["sources"].items()]
    lines += [("filter", name, counts, ("in", "passed", "rejected")) for name, counts in totals["filters"].items()]
    lines += [("window", name, counts, ("in", "accepted", "late")) for name, counts in totals["operators"].items()]
    balanced = [print_line(console, kind, name, counts, terms) for kind, name, counts, terms in lines]
    return all(balanced)


def print_line(console: Console, kind: str, name: str, counts: Mapping[str, int], terms: tuple[str, str, str]) -> bool:
    """Print one conservation line; returns whether it balances."""
    total, *parts = (counts[term] for term in terms)
    holds = total == sum(parts)
    line = f"  {kind} {name:<14} {terms[0]} {total:,} = {terms[1]} {parts[0]:,} + {terms[2]} {parts[1]:,}"
    console.print(line, mark(holds=holds), highlight=False)
    return holds


def print_comparison(
    console: Console, tables: Mapping[str, pa.Table], status: JobStatus, *, expected: WaveCounts, expected_late: int
) -> bool:
    """Print the generator's numbers beside the tables'; returns whether they agree."""
    read = sum(counts["read"] for counts in status.totals["sources"].values())
    rows = {
        "records read": (expected.total, read),
        "rejected_trips": (expected.rejected, tables["rejected_trips"].num_rows),
        "malformed_trips": (expected.malformed, tables["malformed_trips"].num_rows),
        "late_trips": (expected_late, tables["late_trips"].num_rows),
    }
    console.print("\n[bold]Generated and found[/bold]:")
    for name, (wanted, found) in rows.items():
        console.print(f"  {name:<16} {wanted:>8,} generated, {found:>8,} found", mark(holds=wanted == found), highlight=False)
    return all(wanted == found for wanted, found in rows.values())


def same_tips(by_function: pa.Table, by_window: pa.Table) -> bool:
    """Return whether a process function and a window have the same tips of each driver and hour, to a millionth of a dollar."""
    one = {(row["driver_id"], row["hour"]): row["tips"] for row in by_function.to_pylist()}
    other = {(row["driver_id"], row["window_start"]): row["tips"] for row in by_window.to_pylist()}
    return one.keys() == other.keys() and all(abs(tips - other[key]) < 1e-6 for key, tips in one.items())


def print_dispatch(console: Console, home: Path, status: JobStatus, expected: DispatchCounts) -> bool:
    """Print what the process functions of the dispatcher's job made, beside the generator's numbers; returns whether they agree."""
    folder = home / "warehouse" / status.job
    console.print("\n[bold]Process functions[/bold] over the events of airport rides, generated and found:")
    holds = []
    for name, wanted in dataclasses.asdict(expected).items():
        found = read_table(folder / name).num_rows
        holds.append(wanted == found)
        console.print(f"  {name:<16} {wanted:>8,} generated, {found:>8,} found", mark(holds=holds[-1]), highlight=False)
    by_function, by_window = (read_table(folder / name) for name in ("driver_tips", "driver_tips_by_window"))
    holds.append(same_tips(by_function, by_window))
    rows = f"{by_window.num_rows:>8,} by windows, {by_function.num_rows:>8,} by timers"
    console.print(f"  {'driver_tips':<16} {rows}", mark(holds=holds[-1]), highlight=False)
    operators = status.last.operators if status.last is not None else {}
    kept = [f"{uid} {item.keys:,} and {item.timers:,}" for uid, item in operators.items() if item.is_process_function]
    console.print(f"  keys kept and timers set: {', '.join(kept)}", highlight=False)
    return all(holds)


def mark(*, holds: bool) -> str:
    """Return a word for whether something holds."""
    return "[green]holds[/green]" if holds else "[bold red]DOES NOT HOLD[/bold red]"


def cell(value: object) -> str:
    """Return a value for a table's cell."""
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return "" if value is None else str(value)
