"""The control plane's world for Dagster's side of it: a store in a folder, fake drivers, a clock that lets them work while one waits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.control.worlds import START, FakeLauncher, World
from tidemark.control.model.launcher import Launcher
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock


class WorkingClock(ManualClock):
    """Lets the world's drivers do what is due whenever somebody waits."""

    def __init__(self, world: World) -> None:
        super().__init__(START)
        self._world = world

    def sleep(self, seconds: float) -> None:
        self._world.tick(max(1, int(seconds)))


def make_world(folder: Path) -> World:
    """Return a world whose store is in a folder."""
    world = World(store=JobStore.open(str(folder / "store")))
    world.clock = WorkingClock(world)
    return world


def launchers(world: World) -> Mapping[str, Launcher]:
    return {"local": FakeLauncher(world, "host-a")}
