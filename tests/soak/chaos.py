"""Kills at random: drivers (their Python, their JVM, or all of them), the supervisor, the Dagster daemon (alone, or with its servers)."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.soak.keepers import Keeper
from tests.soak.streams import JOBS
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.launch.processes import kill_session, session_members
from tidemark.control.model.launcher import Launcher
from tidemark.control.observed.observe import observe
from tidemark.state.store.store import JobStore

Target = Literal["python", "jvm", "session"]


@dataclass(frozen=True)
class Kill:
    """What was killed when; ``job`` is empty for who keeps jobs running."""

    at: int
    what: str
    job: str = ""


class Chaos:
    """Kills one thing at a time; every strike kills something.

    Args:
        store: the root store.
        launchers: to find drivers by.
        keepers: those that may be killed, too.
        chance: decides.
    """

    def __init__(self, store: JobStore, launchers: Mapping[str, Launcher], keepers: Sequence[Keeper], chance: random.Random) -> None:
        self._store = store
        self._launchers = launchers
        self._keepers = tuple(keepers)
        self._chance = chance
        self.kills: list[Kill] = []

    @property
    def counts(self) -> Counter[str]:
        """How many of each were killed."""
        return Counter(kill.what for kill in self.kills)

    def strike(self) -> None:
        """Kill something."""
        if self._chance.random() < 0.55 and self._kill_a_driver():
            return
        keeper = self._chance.choice(self._keepers)
        self.kills.append(Kill(SYSTEM_CLOCK.now_ms(), keeper.name))
        keeper.kill(whole=self._chance.random() < 0.5)

    def _kill_a_driver(self) -> bool:
        for job in self._chance.sample(JOBS, len(JOBS)):
            seen = observe(self._store, job, self._launchers)
            if seen.process == "alive" and seen.handle is not None and seen.handle.pid is not None:
                target: Target = self._chance.choice(("python", "jvm", "session"))
                self.kills.append(Kill(SYSTEM_CLOCK.now_ms(), f"driver ({target})", job))
                kill_driver(seen.handle.pid, target)
                return True
        return False


def left_behind(root: Path) -> list[str]:
    """Return the command lines of all processes, but this one, that were started for a soak in this folder."""
    mark, found = os.fsencode(str(root)), list[str]()
    for place in Path("/proc").iterdir():
        if place.name.isdecimal() and int(place.name) != os.getpid():
            with suppress(OSError):
                if mark in (place / "environ").read_bytes():
                    found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


def kill_driver(leader: int, target: Target) -> None:
    """Kill a driver: its Python, its JVM, or all that it started.

    Args:
        leader: the driver's process, which leads a session.
        target: what of it.
    """
    members = [member.pid for member in session_members(leader)]
    machines = [pid for pid in members if pid != leader and _runs_java(pid)]
    if target == "session":
        kill_session(leader)
    for pid in (machines or [leader]) if target == "jvm" else [leader]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _runs_java(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "java"
    return False
