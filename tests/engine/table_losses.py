"""What people do to a Delta table by which it loses epochs that a job published to it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from deltalake import DeltaTable, write_deltalake

from tests.engine.delta_rig import COLUMNS, as_table, row


def restored(table: Path) -> None:
    DeltaTable(str(table)).restore(1)


def restored_and_written_to(table: Path) -> None:
    restored(table)
    write_deltalake(str(table), as_table([row("foreign", 1)]), mode="append")


def log_entries_deleted(table: Path) -> None:
    for entry in sorted((table / "_delta_log").glob("*.json"))[-2:]:
        entry.unlink()


def older_copy_written_to(table: Path) -> None:
    """A backup came back, and others wrote as many versions as the table had."""
    newest = DeltaTable(str(table)).version()
    log_entries_deleted(table)
    for _ in range(3):
        write_deltalake(str(table), as_table([row("foreign", 1)]), mode="append")
    assert DeltaTable(str(table)).version() == newest + 1


def emptied(table: Path) -> None:
    DeltaTable(str(table)).delete()


def overwritten(table: Path) -> None:
    write_deltalake(str(table), as_table([row("foreign", 1)]), mode="overwrite")


def deleted_by_a_condition_that_all_meet(table: Path) -> None:
    DeltaTable(str(table)).delete("n >= 0")


def removed(table: Path) -> None:
    shutil.rmtree(table)


def replaced(table: Path) -> None:
    newest = DeltaTable(str(table)).version()
    shutil.rmtree(table)
    for _ in range(newest + 3):
        write_deltalake(str(table), COLUMNS.empty_table(), mode="append")


def newest_epochs_files(table: Path) -> list[str]:
    log = [json.loads(line) for entry in sorted((table / "_delta_log").glob("*.json"))[-2:] for line in entry.read_text().splitlines()]
    live = set(DeltaTable(str(table)).get_add_actions()["path"].to_pylist())
    return [action["add"]["path"] for action in log if action.get("add", {}).get("path") in live]


LOSSES: tuple[Callable[[Path], None], ...] = (
    restored,
    restored_and_written_to,
    log_entries_deleted,
    older_copy_written_to,
    emptied,
    overwritten,
    deleted_by_a_condition_that_all_meet,
    removed,
    replaced,
)
