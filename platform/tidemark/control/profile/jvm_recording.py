"""Samples the stacks of a running JVM with Java's own Flight Recorder, by the programs ``jcmd`` and ``jfr`` of a JDK."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from tidemark.control.profile.driver_processes import DriverProcesses
from tidemark.control.profile.stacks import Stack, java_stacks
from tidemark.errors import ProfileError, SetupError
from tidemark.state.encoding.redaction import redacted

INTERVAL_MS: Final = 10
"""Between two samples; Flight Recorder then looks at up to five threads that run Java code."""

DEPTH: Final = 256
_ANSWER_SECONDS: Final = 60
_LEFT_ALONE_SECONDS: Final = 300


class JvmRecording:
    """A recording of a driver's JVM, which records nothing but stacks: neither variables of the environment nor arguments.

    Args:
        driver: the driver's processes.
        folder: for the recording's file; the JVM writes it.

    Raises:
        SetupError: there is no JDK here.
    """

    def __init__(self, driver: DriverProcesses, folder: Path) -> None:
        self._driver = driver
        self._jcmd, self._jfr = _program("jcmd", driver), _program("jfr", driver)
        self._name = f"tidemark-{uuid4().hex[:8]}"
        self._file = folder / "jvm.jfr"
        self._running = False

    def start(self, seconds: int) -> None:
        """Begin to record; where nobody ends it, since this process was killed, the JVM does some minutes later.

        Args:
            seconds: for how long at least.

        Raises:
            ProfileError: the JVM cannot record, or does not answer.
        """
        with suppress(ProfileError):
            # Refused once the recorder has been used, whose depth then stays.
            self._command("JFR.configure", f"stackdepth={DEPTH}")
        sample = ("+jdk.ExecutionSample#enabled=true", f"+jdk.ExecutionSample#period={INTERVAL_MS}ms")
        longest = f"duration={seconds + _LEFT_ALONE_SECONDS}s"
        answer = self._command("JFR.start", f"name={self._name}", "settings=none", longest, *sample)
        if "Started recording" not in answer:
            raise self._failed("cannot record", answer)
        self._running = True

    def stop(self) -> Counter[Stack]:
        """End the recording and return its stacks.

        Raises:
            ProfileError: the JVM has ended, or does not answer.
        """
        # The JVM splits what jcmd sends it at spaces, except in quotes.
        answer = self._command("JFR.stop", f"name={self._name}", f'filename="{self._file}"')
        if not self._file.exists():
            raise self._failed("wrote no recording", answer)
        self._running = False
        return self._stacks()

    def discard(self) -> None:
        """End the recording if it goes on; what it has is dropped."""
        if self._running:
            self._running = False
            with suppress(ProfileError):
                self._command("JFR.stop", f"name={self._name}")

    def _stacks(self) -> Counter[Stack]:
        command = [self._jfr, "print", "--events", "jdk.ExecutionSample", "--stack-depth", str(DEPTH), str(self._file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
            found = java_stacks(line.decode("utf-8", "replace") for line in run.stdout or ())
        if run.returncode:
            raise self._failed("made a recording that cannot be read", f"jfr ended with {run.returncode}")
        return found

    def _command(self, *words: str) -> str:
        try:
            done = subprocess.run(
                [self._jcmd, str(self._driver.jvm), *words], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise self._failed("does not answer", f"nothing in {_ANSWER_SECONDS} s") from error
        if done.returncode:
            raise self._failed("does not answer", done.stderr or done.stdout)
        return done.stdout

    def _failed(self, what: str, answer: str) -> ProfileError:
        last = (answer.strip().splitlines() or ["no answer"])[-1].strip()
        return ProfileError(
            f"its JVM (process {self._driver.jvm}) {what}: {redacted(last).rstrip('.')}",
            fix="look at Python alone: --only python",
            job=self._driver.job,
        )


def _program(name: str, driver: DriverProcesses) -> str:
    """Return a program of the JDK that the driver's JVM is of, else one on ``PATH``."""
    beside = Path(driver.java).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise SetupError(
            f"there is no {name} beside {driver.java}, nor on PATH: it is part of a JDK, and not of a Java runtime",
            fix="install a JDK 17 or later on this machine, such as openjdk-17-jdk-headless, or look at Python alone: --only python",
            job=driver.job,
        )
    return found
