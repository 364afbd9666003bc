"""The state of a job's standby, as shown by commands, Dagster and JSON."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tidemark.control.model.records import ProcessHandle
from tidemark.control.model.spec import SpecGeneration
from tidemark.control.model.standby_files import read_standby

StandbyState = Literal["ready", "starting", "none", "unseen"]
"""``ready``: takes the job over when its driver dies. ``starting``: its session is being created. ``none``: the driver has not started
one yet, or it has ended. ``unseen``: the driver is on another machine, and only that machine can see it."""


@dataclass(frozen=True)
class StandbyView:
    """A job's standby: its state, its process, and the machine that both it and the driver run on."""

    state: StandbyState
    pid: int | None = None
    host: str = ""

    def __str__(self) -> str:
        """Return it in a few words."""
        match self.state:
            case "ready":
                return f"process {self.pid} is ready to take over"
            case "starting":
                return f"process {self.pid} is starting"
            case "unseen":
                return f"visible on host {self.host!r} only"
            case _:
                return "none; the driver starts one after its first epoch"


def standby_of(generation: SpecGeneration | None, driver: ProcessHandle | None) -> StandbyView | None:
    """Return the state of a job's standby, None if the spec asks for none.

    Args:
        generation: the newest spec.
        driver: the newest attempt's process; the standby's files are beside its log.
    """
    if generation is None or not generation.spec.standby or generation.spec.wanted != "running":
        return None
    if driver is None or driver.log is None:
        return StandbyView("none")
    if driver.host != socket.gethostname():
        return StandbyView("unseen", host=driver.host)
    found = read_standby(Path(driver.log).parent)
    # The driver replaces a standby of an earlier spec.
    if found is None or not found.is_alive or found.generation != generation.generation:
        return StandbyView("none", host=driver.host)
    return StandbyView("ready" if found.ready else "starting", found.pid, driver.host)
