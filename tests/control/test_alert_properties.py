"""What holds of alerts whatever is seen, in whatever order, and however the clock goes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.control.alert_cases import HOUR, T0, reading
from tidemark.control.alerts.engine.alert_engine import advance
from tidemark.control.alerts.engine.alert_silences import Silence
from tidemark.control.alerts.model.alert_message import merged
from tidemark.control.alerts.model.alert_settings import AlertSettings, Grouping, Route, RuleSettings
from tidemark.control.alerts.model.alert_state import Change, JobAlerts, Notification
from tidemark.control.alerts.model.hysteresis import HoldTimes, Severity, rank, worse_of
from tidemark.state.encoding.codec import from_jsonable, to_jsonable

SUBJECTS = ("trips", "zones")
ALL = Silence("all", until=T0 + 1000 * HOUR)


@dataclass(frozen=True)
class Look:
    """One look: how much later, what is seen of each subject (a value, None for unknown, missing), and whether under a silence."""

    after: int
    values: tuple[float | None, ...]
    silent: bool = False


VALUES = st.sampled_from([0, 5, 9, 10, 25, 30, 50, None])
LOOKS = st.builds(
    Look,
    after=st.sampled_from([0, 1_000, 10_000, 30_000, 120_000, 300_000, HOUR, -5_000, -HOUR]),
    values=st.lists(VALUES, max_size=2).map(tuple),
    silent=st.sampled_from([False, False, False, True]),
)
SETTINGS = st.builds(
    lambda for_ms, clear, resolve, wait, interval: AlertSettings(
        {"lag": RuleSettings(HoldTimes(for_ms, clear, resolve))}, Grouping(wait, interval)
    ),
    st.sampled_from([0, 30_000]),
    st.sampled_from([0.5, 1.0]),
    st.sampled_from([0, 30_000]),
    st.sampled_from([0, 20_000]),
    st.sampled_from([0, 300_000]),
)


@dataclass
class People:
    """What the receiver of all messages believes."""

    believed: dict[str, Severity] = field(default_factory=dict)
    firing: set[str] = field(default_factory=set)
    merged: bool = False

    def hear(self, changes: Iterable[Change]) -> None:
        for change in changes:
            assert self.believed.get(change.subject, "ok") == change.before, "each message goes on from the one before"
            assert change.kind != "again" or self.merged, "each message says something"
            assert rank(change.peak) >= max(rank(change.before), rank(change.now))
            if change.kind == "fired":
                assert change.subject not in self.firing, "fired twice without a resolve between"
                self.firing.add(change.subject)
            elif change.kind == "resolved":
                self.firing.remove(change.subject)
            self.believed[change.subject] = change.now


def run(looks: Iterable[Look], settings: AlertSettings) -> tuple[JobAlerts, int, list[Notification], People]:
    """Look again and again; checks what must hold after every look."""
    state, now, people = JobAlerts("taxi"), T0, People()
    told: list[Notification] = []
    owed: dict[str, Severity] = {}
    for look in looks:
        now += look.after
        found = [reading(value, subject=subject) for subject, value in zip(SUBJECTS, look.values, strict=False)]
        state, new = advance(state, found, now, settings=settings, silences=(ALL,) if look.silent else ())
        assert len(new) <= 1
        assert from_jsonable(JobAlerts, to_jsonable(state), path="x") == state, "it can be stored"
        assert all(not condition.is_idle for condition in state.conditions)
        # Owed is the worst that was found and not told: a message must have it.
        owed = {} if look.silent else {**owed, **{item.subject: item.peak for item in state.conditions if item.since is not None}}
        for notification in new:
            for change in notification.changes:
                assert rank(change.peak) >= rank(owed.pop(change.subject, "ok")), "what was found is told"
            people.hear(notification.changes)
            assert not told or notification.number == told[-1].number + 1
            told.append(notification)
    return state, now, told, people


@given(st.lists(LOOKS, max_size=40), SETTINGS, st.sampled_from([0, 10, 30]))
def test_people_believe_what_is_so_and_never_hear_it_begin_twice(looks: list[Look], settings: AlertSettings, last: int) -> None:
    steady = [Look(300_000, (last, 0)), Look(300_000, (last, 0)), Look(300_000, (last, 0)), Look(300_000, (last, 0))]
    # However far the clock was put back, what lasts is known after patience, waiting and interval.
    state, _, _, people = run([*looks, *steady], settings)
    assert people.believed.get("trips", "ok") == {0: "ok", 10: "warn", 30: "error"}[last]
    assert people.believed.get("zones", "ok") == "ok"
    assert all(condition.since is None for condition in state.conditions)
    assert (state.conditions == ()) == (last == 0)


@given(st.lists(LOOKS, max_size=40), SETTINGS)
def test_messages_keep_their_distance_unless_something_becomes_an_error(looks: list[Look], settings: AlertSettings) -> None:
    _, _, told, _ = run(looks, settings)
    for first, then in pairwise(told):
        urgent = any(change.peak == "error" and change.before != "error" for change in then.changes)
        apart = then.at - first.at
        assert urgent or apart < 0 or apart >= settings.grouping.interval_ms


@given(st.lists(LOOKS, max_size=40), SETTINGS)
def test_an_error_that_lasts_is_told_whatever_comes_after(looks: list[Look], settings: AlertSettings) -> None:
    patience = settings.rule("lag").hold_times
    lasting = [Look(max(patience.for_ms, 1_000), (30,)), Look(max(patience.for_ms, 1_000), (30,))]
    after = [Look(10_000, (0,)), Look(HOUR, (0,)), Look(HOUR, (0,))]
    _, _, told, people = run([*(replace(look, after=abs(look.after)) for look in looks), *lasting, *after], settings)
    last = [change for item in told for change in item.changes if change.subject == "trips"]
    assert people.believed.get("trips", "ok") == "ok"
    assert "error" in {change.worst for change in last[-2:]}, "it was told, if only as having come and gone"


@given(st.lists(LOOKS, min_size=1, max_size=40), SETTINGS, st.integers(1, 6))
def test_merged_messages_say_what_the_single_ones_said_in_the_end(looks: list[Look], settings: AlertSettings, size: int) -> None:
    _, _, told, people = run(looks, settings)
    late = People(merged=True)
    for start in range(0, len(told), size):
        part = told[start : start + size]
        whole = merged(part)
        late.hear(whole.changes)
        assert whole.number == part[-1].number
        peaks: dict[str, Severity] = {}
        for change in (change for item in part for change in item.changes):
            peaks[change.subject] = worse_of(peaks.get(change.subject, "ok"), change.worst)
        assert {change.subject: change.worst for change in whole.changes} == peaks
    assert {key: value for key, value in late.believed.items() if value != "ok"} == {
        key: value for key, value in people.believed.items() if value != "ok"
    }


@given(st.lists(LOOKS, max_size=40), SETTINGS)
def test_who_is_told_of_errors_only_hears_of_their_end(looks: list[Look], settings: AlertSettings) -> None:
    _, _, told, people = run(looks, settings)
    route = Route(min_severity="error")
    open_errors: set[str] = set()
    for item in told:
        for change in item.changes:
            if route.matches("taxi", change.rule, change.worst):
                (open_errors.add if change.now == "error" else open_errors.discard)(change.subject)
    assert open_errors == {subject for subject, severity in people.believed.items() if severity == "error"}
