"""A measurement as users see it: in the job's status file, ``tidemark status``, ``tidemark top`` and alerts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.control.alert_cases import MINUTE, T0
from tests.driver_resources.resource_cases import EXECUTOR, MB, RESOURCES, measured
from tidemark.cli.show.view_text import view_text
from tidemark.cli.top.job_page import job_page
from tidemark.control.alerts.engine.alert_engine import step
from tidemark.control.alerts.engine.resource_rules import resource_readings
from tidemark.control.alerts.model.alert_settings import AlertSettings, Grouping
from tidemark.control.alerts.model.alert_state import JobAlerts
from tidemark.control.model.spec import AlertThresholds
from tidemark.control.observed.observe import Observation
from tidemark.control.view.view_builder import view_of
from tidemark.state.log.heartbeat import Heartbeat
from tidemark.state.log.records import OwnerInfo
from tidemark.state.status.resources import ContainerMemory, Resources
from tidemark.state.status.status import JobStatus, State, read_status, write_status
from tidemark.state.store.store import JobStore

GOLDEN = Path(__file__).with_name("status-resources-1.json")
OWNER = OwnerInfo("here", 1)


def observed(*, beat_at: int = T0 - 1_000, state: State = "running") -> Observation:
    driver = JobStatus("taxi", "a1", state, T0, T0, owner=OWNER, resources=RESOURCES)
    return Observation("taxi", driver=driver, heartbeat=Heartbeat(1, OWNER, beat_at, 1))


def readings_of(resources: Resources | None, thresholds: AlertThresholds | None = None) -> Mapping[tuple[str, str], float | None]:
    limits = thresholds or AlertThresholds()
    return {(item.rule, item.subject): item.value for item in resource_readings(measured(resources), limits)}


def test_a_stored_measurement_is_written_and_read_as_ever(tmp_path: Path) -> None:
    root = JobStore.open(str(tmp_path))
    status = JobStatus("taxi", "a1", "running", T0, T0, resources=RESOURCES)
    write_status(root, status)
    assert root.get("taxi/status.json") == GOLDEN.read_bytes()
    root.put("taxi/status.json", GOLDEN.read_bytes())
    assert read_status(root, "taxi") == status
    write_status(root, replace(status, resources=None))
    assert b"resources" not in root.get("taxi/status.json")


def test_a_measurement_is_shown_while_its_driver_reports() -> None:
    assert view_of(observed(), T0).resources == RESOURCES
    assert view_of(observed(beat_at=T0 - MINUTE), T0).resources is None
    assert view_of(observed(state="stopped"), T0).resources is None


def test_the_status_shows_memory_time_and_files() -> None:
    lines = view_text(measured(RESOURCES)).splitlines()
    assert [line for line in lines if line.startswith(("  memory", "  cpu", "  job store", "  time of epochs"))] == [
        (
            "  memory: heap 600.0 MB of 1.0 GB (live 250.0 MB), direct 3.0 MB, JVM 1.4 GB, driver 210.0 MB, 4 Python workers 480.0 MB,"
            " container 2.0 GB of 4.0 GB"
        ),
        "  cpu: JVM 1m 35s, driver 12s, Python workers 33s, garbage collection 2s 500ms in 40 pauses, 1.2% of the last minute",
        "  job store: 12 files, 5.0 MB, at 2023-11-14T22:12:20.000Z",
        "  time of epochs: output tips 4s, count 1s 500ms",
    ]
    assert "memory" not in view_text(measured(None))


def test_top_has_a_row_for_each_executor() -> None:
    executors = {"0": EXECUTOR, "1": replace(EXECUTOR, heap_bytes=None, python_bytes=None, gc_share=None)}
    screen = StringIO()
    Console(width=200, file=screen).print(job_page(measured(replace(RESOURCES, executors=executors)), [], title="top"))
    rows = [" ".join(line.split()) for line in screen.getvalue().splitlines()]
    assert "0 211 1 18s 3% 251.2 kB 209.1 kB 38.5 kB 7.0 kB 194.0 MB 120.0 MB" in rows
    assert "1 211 1 18s - 251.2 kB 209.1 kB 38.5 kB 7.0 kB - -" in rows


def test_rules_read_shares() -> None:
    assert readings_of(RESOURCES) == {("memory", "heap"): 0.25, ("memory", "container"): 0.5, ("gc", "driver"): 0.012}
    others = {"0": EXECUTOR, "1": replace(EXECUTOR, gc_share=0.4), "2": replace(EXECUTOR, gc_share=None)}
    assert readings_of(replace(RESOURCES, executors=others, container=None)) == {
        ("memory", "heap"): 0.25,
        ("gc", "driver"): 0.012,
        ("gc", "executors"): 0.4,
    }


def test_garbage_is_no_full_memory() -> None:
    full = replace(RESOURCES, jvm=replace(RESOURCES.jvm, heap_used=990 * MB, heap_live=None))
    assert readings_of(full)["memory", "heap"] == 0.0
    # What was live at the last collection may be garbage by now, and cannot be more than there is.
    shrunk = replace(RESOURCES, jvm=replace(RESOURCES.jvm, heap_used=300 * MB, heap_live=950 * MB))
    assert readings_of(shrunk)["memory", "heap"] == 0.3


def test_a_driver_that_does_not_report_leaves_what_is_known() -> None:
    unknown = readings_of(None)
    assert set(unknown) == {("memory", "heap"), ("memory", "container"), ("gc", "driver"), ("gc", "executors")}
    assert set(unknown.values()) == {None}
    stopped = replace(measured(None), health="stopped")
    assert list(resource_readings(stopped, AlertThresholds())) == []


@pytest.mark.parametrize(
    ("resources", "subject", "level"),
    [
        (replace(RESOURCES, jvm=replace(RESOURCES.jvm, heap_used=960 * MB, heap_live=930 * MB)), ("memory", "heap"), "warn"),
        (replace(RESOURCES, container=ContainerMemory(4_000 * MB, 3_950 * MB)), ("memory", "container"), "error"),
        (replace(RESOURCES, jvm=replace(RESOURCES.jvm, gc_share=0.3)), ("gc", "driver"), "warn"),
    ],
)
def test_an_alert_fires_once_it_has_lasted(resources: Resources, subject: tuple[str, str], level: str) -> None:
    """By the rules' own hold times: not for one large epoch, and over once there is room again."""
    settings = AlertSettings(grouping=Grouping(0, 0))
    state, said = JobAlerts("taxi"), []
    for minute, seen in enumerate([resources, resources, None, resources, RESOURCES, RESOURCES]):
        state, notices = step(state, measured(seen), T0 + minute * MINUTE, settings=settings)
        said.append([((change.rule, change.subject), change.now, change.text) for item in notices for change in item.changes])
    assert [len(item) for item in said] == [0, 0, 0, 1, 0, 1], said
    ((found, now, text),) = said[3]
    assert (found, now, said[5][0][1]) == (subject, level, "ok")
    assert "raise" in text


def test_limits_are_the_job_s() -> None:
    strict = AlertThresholds(memory_warn=0.2, gc_warn=0.01)
    state, said = JobAlerts("taxi"), []
    for minute in range(4):
        state, notices = step(state, measured(RESOURCES, strict), T0 + minute * MINUTE, settings=AlertSettings(grouping=Grouping(0, 0)))
        said += [(change.rule, change.subject) for item in notices for change in item.changes]
    assert said == [("gc", "driver"), ("memory", "container"), ("memory", "heap")]
