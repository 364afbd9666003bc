"""The unread rows of a running job in the metadata of its observations."""

from __future__ import annotations

from dataclasses import replace

import dagster as dg
import pytest

from tidemark.sensors.reports.waiting_metadata import MAX_SPLITS, waiting_metadata
from tidemark.state import JobStatus
from tidemark.state.status.driver_load import Backlog, Load

pytestmark = pytest.mark.dagster

LOAD = Load(10_000, 20, 200_000, 0.25, 2_500, 50_000, 4_000)


def status(**waiting: Backlog) -> JobStatus:
    return JobStatus("fares", "a1", "running", 0, 0, load=replace(LOAD, waiting=waiting))


def test_partitions_with_most_unread_records_are_shown() -> None:
    splits = {f"fares-{number}": number for number in range(MAX_SPLITS + 8)}
    found = waiting_metadata(status(fares=Backlog(rows=sum(splits.values()), splits=splits), landing=Backlog(files=3, bytes=10)))
    assert found["tidemark/waiting_rows"] == sum(splits.values())
    shown = found["tidemark/waiting_rows_by_partition"]
    largest = sorted(splits, key=splits.__getitem__, reverse=True)[:MAX_SPLITS]
    assert isinstance(shown, dg.JsonMetadataValue)
    assert isinstance(shown.value, dict)
    assert list(shown.value) == [f"fares {split}" for split in largest]


def test_nothing_is_shown_where_it_is_not_known() -> None:
    assert waiting_metadata(status(landing=Backlog(files=3, bytes=10))) == {}
    assert waiting_metadata(JobStatus("fares", "a1", "stopped", 0, 0)) == {}
    assert waiting_metadata(status(lake=Backlog(rows=4))) == {"tidemark/waiting_rows": 4}
