from __future__ import annotations

from dataclasses import replace

import pytest

from tests.control.alert_cases import HOUR, MINUTE, SECOND, T0, failure, job_view, reading
from tests.driver_resources.resource_cases import RESOURCES
from tidemark.clock import format_ms
from tidemark.control.alerts.engine.alert_engine import advance, step
from tidemark.control.alerts.engine.alert_rules import FailedCheck, RuleContext
from tidemark.control.alerts.engine.alert_silences import Silence
from tidemark.control.alerts.engine.firing_alerts import firing_alerts
from tidemark.control.alerts.engine.reading import Reading
from tidemark.control.alerts.model.alert_settings import DEFAULT_RULES, AlertSettings, Grouping, RuleSettings
from tidemark.control.alerts.model.alert_state import Change, JobAlerts, LateWindow, Notification, RowCount
from tidemark.control.alerts.model.hysteresis import HoldTimes
from tidemark.control.model.spec import AlertThresholds

AT_ONCE = AlertSettings({"lag": RuleSettings(HoldTimes()), "late": RuleSettings(HoldTimes())}, Grouping(wait_ms=0, interval_ms=0))
GROUPED = AlertSettings({"lag": RuleSettings(HoldTimes())}, Grouping(wait_ms=30_000, interval_ms=300_000))


class Story:
    """Looks at one job again and again, and keeps what was told."""

    def __init__(self, settings: AlertSettings = AT_ONCE) -> None:
        self.settings = settings
        self.state = JobAlerts("taxi")
        self.now = T0
        self.told: list[Notification] = []

    def sees(self, *found: Reading, after: int = 10 * SECOND, silences: tuple[Silence, ...] = ()) -> str:
        """Look, and return what was told in short: ``lag/trips ok>warn``."""
        self.now += after
        self.state, told = advance(self.state, found, self.now, settings=self.settings, silences=silences)
        self.told += told
        return "; ".join(in_short(change) for item in told for change in item.changes)


def in_short(change: Change) -> str:
    peak = f"^{change.peak}" if change.kind == "passed" else ""
    return f"{change.rule}/{change.subject} {change.before}>{change.now}{peak}"


def test_what_gets_worse_and_better_is_told_once_each() -> None:
    story = Story()
    said = [story.sees(reading(value)) for value in (0, 10, 20, 30, 40, 10, 0, 0)]
    assert said == ["", "lag/trips ok>warn", "", "lag/trips warn>error", "", "lag/trips error>warn", "lag/trips warn>ok", ""]
    assert [item.number for item in story.told] == [1, 2, 3, 4]
    assert [change.kind for item in story.told for change in item.changes] == ["fired", "worse", "better", "resolved"]
    assert story.state.conditions == (), "nothing is remembered of what is well"


def test_a_message_has_the_words_of_the_worst_and_of_the_end() -> None:
    story = Story()
    for value in (10, 30, 0):
        story.sees(reading(value))
    assert [item.changes[0].text for item in story.told] == ["trips is at 10", "trips is at 30", "trips is at 0"]
    assert [item.changes[0].facts for item in story.told] == [{"value": 10}, {"value": 30}, {"value": 0}]


def test_changes_of_a_while_are_one_message() -> None:
    story = Story(GROUPED)
    trips, zones = reading(10), reading(30, subject="zones")
    assert story.sees(trips) == ""
    assert story.sees(trips, zones) == ""
    assert story.sees(trips, zones) == ""
    assert story.sees(trips, zones) == "lag/trips ok>warn; lag/zones ok>error"
    assert len(story.told) == 1


def test_messages_of_a_job_keep_their_distance_but_an_error_does_not_wait() -> None:
    story = Story(GROUPED)
    assert [story.sees(reading(10)) for _ in range(4)] == ["", "", "", "lag/trips ok>warn"]
    quiet = [story.sees(reading(10), reading(10, subject="zones"), after=30 * SECOND) for _ in range(9)]
    assert set(quiet) == {""}
    assert story.sees(reading(10), reading(10, subject="zones"), after=30 * SECOND) == "lag/zones ok>warn"
    assert story.sees(reading(30), reading(10, subject="zones")) == ""
    assert story.sees(reading(30), reading(10, subject="zones"), after=30 * SECOND) == "lag/trips warn>error"


def test_what_came_and_went_before_anybody_was_told_is_told() -> None:
    story = Story(GROUPED)
    assert [story.sees(reading(value)) for value in (30, 0, 0)] == ["", "", ""]
    assert story.sees(reading(0)) == "lag/trips ok>ok^error"
    (notification,) = story.told
    assert notification.changes[0].text == "trips is at 30"
    assert story.state.conditions == ()


def test_what_goes_back_to_what_people_believe_is_not_told() -> None:
    story = Story(GROUPED)
    for _ in range(4):
        story.sees(reading(30))
    assert [story.sees(reading(value), after=MINUTE) for value in (0, 30, 30, 30, 30, 30, 30, 30)] == [""] * 8


def test_after_a_pause_one_message_tells_all_that_is_different() -> None:
    story = Story(GROUPED)
    for _ in range(4):
        story.sees(reading(30), reading(10, subject="zones"))
    assert len(story.told) == 1
    found = (reading(0), reading(30, subject="zones"), reading(10, rule="late", subject=""))
    assert story.sees(*found, after=6 * HOUR) == ""
    assert story.sees(*found, after=30 * SECOND) == "lag/trips error>ok; lag/zones warn>error; late/ ok>warn"
    assert len(story.told) == 2


def test_what_is_no_longer_there_is_over() -> None:
    story = Story()
    assert story.sees(reading(30)) == "lag/trips ok>error"
    assert story.sees() == "lag/trips error>ok"


def test_what_cannot_be_told_now_stays_as_it_was() -> None:
    story = Story()
    assert story.sees(reading(None)) == ""
    assert story.sees(reading(30)) == "lag/trips ok>error"
    assert story.sees(reading(None)) == ""
    assert story.sees(reading(0)) == "lag/trips error>ok"


def test_under_a_silence_nothing_is_told_and_afterwards_what_is_still_so() -> None:
    story = Story()
    silence = Silence("work", until=T0 + 60 * SECOND, jobs="ta*", rule="lag")
    assert story.sees(reading(30), reading(30, rule="late", subject=""), silences=(silence,)) == "late/ ok>error"
    assert story.sees(reading(0), silences=(silence,)) == "late/ error>ok"
    assert story.sees(reading(10), silences=(silence,)) == ""
    assert story.sees(reading(10), after=30 * SECOND, silences=(silence,)) == "lag/trips ok>warn", "the silence is over"
    again = Silence("more", until=T0 + HOUR)
    assert story.sees(reading(0), silences=(again,)) == ""
    assert story.sees(reading(10), silences=(again,)) == ""
    assert story.sees(reading(0), after=HOUR, silences=(again,)) == "lag/trips warn>ok"


def test_a_clock_that_is_put_back_delays_nothing_for_long() -> None:
    story = Story(GROUPED)
    for _ in range(4):
        story.sees(reading(10))
    assert len(story.told) == 1
    story.sees(reading(0), after=-HOUR)
    assert story.sees(reading(0), after=30 * SECOND) == "lag/trips warn>ok"


def test_what_goes_on_is_named_beside_what_is_new() -> None:
    story = Story()
    story.sees(reading(30))
    story.sees(reading(30), reading(10, subject="zones"))
    assert [(item.rule, item.subject, item.severity) for item in story.told[1].still] == [("lag", "trips", "error")]


def test_a_job_is_looked_at_with_all_rules() -> None:
    """Everything is wrong at once, and told as soon as the patience of each rule allows; then everything is well."""
    thresholds = AlertThresholds(savepoint_age_ms=HOUR)
    bad = job_view(lag_ms=HOUR, health="hung", rows=1_000, late=5, failures=tuple(failure(T0) for _ in range(3)), thresholds=thresholds)
    evidence = RuleContext((FailedCheck("tips.not_null", "error", T0, "3 nulls"),), savepoint_at=T0 - 2 * HOUR)
    state = JobAlerts("taxi")
    told: list[Notification] = []
    for second in range(0, 100, 10):
        state, more = step(state, bad, T0 + second * SECOND, context=evidence)
        told += more
    expected = "check/tips.not_null ok>error; late/ ok>warn; restarts/ ok>warn; savepoint/ ok>warn"
    assert "; ".join(map(in_short, told[0].changes)) == expected
    assert "; ".join(map(in_short, told[1].changes)) == "health/ ok>error"
    assert "; ".join(map(in_short, told[2].changes)) == "lag/trips ok>error"
    assert len(told) == 3
    well = job_view(rows=2_000_000, late=5, thresholds=thresholds)
    told.clear()
    for minute in range(20, 60):
        state, more = step(state, well, T0 + minute * MINUTE, context=RuleContext(savepoint_at=T0 + minute * MINUTE))
        told += more
    assert sorted(in_short(change).partition(" ")[0] for item in told for change in item.changes) == [
        "check/tips.not_null", "health/", "lag/trips", "late/", "restarts/", "savepoint/",
    ]  # fmt: skip
    assert len(told) <= 2
    assert state.conditions == ()


def test_late_rows_count_from_a_window_ago() -> None:
    state, told = JobAlerts("taxi"), []
    late = 0
    for minute in range(200):
        # 10,000 rows a minute; in minutes 60 to 69 two in a hundred are late.
        late += 200 if 60 <= minute < 70 else 0
        state, more = step(state, job_view(rows=minute * 10_000, late=late), T0 + minute * MINUTE)
        told += [(minute, change.kind, change.peak) for item in more for change in item.changes]
    first, *_, last = told
    assert first[:2] == (61, "fired")
    assert "error" in {peak for _, _, peak in told}
    assert last[1] == "resolved"
    assert 75 <= last[0] <= 95


def test_nothing_is_remembered_of_late_rows_of_long_ago() -> None:
    told: list[Notification] = []
    state, _ = step(JobAlerts("taxi"), job_view(rows=1_000_000, late=0), T0)
    # Nobody looked for three days; then ten rows of a hundred are late.
    for minute, (rows, late) in enumerate([(90_000_000, 10), (90_000_100, 20), (90_000_200, 30)]):
        state, more = step(state, job_view(rows=rows, late=late), T0 + 72 * HOUR + minute * 11 * MINUTE)
        told += more
    assert [in_short(change) for item in told for change in item.changes] == ["late/ ok>error"]


def test_counts_of_an_earlier_release_which_are_of_all_operators_are_not_compared_with_newer_ones() -> None:
    earlier = LateWindow("a1", RowCount(T0 - MINUTE, 1_900_000, 20_000), RowCount(T0, 2_000_000, 20_000))
    state, sent = JobAlerts("taxi", late=earlier), list[Notification]()
    for minute in range(6):
        state, more = step(state, job_view(rows=1_000_000 + 100 * minute, late=20_000), T0 + minute * MINUTE)
        sent += more
    assert not sent, "late rows from before the upgrade raise no alert"
    for minute in range(6, 9):
        state, more = step(state, job_view(rows=1_000_600 + 100 * minute, late=20_000 + 10 * minute), T0 + minute * MINUTE)
        sent += more
    assert sent
    assert state.late is not None
    assert state.late.judged


@pytest.mark.parametrize("rule", sorted(DEFAULT_RULES))
def test_a_rule_can_be_off(rule: str) -> None:
    settings = AlertSettings({name: RuleSettings(enabled=name != rule) for name in DEFAULT_RULES}, Grouping(0, 0))
    full = replace(RESOURCES.jvm, heap_used=RESOURCES.jvm.heap_max, heap_live=RESOURCES.jvm.heap_max, gc_share=0.9)
    bad = job_view(
        lag_ms=HOUR,
        health="failed",
        rows=100,
        late=50,
        failures=tuple(failure(T0) for _ in range(3)),
        thresholds=AlertThresholds(savepoint_age_ms=1),
    )
    evidence = RuleContext((FailedCheck("c", "warn", T0),), savepoint_at=T0 - HOUR)
    bad = replace(bad, resources=replace(RESOURCES, jvm=full))
    _, (told,) = step(JobAlerts("taxi"), bad, T0, settings=settings, context=evidence)
    assert {change.rule for change in told.changes} == set(DEFAULT_RULES) - {rule}


def test_the_text_of_late_rows_says_since_when_they_are_counted() -> None:
    """The first look counts all rows that were ever read; one that is a window later only those since the window began."""
    state, told = step(JobAlerts("taxi"), job_view(rows=600, late=12), T0, settings=AT_ONCE)
    ((fired,),) = [item.changes for item in told]
    assert fired.text == "12 of 600 rows since the job's first epoch were too late (2.000%)"
    assert fired.facts["since_ms"] is None
    texts = []
    for minute in (5, 10, 15, 20, 25):
        view = replace(job_view(rows=600 + 60 * minute, late=12 + 2 * minute), at=T0 + minute * MINUTE)
        state, _ = step(state, view, view.at, settings=AT_ONCE)
        (alert,) = firing_alerts(state, view, RuleContext())
        assert (alert.rule, alert.severity, alert.since) == ("late", "error", T0)
        texts.append(alert.text)
    assert texts[0] == "22 of 900 rows since the job's first epoch were too late (2.444%)"
    assert texts[-1] == f"30 of 900 rows since {format_ms(T0 + 10 * MINUTE)} were too late (3.333%)"


def test_after_a_long_pause_the_text_says_that_the_share_is_of_the_last_epoch() -> None:
    state, _ = step(JobAlerts("taxi"), job_view(rows=1_000_000, late=1), T0)
    view = replace(job_view(rows=2_000_000, late=11), late_share=0.1)
    state, told = step(state, view, T0 + 72 * HOUR, settings=AT_ONCE)
    ((change,),) = [item.changes for item in told]
    assert change.text.endswith(" were too late (0.001%); in the last epoch 10.000%")
    assert change.facts["ratio"] == 0.1


def test_an_alert_fires_from_the_first_time_at_its_limit_until_it_is_over() -> None:
    settings = AlertSettings({"lag": RuleSettings(HoldTimes(for_ms=MINUTE, resolve_after_ms=MINUTE))}, Grouping(0, 0))
    story = Story(settings)
    seen = []
    for value in (10, 10, 40, 40, 0, 40, 0, 0, 0):
        story.sees(reading(value), after=40 * SECOND)
        seen.append([(item.severity, item.fired_at) for item in story.state.firing_conditions()])
    fires = [("warn", T0 + 40 * SECOND)]
    assert seen == [[], [], *[fires] * 6, []]
