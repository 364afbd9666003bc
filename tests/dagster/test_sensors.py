from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import tidemark as tm
from tests.dagster.fake_engine import HOUR, START, FakeEpoch, commit_status, make_job, window_rows
from tidemark.clock import format_ms
from tidemark.errors import AlertError, DefinitionError, DurationError
from tidemark.resources import Alert, AlertResource
from tidemark.sensors import SensorOptions, build_late_data_sensor, build_watermark_lag_sensor
from tidemark.sensors.late_data import decide_late
from tidemark.sensors.sensor_cursor import SensorCursor, decode_cursor
from tidemark.state import read_history
from tidemark.state.log.heartbeat import Heartbeat, write_heartbeat
from tidemark.state.log.joblog import DEFAULT_LEASE_MS
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.totals import add_epoch
from tidemark.state.status.status import State, write_status
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

pytestmark = pytest.mark.dagster

MINUTE = 60_000
SENT: list[Alert] = []


class RecordingAlert(AlertResource):
    fails: bool = False

    def send(self, alert: Alert) -> None:
        if self.fails:
            raise AlertError("no line", fix="mend it")
        SENT.append(alert)


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()


def tick(sensor: dg.SensorDefinition, cursor: str | None, *, fails: bool = False, **resources: Any) -> dg.SensorResult:
    context = dg.build_sensor_context(cursor=cursor, resources={"alerts": RecordingAlert(fails=fails), **resources})
    result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    return result


def epoch(minutes_behind: int = 6, **given: Any) -> FakeEpoch:
    return FakeEpoch(window_rows((1, 0, 0, 3)), behind_ms=minutes_behind * 60_000, **given)


def job_at(tmp_path: Path) -> tm.Job:
    return make_job(tmp_path, store=str(tmp_path / "store"))


def test_a_job_that_never_ran_is_skipped(tmp_path: Path) -> None:
    for sensor in (build_watermark_lag_sensor(job_at(tmp_path)), build_late_data_sensor(job_at(tmp_path))):
        result = tick(sensor, None)
        assert "no epoch yet" in str(result.skip_reason)
        assert result.cursor is None


def test_lag_is_told_once_per_change_and_says_what_holds_it_back(tmp_path: Path) -> None:
    job, store = job_at(tmp_path), tmp_path / "store"
    sensor = build_watermark_lag_sensor(job)
    cursor: str | None = None
    told = []
    for minutes in (6, 26, 30, 80, 90, 30, 6, 6):
        commit_status(job, store, [epoch(minutes, held_by="3")])
        cursor = tick(sensor, cursor).cursor
        told.append([alert.level for alert in SENT])
        SENT.clear()
        again = tick(sensor, cursor)
        assert again.cursor == cursor
        assert not SENT
    assert told == [[], ["warn"], [], ["error"], [], ["warn"], ["resolved"], []]


def test_the_alert_names_source_split_lag_and_limit(tmp_path: Path) -> None:
    job = job_at(tmp_path)
    commit_status(job, tmp_path / "store", [epoch(26, held_by="3")])
    result = tick(build_watermark_lag_sensor(job), None)
    (alert,) = SENT
    assert (
        alert.text
        == "source 'trips' is 26m behind (watermark 2024-03-04T00:34:00.000Z, held back by split '3') at epoch 0; the limit is 25m"
    )
    assert alert.facts["lag_ms"] == 26 * 60_000
    assert alert.facts["held_by"] == "3"
    assert "held back by split '3'" in str(result.skip_reason)
    assert not result.run_requests


def test_a_receiver_that_fails_fails_the_tick_and_is_asked_again(tmp_path: Path) -> None:
    job = job_at(tmp_path)
    commit_status(job, tmp_path / "store", [epoch(26)])
    sensor = build_watermark_lag_sensor(job)
    with pytest.raises(AlertError, match="no line"):
        tick(sensor, None, fails=True)
    tick(sensor, None)
    assert len(SENT) == 1


def test_another_lineage_is_told_anew(tmp_path: Path) -> None:
    job, store = job_at(tmp_path), tmp_path / "store"
    sensor = build_watermark_lag_sensor(job)
    commit_status(job, store, [epoch(26)])
    cursor = tick(sensor, None).cursor
    commit_status(job, store, [epoch(26)], lineage="l2")
    tick(sensor, cursor)
    assert [alert.facts["lineage"] for alert in SENT] == ["l1", "l2"]


def test_what_another_lineage_mends_is_resolved(tmp_path: Path) -> None:
    job, store = job_at(tmp_path), tmp_path / "store"
    sensor = build_watermark_lag_sensor(job)
    commit_status(job, store, [epoch(80)])
    cursor = tick(sensor, None).cursor
    commit_status(job, store, [epoch(6)], lineage="l2")
    cursor = tick(sensor, cursor).cursor
    assert [alert.level for alert in SENT] == ["error", "resolved"]
    commit_status(job, store, [epoch(6)], lineage="l3")
    tick(sensor, cursor)
    assert len(SENT) == 2


def test_a_source_that_is_not_read_any_more_lags_no_more(tmp_path: Path) -> None:
    job, store = job_at(tmp_path), tmp_path / "store"
    sensor = build_watermark_lag_sensor(job)
    commit_status(job, store, [epoch(6)])
    cursor = tick(sensor, None).cursor
    assert cursor is not None
    cursor = tick(sensor, json.dumps({**json.loads(cursor), "said": {"former": "error", "trips": "ok"}})).cursor
    assert [(alert.level, alert.facts["source"]) for alert in SENT] == [("resolved", "former")]
    assert "source 'former' is no longer read" in SENT[0].text
    tick(sensor, cursor)
    assert len(SENT) == 1


def test_a_worse_lag_asks_for_a_run_of_the_target(tmp_path: Path) -> None:
    job = job_at(tmp_path)
    commit_status(job, tmp_path / "store", [epoch(26)])
    options = SensorOptions(target=dg.AssetSelection.assets("downstream"), alert_key=None)
    result = tick(build_watermark_lag_sensor(job, options=options), None)
    assert result.run_requests is not None
    assert [request.run_key for request in result.run_requests] == ["cabs:watermark-lag:l1:0"]
    assert not SENT


@pytest.mark.parametrize("state", ["running", "failed"])
def test_a_job_that_stands_still_lags_by_the_clock(tmp_path: Path, state: State) -> None:
    job, store = job_at(tmp_path), tmp_path / "store"
    root = JobStore.open(str(store))
    status = replace(commit_status(job, store, [epoch(6)]), state=state)
    write_status(root, status)
    clock = ManualClock(status.heartbeat_at)
    options = SensorOptions(target=dg.AssetSelection.assets("downstream"))
    sensor = build_watermark_lag_sensor(job, clock=clock, options=options)
    # The job waits for input for an hour, and its driver is alive.
    clock.advance(60 * MINUTE)
    beat = Heartbeat(1, current_owner(), clock.now_ms(), 1)
    write_heartbeat(root.at(job.name), beat)
    clock.advance(DEFAULT_LEASE_MS - 1)
    cursor = tick(sensor, None).cursor
    assert not SENT
    # Then it is not: the limits are 25 and 75 minutes, and the watermark is 66 behind the clock, and later 76.
    clock.advance(1)
    result = tick(sensor, cursor)
    (alert,) = SENT
    assert alert.level == "warn"
    assert alert.facts["lag_ms"] == 66 * MINUTE + DEFAULT_LEASE_MS
    assert f"the job is {state}, and has sent no heartbeat since {format_ms(beat.at)}" in alert.text
    assert [request.run_key for request in result.run_requests or ()] == [f"cabs:watermark-lag:l1:0:silent-{beat.at}:warn"]
    again = tick(sensor, result.cursor)
    assert len(SENT) == 1
    assert "no heartbeat since" in str(again.skip_reason)
    clock.advance(10 * MINUTE)
    worse = tick(sensor, again.cursor)
    cursor = worse.cursor
    assert [alert.level for alert in SENT] == ["warn", "error"]
    assert [request.run_key for request in worse.run_requests or ()] == [f"cabs:watermark-lag:l1:0:silent-{beat.at}:error"]
    # A driver is there again, with nothing to read yet.
    write_heartbeat(root.at(job.name), replace(beat, at=clock.now_ms()))
    tick(sensor, cursor)
    assert [alert.level for alert in SENT] == ["warn", "error", "resolved"]
    assert "heartbeat" not in SENT[-1].text


@pytest.mark.parametrize("state", ["finished", "stopped"])
def test_a_job_that_ended_does_not_lag_by_the_clock(tmp_path: Path, state: State) -> None:
    job, store = job_at(tmp_path), tmp_path / "store"
    status = replace(commit_status(job, store, [epoch(6)]), state=state)
    write_status(JobStore.open(str(store)), status)
    tick(build_watermark_lag_sensor(job, clock=ManualClock(status.heartbeat_at + 24 * HOUR)), None)
    assert not SENT


def test_late_data_is_told_with_ratio_and_windows(tmp_path: Path) -> None:
    job, store = job_at(tmp_path), tmp_path / "store"
    sensor = build_late_data_sensor(job)
    lost = (START, START + HOUR)
    commit_status(job, store, [epoch(accepted=95), epoch(late=5, accepted=995, late_windows=lost, refired=(START + 2 * HOUR,))])
    cursor = tick(sensor, None).cursor
    (alert,) = SENT
    assert alert.level == "warn"
    assert alert.facts["late_rows"] == 5
    assert alert.facts["rows_in"] == 1095
    assert alert.facts["windows_with_late_rows"] == [START, START + HOUR]
    assert alert.facts["windows_corrected"] == [START + 2 * HOUR]
    assert "2024-03-04T02:00:00.000Z (corrected), 2024-03-04T01:00:00.000Z (rows too late)" in alert.text
    SENT.clear()
    assert tick(sensor, cursor).cursor == cursor
    commit_status(job, store, [epoch(late=1, accepted=499, late_windows=(START,))])
    cursor = tick(sensor, cursor).cursor
    assert not SENT
    commit_status(job, store, [epoch(late=50, accepted=50)])
    cursor = tick(sensor, cursor).cursor
    assert [(alert.level, alert.facts["late_rows"], alert.facts["rows_in"]) for alert in SENT] == [("error", 50, 100)]
    commit_status(job, store, [epoch(accepted=100)])
    tick(sensor, cursor)
    assert SENT[-1].level == "resolved"


def test_counts_of_another_lineage_are_not_taken_from_those_of_this_one(tmp_path: Path) -> None:
    job, store = job_at(tmp_path), tmp_path / "store"
    sensor = build_late_data_sensor(job, warn_above=0.03, error_above=0.05)
    commit_status(job, store, [epoch(late=5, accepted=95)])
    cursor = tick(sensor, None).cursor
    SENT.clear()
    commit_status(job, store, [epoch(late=3, accepted=147)], lineage="l2")
    tick(sensor, cursor)
    assert [(alert.level, alert.facts["late_rows"], alert.facts["rows_in"]) for alert in SENT] == [("resolved", 3, 150)]


def test_a_lineage_that_goes_on_with_older_totals_is_judged_by_its_own_rows(tmp_path: Path) -> None:
    job, store = job_at(tmp_path), tmp_path / "store"
    sensor = build_late_data_sensor(job, warn_above=0.03, error_above=0.05)
    before = commit_status(job, store, [epoch(accepted=1_000)])
    cursor = tick(sensor, None).cursor
    # Restored: the totals of the savepoint count on.
    restored = commit_status(job, store, [epoch(late=10, accepted=90)], lineage="l2")
    assert restored.last is not None
    write_status(JobStore.open(str(store)), replace(restored, totals=add_epoch(before.totals, restored.last)))
    tick(sensor, cursor)
    assert [(alert.level, alert.facts["late_rows"], alert.facts["rows_in"]) for alert in SENT] == [("error", 10, 100)]


def test_late_data_can_be_told_on_every_tick(tmp_path: Path) -> None:
    job, store = job_at(tmp_path), tmp_path / "store"
    sensor = build_late_data_sensor(job, repeat=True)
    cursor: str | None = None
    for _ in range(3):
        commit_status(job, store, [epoch(late=1)])
        cursor = tick(sensor, cursor).cursor
        cursor = tick(sensor, cursor).cursor
    assert len(SENT) == 3


def test_an_epoch_without_rows_is_no_news_about_late_ones(tmp_path: Path) -> None:
    job, store = job_at(tmp_path), tmp_path / "store"
    sensor = build_late_data_sensor(job)
    commit_status(job, store, [epoch(late=50, accepted=50)])
    cursor = tick(sensor, None).cursor
    commit_status(job, store, [epoch(accepted=0)])
    cursor = tick(sensor, cursor).cursor
    commit_status(job, store, [epoch(late=50, accepted=50)])
    tick(sensor, cursor)
    assert [alert.level for alert in SENT] == ["error"]


def test_touched_windows_ask_for_runs_of_their_partitions(tmp_path: Path) -> None:
    job = job_at(tmp_path)
    days = dg.DailyPartitionsDefinition("2024-03-03", end_date="2024-04-01")
    touched = (START - HOUR, START, START + HOUR, START - 400 * 24 * HOUR)
    commit_status(job, tmp_path / "store", [epoch(late=4, accepted=9_999_999, late_windows=touched)])
    options = SensorOptions(target=dg.AssetSelection.assets("downstream"))
    result = tick(build_late_data_sensor(job, partitions_def=days, options=options), None)
    assert result.run_requests is not None
    assert [request.partition_key for request in result.run_requests] == ["2024-03-04", "2024-03-03"]
    assert len({request.run_key for request in result.run_requests}) == 2
    assert not SENT


def test_more_partitions_than_a_tick_requests_are_requested_in_the_next_ones(tmp_path: Path) -> None:
    job, hours = job_at(tmp_path), dg.HourlyPartitionsDefinition("2024-03-01-00:00")
    first = commit_status(job, tmp_path / "store", [epoch(refired=tuple(START + hour * HOUR for hour in range(120)))])
    options: dict[str, Any] = {"limits": (0.1, 0.2), "partitions_def": hours}
    decision = decide_late(job, first, None, history=read_history(JobStore.open(str(tmp_path / "store")), job.name, 9), **options)
    assert "partitions: 2024-03-08-23:00" in decision.summary
    assert decision.summary.endswith(" and 70 more; 70 partitions are requested in the next ticks")
    second = decide_late(job, first, decision.cursor, history=(), **options)
    assert second.summary == "no epoch after 0; 20 partitions are requested in the next ticks"
    # A partition that waits, and is touched again, is requested once; those that wait come before new ones.
    head = commit_status(job, tmp_path / "store", [epoch(refired=(START, START + 119 * HOUR))])
    history = read_history(JobStore.open(str(tmp_path / "store")), job.name, 9)
    third = decide_late(job, head, second.cursor, history=history, **options)
    assert third.cursor is not None
    found = [run.partition for each in (decision, second, third) for run in each.runs]
    assert [len(each.runs) for each in (decision, second, third)] == [50, 50, 21]
    assert found[0] == "2024-03-08-23:00"
    assert found[-2:] == ["2024-03-04-00:00", "2024-03-08-23:00"]
    assert (len(set(found)), len({run.key for each in (decision, second, third) for run in each.runs})) == (120, 121)
    assert decide_late(job, head, third.cursor, history=(), **options).runs == ()
    # Partitions of the hours that there were before are none of the days that there are now.
    days = {**options, "partitions_def": dg.DailyPartitionsDefinition("2024-03-01")}
    assert decide_late(job, first, decision.cursor, history=(), **days).runs == ()
    # Without a target nothing waits.
    assert "next ticks" not in decide_late(job, head, None, history=history, requests_runs=False, **options).summary


def test_rows_of_epochs_that_the_history_forgot_are_counted(tmp_path: Path) -> None:
    job, store = job_at(tmp_path), tmp_path / "store"
    sensor = build_late_data_sensor(job)
    commit_status(job, store, [epoch()])
    cursor = tick(sensor, None).cursor
    commit_status(job, store, [epoch(late=10, accepted=90), epoch(accepted=900)])
    for block in (store / "cabs" / "history").iterdir():
        block.unlink()
    tick(sensor, cursor)
    assert [(alert.facts["late_rows"], alert.facts["rows_in"]) for alert in SENT] == [(10, 1000)]


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"format": 2}', '{"format": 1, "lineage": "x"}', "3", '{"format": 1, "said": 3}'])
def test_a_cursor_that_is_none_is_like_none(text: str) -> None:
    assert decode_cursor(text) is None


def test_a_cursor_of_an_earlier_release_counts_from_the_history(tmp_path: Path) -> None:
    job, store = job_at(tmp_path), tmp_path / "store"
    commit_status(job, store, [epoch(), epoch(late=10, accepted=90)])
    earlier = SensorCursor("l1", 0, counts={"in": 5_000, "late": 0})
    tick(build_late_data_sensor(job), earlier.encode())
    assert [(alert.facts["late_rows"], alert.facts["rows_in"]) for alert in SENT] == [(10, 100)]


def test_a_cursor_comes_back_as_it_was() -> None:
    cursor = SensorCursor("l1", 7, said={"trips": "warn"}, counts={"in": 3}, waiting={"2024-03-04": "b", "2024-03-03": "a"})
    decoded = decode_cursor(cursor.encode())
    assert decoded == cursor
    assert list(decoded.waiting) == ["2024-03-04", "2024-03-03"]
    assert decode_cursor('{"format": 1, "lineage": "l1", "epoch": 7, "said": {}, "counts": {}}') == SensorCursor("l1", 7)


def test_what_a_sensor_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"'cabs_late_data' has no job store.*'cabs'"):
        build_late_data_sensor(make_job(tmp_path))
    with pytest.raises(DefinitionError, match="are not valid shares"):
        build_late_data_sensor(job_at(tmp_path), warn_above=0.5, error_above=0.1)
    with pytest.raises(DurationError, match="error_after"):
        build_watermark_lag_sensor(job_at(tmp_path), warn_after="1 hour", error_after="1 minute")
    sensor = build_watermark_lag_sensor(job_at(tmp_path), options=SensorOptions(store=dg.EnvVar("TIDEMARK_TEST_UNSET")))
    with pytest.raises(DefinitionError, match="TIDEMARK_TEST_UNSET"):
        tick(sensor, None)
