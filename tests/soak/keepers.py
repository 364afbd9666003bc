"""What keeps jobs running while it is killed itself: ``tidemark supervise`` and a Dagster daemon, started again as an init system does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.control.sparkless_driver import CHECKOUT
from tidemark.control.launch.processes import kill_session
from tidemark.state.status.log_folder import LOGS_VARIABLE

DEFINITIONS: Final = """
import logging
import os

import dagster as dg

from tidemark.sensors.reconcile import build_reconcile_sensor

# What a reconciler does it says in its log, which Dagster would leave out.
logging.basicConfig(level=logging.INFO, filename=os.environ["SENSOR_LOG"], format="%(asctime)s %(message)s")
sensor = build_reconcile_sensor(os.environ["TIDEMARK_STORE"], every="2 seconds", default_status=dg.DefaultSensorStatus.RUNNING)
defs = dg.Definitions(sensors=[sensor])
"""

ALERTS: Final = """
[receivers.ears]
kind = "webhook"
url_env = "SOAK_EARS"
single = 50
most = 1000

[group]
wait = "1 second"
interval = "5 seconds"
"""


class Keeper:
    """A process that leads a session of its own, and is started again when it is gone.

    Args:
        name: of its log.
        command: the program.
        folder: of its log.
        variables: of its environment, beside this process's.
    """

    def __init__(self, name: str, command: list[str], folder: Path, variables: Mapping[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = command
        self._variables = {**os.environ, **variables}
        self._process = self._start()

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def keep(self) -> None:
        """Start it again if it is gone."""
        if not self.is_alive:
            self._process = self._start()

    def kill(self, *, whole: bool) -> None:
        """Kill its process, or all that it started and that is still in its session."""
        if whole:
            kill_session(self.pid)
        self._process.kill()
        self._process.wait()

    def end(self, seconds: float = 60) -> int:
        """Ask it to end and wait; returns its exit code."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(seconds)
        finally:
            kill_session(self.pid)

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as out:
            return subprocess.Popen(
                self._command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self._variables, start_new_session=True
            )


def supervisor(root: Path, store: str, ears: str) -> Keeper:
    """Return a supervisor that tells a webhook of alerts."""
    config = root / "alerts.toml"
    config.write_text(ALERTS, encoding="utf-8")
    program = str(Path(sys.executable).with_name("tidemark"))
    command = [program, "supervise", "--store", store, "--every", "2 seconds", "--alerts", str(config)]
    return Keeper("supervisor", command, root, {**_variables(root), "SOAK_EARS": ears})


def daemon(root: Path, store: str) -> Keeper:
    """Return a Dagster daemon whose one sensor reconciles."""
    home = root / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", encoding="utf-8")
    (home / "definitions.py").write_text(DEFINITIONS, encoding="utf-8")
    (home / "workspace.yaml").write_text("load_from:\n  - python_file: definitions.py\n", encoding="utf-8")
    program = str(Path(sys.executable).with_name("dagster-daemon"))
    variables = {**_variables(root), "TIDEMARK_STORE": store, "DAGSTER_HOME": str(home), "SENSOR_LOG": str(sensor_log(root))}
    return Keeper("daemon", [program, "run", "--workspace", str(home / "workspace.yaml")], root, variables)


def sensor_log(root: Path) -> Path:
    """Return where the daemon's sensor says what it does."""
    return root / "sensor.log"


def logs_folder(root: Path) -> Path:
    """Return where drivers' logs are, whoever starts them."""
    return root / "logs"


def _variables(root: Path) -> Mapping[str, str]:
    return {"SOAK_ROOT": str(root), LOGS_VARIABLE: str(logs_folder(root))}
