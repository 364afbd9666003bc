"""What holds of a job's files on disk holds on S3: tests of the state layer, on a store there."""

# ruff: noqa: F401 - these are collected here, with this folder's fixtures

from __future__ import annotations

import pytest

from tests.object_store.s3_server import S3Server
from tests.state.test_joblog import (
    test_a_crash_inside_retention_is_finished_by_the_next,
    test_a_driver_goes_on_from_the_head,
    test_a_driver_that_slept_through_retention_cannot_commit,
    test_a_fenced_driver_learns_by_whom,
    test_a_fenced_driver_retires_nothing,
    test_a_missing_newest_record_shows_by_the_heartbeat,
    test_a_missing_record_is_an_error,
    test_a_missing_segment_is_an_error,
    test_an_empty_log_has_no_head,
    test_an_unknown_outcome_then_another_record_is_not_called_fenced,
    test_of_two_drivers_only_one_begins,
    test_of_two_drivers_racing_for_a_slot_one_is_fenced,
    test_retention_keeps_the_newest_and_one_contiguous_run,
    test_segments_go_on_across_drivers,
    test_the_same_append_again_is_the_same_commit,
)
from tests.state.test_store import (
    test_a_view_does_not_see_a_folder_whose_name_begins_alike,
    test_create_succeeds_once_and_leaves_the_first,
    test_deletes_all_even_when_one_is_gone,
    test_move_replaces_and_leaves_nothing_behind,
    test_of_racing_creators_exactly_one_wins,
    test_paths_cannot_leave_the_store,
    test_reads_what_it_wrote,
    test_scoped_views_see_their_folder_only,
    test_tail_of_short_and_long_objects,
)
from tests.state.test_sweep import (
    ahead,
    test_a_fenced_driver_deletes_nothing,
    test_a_pin_holds_its_record_after_the_log_let_it_go,
    test_nothing_is_deleted_while_a_record_cannot_be_read,
    test_orphans_of_all_folders_go_and_what_is_needed_stays,
    test_pins_refuse_bad_names_taken_names_and_epochs_that_are_gone,
    test_tombstones_outlive_their_driver,
)
from tidemark.errors import UnknownStoreError
from tidemark.state.store.store import JobStore


def test_addresses_are_those_of_obstore_and_of_spark(root: JobStore) -> None:
    assert root.at("taxi").uri == f"s3://{root.location.bucket}/jobs/taxi"
    assert root.at("taxi").spark_uri("state/x") == f"s3a://{root.location.bucket}/jobs/taxi/state/x"


def test_folders_between_two_names_are_those_of_all_that_there_are(root: JobStore) -> None:
    names = [f"a1-{number:03d}" for number in range(20)]
    for name in names:
        root.put(f"out/{name}/rows", b"x")
        root.put(f"out/{name}/more/rows", b"x")
    root.put("out/a1-005", b"no folder")
    assert root.folders("out") == tuple(names)
    assert root.folders("out", start="a1-007") == tuple(names[7:])
    assert root.folders("out", start="a1-007", stop="a1-016") == tuple(names[7:16])
    root.remove_folder("out")
    assert root.list() == ()


def test_an_object_of_several_parts_is_read_as_it_was_written(root: JobStore) -> None:
    pieces = [bytes([number]) * 3_000_000 for number in range(6)]
    root.put_chunks("big", pieces)
    assert b"".join(root.chunks("big")) == b"".join(pieces)
    assert root.tail("big", 4) == (b"\x05" * 4, 18_000_000)


def test_marks_of_folders_are_no_files(root: JobStore, s3: S3Server) -> None:
    root.put("state/u/a.parquet", b"x")
    root.put("state/u/empty", b"")
    before = [file.path for file in root.list()]
    for folder in ("", "state/", "state/u/", "state/gone/"):
        assert s3.put(f"/{root.location.bucket}/jobs/{folder}") == 200
    assert [file.path for file in root.list()] == before == ["state/u/a.parquet", "state/u/empty"]
    assert [file.path for file in root.at("state").list()] == ["u/a.parquet", "u/empty"]


def test_whoever_only_reads_is_told_of_a_mistyped_place(root: JobStore) -> None:
    root.put("taxi/status.json", b"x")
    assert JobStore.open(root.uri, make=False).folders() == ("taxi",)
    with pytest.raises(UnknownStoreError, match=r"there is nothing at s3://lake-[0-9]+/job: no object's name begins so"):
        JobStore.open(root.uri.removesuffix("s"), make=False)
