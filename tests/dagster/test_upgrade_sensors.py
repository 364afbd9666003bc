"""Sensors go on with upgrades that nobody else goes on with, and say how far they are."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from tests.dagster.instances import instance_in_memory
from tests.upgrade.test_upgrades import BREAKS, check_end
from tests.upgrade.upgrade_worlds import JOB, UpgradeWorld
from tidemark.control.model.upgrade_records import newest_step
from tidemark.sensors import build_job_health_sensor, build_reconcile_sensor

pytestmark = pytest.mark.dagster


def test_ticks_bring_an_upgrade_to_its_end(tmp_path: Path) -> None:
    world = UpgradeWorld(tmp_path, on_disk=True, breaks_at=BREAKS).started()
    world.begin()
    place = {"launchers": lambda: world.launchers, "clock": world.clock}
    reconcile = build_reconcile_sensor(world.store.uri, **place)  # type: ignore[arg-type]
    health = build_job_health_sensor(world.store.uri, alert_key=None, **place)  # type: ignore[arg-type]
    said: list[str] = []
    with instance_in_memory() as instance:

        def tick(sensor: dg.SensorDefinition) -> str:
            result = sensor(dg.build_sensor_context(instance=instance))
            assert isinstance(result, dg.SensorResult)
            return str(result.skip_reason.skip_message if result.skip_reason is not None else "")

        step = newest_step(world.store, JOB)
        while step is not None and not step.ended and len(said) < 120:
            said += [tick(health), tick(reconcile)]
            world.tick(1)
            step = newest_step(world.store, JOB)
        said.append(tick(health))
    assert step is not None
    assert step.step == "rolled-back"
    assert said[0].startswith("1 jobs, 0 unhealthy; fares is ok (upgrading), upgrade ")
    assert "is stopping, heading for fares_v2:job version 2" in said[0]
    assert any("1 acted on; fares: " in text and "is watching, heading for" in text for text in said)
    assert any(str(step) in text for text in said), "the end is told, too"
    assert "upgrading" not in said[-1]
    check_end(world, step)
