"""What is stored of alerts has one form for ever: the golden files were written once and must be written and read as ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.control.alert_cases import T0
from tidemark.control.alerts.engine.alert_checks import KIND as VERDICT
from tidemark.control.alerts.engine.alert_checks import CheckVerdict
from tidemark.control.alerts.engine.alert_silences import KIND as SILENCE
from tidemark.control.alerts.engine.alert_silences import Silence
from tidemark.control.alerts.engine.alert_store import KIND as ALERTS
from tidemark.control.alerts.engine.alert_store import worth_storing
from tidemark.control.alerts.model.alert_state import (
    Change,
    Condition,
    JobAlerts,
    LateWindow,
    Notification,
    OpenCondition,
    Outgoing,
    RowCount,
)
from tidemark.control.alerts.model.hysteresis import ThresholdState, ThresholdStates
from tidemark.state.encoding.codec import from_jsonable, to_jsonable
from tidemark.state.encoding.envelope import decode_envelope, encode_envelope

GOLDEN = Path(__file__).parent / "golden"

FACTS = {"source": "trips", "lag_ms": 400_000, "held_by": None}
REMEMBERED = JobAlerts(
    job="taxi",
    conditions=(
        Condition("health", "", ThresholdStates(warn=ThresholdState(on=False, above=True, since=T0)), since=None),
        Condition(
            "lag",
            "trips",
            ThresholdStates(ThresholdState(on=True, above=True, since=T0 - 5), ThresholdState()),
            told="warn",
            peak="error",
            since=T0,
            text="behind",
            facts=FACTS,
        ),
    ),
    notified=3,
    notified_at=T0 - 1_000,
    late=LateWindow("a1", RowCount(T0 - 600_000, 100, 1), RowCount(T0, 200, 2)),
    outbox=(
        Outgoing(
            Notification(
                "taxi",
                3,
                T0 - 1_000,
                (Change("lag", "trips", "ok", "warn", "warn", T0 - 5, "source 'trips' is 6m 40s behind", FACTS),),
                (OpenCondition("late", "", "error"),),
            ),
            ("mail", "ops"),
        ),
    ),
)
STORED = {
    "alerts-1": (ALERTS, REMEMBERED),
    "alert-silence-1": (SILENCE, Silence("move", until=T0 + 1, jobs="taxi*", rule="lag", at=T0, by="ada", why="the landing zone moves")),
    "check-verdict-1": (VERDICT, CheckVerdict("taxi", "tips.not_null", passed=False, at=T0, severity="warn", text="3 nulls")),
}


@pytest.mark.parametrize("name", sorted(STORED))
def test_golden_files_are_written_and_read_as_ever(name: str) -> None:
    kind, value = STORED[name]
    data = (GOLDEN / f"{name}.json").read_bytes()
    assert encode_envelope(kind, to_jsonable(value)) == data
    _, body = decode_envelope(data, kind=kind, path=name)
    assert from_jsonable(type(value), body, path=name) == value


def test_where_late_rows_are_counted_from_is_stored_only_once_there_are_some() -> None:
    def counted(late: int, *, rows: int = 100) -> JobAlerts:
        return JobAlerts("taxi", late=LateWindow("a1", RowCount(T0, 0, 0), RowCount(T0, rows, late)))

    assert not worth_storing(JobAlerts("taxi"), counted(0))
    assert not worth_storing(counted(0), counted(0, rows=200))
    assert worth_storing(counted(0), counted(1))
    assert not worth_storing(counted(1), counted(1, rows=200))
    assert worth_storing(counted(1), counted(2))
    assert worth_storing(JobAlerts("taxi"), JobAlerts("taxi", notified=1))
