"""Profiles a running driver for some seconds: stacks of its JVM and of its Python processes at the same time."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.profile.driver_processes import DriverProcesses
from tidemark.control.profile.jvm_recording import JvmRecording
from tidemark.control.profile.profile_page import Side, profile_page
from tidemark.control.profile.python_recording import PythonRecording
from tidemark.control.profile.stacks import Stack, collapsed
from tidemark.errors import ProfileError
from tidemark.state.log.process_identity import is_known_dead

Language = Literal["jvm", "python"]

_LOOK_SECONDS: Final = 0.5
_PAGE: Final = "profile.html"
_ABOUT: Final[dict[Language, tuple[str, str, int]]] = {
    "jvm": ("JVM", "Threads that ran Java code, up to five of them each 10 milliseconds.", 95),
    "python": ("Python", "Threads of the driver and of Spark's Python workers, 100 times a second.", 205),
}


@dataclass(frozen=True)
class Profile:
    """What was sampled of a job's driver from ``at`` (milliseconds) on, by language."""

    job: str
    at: int
    seconds: int
    stacks: dict[Language, Counter[Stack]]

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides of its page."""
        return tuple(Side(name, self.stacks[key], about, hue) for key, (name, about, hue) in _ABOUT.items() if key in self.stacks)

    def write(self, folder: Path) -> Path:
        """Write page, flame graphs and collapsed stacks into a new folder, which only this user may read; return the page.

        Args:
            folder: the new folder.

        Raises:
            OSError: it exists, or cannot be created.
        """
        folder.mkdir(parents=True, mode=0o700)
        for key, side in zip(self.stacks, self.sides, strict=True):
            (folder / f"{key}.svg").write_text(side.svg(self.job), encoding="utf-8")
            (folder / f"{key}.collapsed").write_text(collapsed(side.stacks), encoding="utf-8", errors="replace")
        page = folder / _PAGE
        page.write_text(profile_page(self.job, self.sides, at=self.at, seconds=self.seconds), encoding="utf-8")
        return page


def require_new(folder: Path, job: str) -> None:
    """Raise if a profile cannot be written to a folder, since it exists.

    Raises:
        ProfileError: it exists.
    """
    if folder.exists():
        raise ProfileError(f"{folder} exists already", fix="give another folder: --output FOLDER", job=job)


def profile_driver(
    driver: DriverProcesses,
    *,
    seconds: int,
    only: Language | None = None,
    idle: bool = False,
    on_second: Callable[[float], None] = lambda _: None,
    clock: Clock = SYSTEM_CLOCK,
) -> Profile:
    """Sample a driver's stacks.

    Args:
        driver: its processes.
        seconds: for how long.
        only: leave the other language out.
        idle: also sample Python threads that wait.
        on_second: called every half second with the seconds that have passed.
        clock: for the time of the profile.

    Raises:
        SetupError: a program is missing, or the system does not allow it.
        ProfileError: a process does not answer, or has ended.
    """
    with ExitStack() as cleaning:
        folder = Path(cleaning.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-profile-")))
        jvm = JvmRecording(driver, folder) if only != "python" else None
        pythons = [PythonRecording(driver, root, folder, idle=idle) for root in driver.roots] if only != "jvm" else []
        for recording in pythons:
            cleaning.callback(recording.discard)
        if jvm is not None:
            cleaning.callback(jvm.discard)
            jvm.start(seconds)
        at, begun = clock.now_ms(), clock.monotonic()
        for recording in pythons:
            recording.start(seconds)
        while (passed := clock.monotonic() - begun) < seconds:
            on_second(passed)
            clock.sleep(min(_LOOK_SECONDS, seconds - passed))
            for recording in pythons:
                recording.check()
            _require_alive(driver)
        on_second(seconds)
        found: dict[Language, Counter[Stack]] = {}
        if jvm is not None:
            found["jvm"] = jvm.stop()
        if pythons:
            found["python"] = sum((recording.stacks() for recording in pythons), Counter[Stack]())
        return Profile(driver.job, at, seconds, found)


def _require_alive(driver: DriverProcesses) -> None:
    if is_known_dead(driver.owner):
        raise ProfileError(
            f"its driver (process {driver.python}) ended meanwhile",
            fix=f"profile the next one; tidemark status {driver.job} says what happened",
            job=driver.job,
        )
