"""From ``kill -9`` of a submitted job's driver to its next published epoch, and where the time goes.

``python -m benchmarks.operation.recovery_time --build now=. --build before=/tmp/before [--kills 5] [--every '1 second']``. A build is a
checkout; all run with this environment's packages and archive of classes. Each has one job and one supervisor of its own; the builds take
turns, and between its kills a job runs for as long as its restart policy takes for health, so that no restart is waited for.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.data.fares import FaresPlan, ensure_fares
from benchmarks.harness.engines import DRIVER_MEMORY, cores
from benchmarks.harness.processes import CHECKOUT, MeasurementError
from benchmarks.operation.start_time import CODE, JOB
from tidemark.clock import SYSTEM_CLOCK

_ROWS: Final = 1_000
_SECONDS: Final = 180.0
_HEALTHY_SECONDS: Final = 20
_ONE_AFTER_ANOTHER: Final = ("seen", "python", "code", "spark", "recovery", "checkpoint", "first epoch")


@dataclass(frozen=True)
class Recovery:
    """One kill: milliseconds until the next epoch was published, and of the stages, as the driver says them."""

    build: str
    ms: int
    stages: Mapping[str, int]


class Running:
    """A job of a build that runs, and its supervisor.

    Args:
        name: of the build.
        checkout: its files.
        folder: an empty one, for all the job has.
        every: between two passes of the supervisor.
        options: of ``submit``.
    """

    def __init__(self, name: str, checkout: Path, folder: Path, *, every: str, options: Sequence[str] = ()) -> None:
        self.name = name
        self._folder = folder
        self._variables = {
            **os.environ,
            "PYTHONPATH": str(checkout.absolute() / "platform"),
            "TIDEMARK_LOGS": str(folder / "logs"),
            "TIDEMARK_STORE": str(folder / "store"),
        }
        (folder / "in").mkdir(parents=True)
        (folder / "start_job.py").write_text(CODE, encoding="utf-8")
        known = self._tidemark("submit", "--help").stdout
        given = [*options, *(("--restart-reset-after", f"{_HEALTHY_SECONDS} seconds") if "--restart-reset-after" in known else ())]
        place = ("--code-path", str(folder), "--env", f"START_ROOT={folder}", "--folder", str(folder))
        spark = ("--master", f"local[{cores()}]", "--conf", f"spark.driver.memory={DRIVER_MEMORY}", "--trigger", "1 second")
        self._tidemark("submit", "start_job:job", *place, *spark, "--no-wait", *given)
        with (folder / "supervisor.log").open("ab") as log:
            command = (*self._program("supervise"), "--every", every)
            self._supervisor = subprocess.Popen(command, env=self._variables, stdout=log, stderr=log, cwd=folder)

    def land(self, file: Path) -> None:
        """Let a file arrive, at once as a whole."""
        shutil.copyfile(file, self._folder / f".{file.name}")
        (self._folder / f".{file.name}").rename(self._folder / "in" / file.name)

    def published(self) -> tuple[int, int]:
        """Return the newest published epoch, -1 before the first, and when it was published."""
        last = self._read("status.json").get("last") or {"epoch": -1, "processing_time": 0, "duration_ms": 0}
        return last["epoch"], last["processing_time"] + last["duration_ms"]

    def wait_past(self, epoch: int) -> int:
        """Wait for an epoch after this one; returns when it was published."""
        end = SYSTEM_CLOCK.monotonic() + _SECONDS
        while self.published()[0] <= epoch:
            if SYSTEM_CLOCK.monotonic() > end:
                said = (self._folder / "supervisor.log").read_text(encoding="utf-8")[-2_000:]
                raise MeasurementError(
                    f"{self.name}: no epoch after {epoch} in {_SECONDS:g} s: {said}", fix="see what it says", uid=self.name
                )
            SYSTEM_CLOCK.sleep(0.05)
        return self.published()[1]

    def kill(self, file: Path) -> Recovery:
        """Kill the driver, let a file arrive, and wait until it is read."""
        epoch, _ = self.published()
        claims = sorted((self._folder / "store" / JOB / "control" / "claims").iterdir())
        process = json.loads(claims[-1].read_text(encoding="utf-8"))["body"]["process"]
        os.kill(process["pid"], signal.SIGKILL)
        killed = SYSTEM_CLOCK.now_ms()
        self.land(file)
        took = self.wait_past(epoch) - killed
        attempt = self._read(f"control/attempts/{int(claims[-1].stem) + 1:08d}.json")
        SYSTEM_CLOCK.sleep(1.0)
        start = self._read(f"control/starts/{int(claims[-1].stem) + 1:08d}.json")
        return Recovery(self.name, took, {"seen": attempt["at"] - killed, **start.get("took", {})})

    def end(self) -> None:
        """End the supervisor and the job."""
        self._supervisor.send_signal(signal.SIGTERM)
        self._supervisor.wait(60)
        self._tidemark("cancel", JOB)

    def _read(self, path: str) -> dict[str, Any]:
        try:
            body: dict[str, Any] = json.loads((self._folder / "store" / JOB / path).read_text(encoding="utf-8"))["body"]
        except FileNotFoundError:
            return {}
        return body

    def _program(self, *arguments: str) -> tuple[str, ...]:
        return (str(Path(sys.executable).with_name("tidemark")), *arguments)

    def _tidemark(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = self._program(*arguments)
        done = subprocess.run(command, env=self._variables, capture_output=True, text=True, check=False, cwd=self._folder)
        if done.returncode:
            raise MeasurementError(f"{self.name}: {done.stdout}{done.stderr}"[-2_000:], fix="see what it says", uid=self.name)
        return done


def measure(builds: Mapping[str, Path], scratch: Path, *, kills: int, every: str, options: Sequence[str] = ()) -> tuple[Recovery, ...]:
    """Kill the drivers of the builds in turns, each so many times.

    Raises:
        MeasurementError: a job did not come back.
    """
    rounds = kills + 1
    files = sorted(ensure_fares(FaresPlan(rounds * _ROWS, 100, files=rounds), scratch).iterdir())
    folder = Path(tempfile.mkdtemp(prefix="recovery-", dir=scratch))
    jobs: list[Running] = []
    found = []
    try:
        for name, checkout in builds.items():
            job = Running(name, checkout, folder / name, every=every, options=options)
            jobs.append(job)
            job.land(files[0])
            job.wait_past(-1)
        for number, file in enumerate(files[1:]):
            SYSTEM_CLOCK.sleep(_HEALTHY_SECONDS)
            for job in jobs if number % 2 == 0 else reversed(jobs):
                found.append(job.kill(file))
                print(_line(found[-1].build, found[-1].ms, found[-1].stages), flush=True)
    finally:
        for job in jobs:
            job.end()
        shutil.rmtree(folder, ignore_errors=True)
    return tuple(found)


def _line(name: str, ms: int, stages: Mapping[str, int]) -> str:
    known = (*(stage for stage in _ONE_AFTER_ANOTHER if stage in stages), *(stage for stage in ("jvm", "session") if stage in stages))
    return f"{name:>8}  {ms / 1000:5.1f} s  " + "  ".join(f"{stage} {stages[stage] / 1000:.2f}" for stage in known)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each kill, and the medians of each build."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operation.recovery_time", description=__doc__)
    parser.add_argument("--build", action="append", metavar="NAME=CHECKOUT", help="may be repeated; by default this checkout")
    parser.add_argument("--kills", type=int, default=5, help="of each build")
    parser.add_argument("--every", default="1 second", help="between two passes of the supervisor")
    parser.add_argument("--option", action="append", default=[], help="of submit, such as --option=--standby")
    asked = parser.parse_args(arguments)
    builds = {name: Path(place) for name, _, place in (build.partition("=") for build in asked.build or [f"now={CHECKOUT}"])}
    scratch = CHECKOUT / ".tidemark" / "bench"
    found = measure(builds, scratch, kills=asked.kills, every=asked.every, options=asked.option)
    for name in builds:
        of_it = [recovery for recovery in found if recovery.build == name]
        spread = [recovery.ms for recovery in of_it]
        stages = {stage for recovery in of_it for stage in recovery.stages}
        middle = {stage: round(median(recovery.stages.get(stage, 0) for recovery in of_it)) for stage in stages}
        print(f"median of {len(of_it)}, {min(spread) / 1000:.1f} to {max(spread) / 1000:.1f} s:")
        print(_line(name, round(median(spread)), middle))
    return 0


if __name__ == "__main__":
    sys.exit(main())
