"""Alerts of a sensor whose process is killed, or whose ticks overlap: the next tick sends them, within a minute."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import ClassVar

import dagster as dg
import pytest

from tests.control.worlds import World
from tests.dagster.control_world import launchers, make_world
from tests.dagster.instances import instance_in_memory
from tidemark.control import Observer
from tidemark.control.observed.observe import Observation
from tidemark.errors import AlertError
from tidemark.resources import Alert, AlertResource
from tidemark.sensors import build_job_health_sensor
from tidemark.sensors.health import job_health
from tidemark.sensors.health.dev_command import DevCommand

pytestmark = pytest.mark.dagster


class KilledError(BaseException):
    """The end of a process in the middle of a tick."""


class Line(AlertResource):
    """A receiver that takes alerts, refuses them, or is where the process is killed."""

    does: str = "take"
    taken: ClassVar[list[Alert]] = []

    def send(self, alert: Alert) -> None:
        if self.does == "kill":
            raise KilledError(alert.title)
        if self.does == "refuse":
            raise AlertError("no line", fix="mend it", job=alert.job)
        self.taken.append(alert)


class SlowLine(AlertResource):
    """A receiver that refuses an alert until it may go on."""

    entered: ClassVar[Event] = Event()
    may_end: ClassVar[Event] = Event()

    def send(self, alert: Alert) -> None:
        self.entered.set()
        assert self.may_end.wait(60)
        raise AlertError("the line is slow", fix="wait", job=alert.job)


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with instance_in_memory() as found:
        yield found


@pytest.fixture
def world(tmp_path: Path) -> World:
    Line.taken.clear()
    made = make_world(tmp_path)
    made.submit()
    return made


def sensor_of(world: World) -> dg.SensorDefinition:
    return build_job_health_sensor(world.store.uri, launchers=lambda: launchers(world), clock=world.clock)


def tick(sensor: dg.SensorDefinition, instance: dg.DagsterInstance, line: AlertResource | None = None) -> str:
    result = sensor(dg.build_sensor_context(instance=instance, resources={"alerts": line or Line()}))
    assert isinstance(result, dg.SensorResult)
    return str(result.skip_reason.skip_message if result.skip_reason is not None else "")


def make_pending(world: World, sensor: dg.SensorDefinition, instance: dg.DagsterInstance) -> None:
    """Tick until an alert waits for a receiver that refuses it."""
    for _ in range(4):
        tick(sensor, instance, Line(does="refuse"))
        world.clock.advance(50_000)
    assert "1 alerts wait for their receiver" in tick(sensor, instance, Line(does="refuse"))
    world.clock.advance(600_000)


def test_an_alert_of_a_killed_process_is_sent_by_the_next_one_within_a_minute(world: World, instance: dg.DagsterInstance) -> None:
    first = sensor_of(world)
    make_pending(world, first, instance)
    with pytest.raises(KilledError):
        tick(first, instance, Line(does="kill"))
    second = sensor_of(world)
    assert "another process sends the alerts" in tick(second, instance)
    assert not Line.taken
    world.clock.advance(30_000)
    assert "sent: fares: not healthy" in tick(second, instance)
    assert ["has no active reconciler" in alert.text for alert in Line.taken] == [True]
    world.clock.advance(30_000)
    assert "sent" not in tick(second, instance)


def test_sensors_of_separate_jobs_of_one_store_each_send_their_alerts(world: World, instance: dg.DagsterInstance) -> None:
    """As two components have them, whose sensors tick at different moments, both more often than a lease lasts."""
    world.submit("rides")
    both = [
        build_job_health_sensor(world.store.uri, jobs=[job], name=job, launchers=lambda: launchers(world), clock=world.clock)
        for job in ("fares", "rides")
    ]
    for _ in range(12):
        for sensor in both:
            assert "another process" not in tick(sensor, instance)
            world.clock.advance(12_000)
    assert sorted(alert.job for alert in Line.taken) == ["fares", "rides"]
    again = build_job_health_sensor(world.store.uri, jobs=["rides"], launchers=lambda: launchers(world), clock=world.clock)
    assert "another process sends the alerts" in tick(again, instance), "one of two for the same jobs sends"


def test_beside_a_sensor_of_some_jobs_one_of_all_sends_the_others_alerts(world: World, instance: dg.DagsterInstance) -> None:
    world.submit("rides")
    some = build_job_health_sensor(world.store.uri, jobs=["rides"], launchers=lambda: launchers(world), clock=world.clock)
    assert "another process" not in tick(some, instance)
    all_ = sensor_of(world)
    for _ in range(12):
        tick(some, instance)
        assert "another process sends the alerts of rides" in tick(all_, instance)
        world.clock.advance(12_000)
    assert sorted(alert.job for alert in Line.taken) == ["fares", "rides"]


def test_the_server_of_a_killed_dagster_dev_leaves_alerts_to_the_next_one(
    world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan, second = sensor_of(world), sensor_of(world)
    make_pending(world, orphan, instance)
    assert "1 alerts wait" in tick(orphan, instance, Line(does="refuse"))
    monkeypatch.setattr(DevCommand, "has_ended", True)
    assert "alerts are left to others" in tick(orphan, instance)
    assert not Line.taken, "what it writes nobody sees"
    monkeypatch.undo()
    assert "sent: fares: not healthy" in tick(second, instance), "the lease was released"
    assert len(Line.taken) == 1


def test_the_dagster_dev_is_found_where_definitions_load(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `dagster dev` that is killed before the first tick would not be found by it any more."""
    found: list[DevCommand] = []
    monkeypatch.setattr(job_health, "DevCommand", lambda: found.append(DevCommand()))
    sensor_of(world)
    assert len(found) == 1


def test_ticks_that_overlap_lose_no_alert(world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster begins a tick while one that took too long still runs: that one's end takes no receiver from the other."""
    sensor = sensor_of(world)
    make_pending(world, sensor, instance)
    began = Event()
    observe = Observer.observe

    def observed(self: Observer, job: str) -> Observation:
        if SlowLine.entered.is_set():
            began.set()
        return observe(self, job)

    monkeypatch.setattr(Observer, "observe", observed)
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(tick, sensor, instance, SlowLine())
        assert SlowLine.entered.wait(60)
        later = pool.submit(tick, sensor, instance)
        assert began.wait(60)
        SlowLine.may_end.set()
        said = [slow.result(60), later.result(60)]
    assert ["1 alerts wait for their receiver" in text for text in said] == [True, True], said
    assert Line.taken == [], "the first one was refused, and the second one is not due yet"
    world.clock.advance(600_000)
    assert "sent: fares: not healthy" in tick(sensor, instance)
    world.clock.advance(600_000)
    assert "sent" not in tick(sensor, instance)
    assert [alert.title for alert in Line.taken] == ["fares: not healthy"]
