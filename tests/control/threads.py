"""A launcher whose drivers are threads of this process, in its session: for tests of what a driver does, not of its process."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark.control.desired.job_import import load_job
from tidemark.control.driver.driver import PreparedDriver, drive
from tidemark.control.launch.logs import JobLogFormatter
from tidemark.control.model.launcher import ProcessState
from tidemark.control.model.records import Attempt, ProcessHandle
from tidemark.control.model.spec import SpecGeneration
from tidemark.state.log.process_identity import current_owner
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def outlasting(spark: SparkSession) -> SparkSession:
    """Return a new session on the same context, which goes on when a driver stops it."""
    session = spark.newSession()
    session.stop = lambda: None  # type: ignore[method-assign]
    return session


@dataclass(frozen=True)
class ThreadLauncher:
    """Starts drivers as threads; one can be asked to end by its spec, and cannot be killed."""

    spark: SparkSession
    codes: dict[str, int] = field(default_factory=dict)
    """Exit codes, by the mark of an attempt's handle."""

    def launch(self, spec: SpecGeneration, attempt: Attempt, store_uri: str) -> ProcessHandle:
        owner, store, name = current_owner(), JobStore.open(store_uri), spec.spec.job
        handle = ProcessHandle("local", owner.host, owner.pid, started=f"{name} {attempt.number}")
        prepared = PreparedDriver(load_job(spec.spec.code, spec.spec.definition), outlasting(self.spark))

        def work() -> None:
            code = drive(store, name, attempt.number, process=handle, lines=JobLogFormatter(name), prepared=prepared)
            self.codes[str(handle.started)] = code

        threading.Thread(target=work, name=str(handle.started), daemon=True).start()
        return handle

    def probe(self, handle: ProcessHandle) -> ProcessState:
        return "gone" if handle.started in self.codes else "alive"

    def exit_code(self, handle: ProcessHandle) -> int | None:
        return self.codes.get(str(handle.started))

    def ask_to_stop(self, handle: ProcessHandle) -> None:
        """Do nothing: what asks for it has changed the spec, which the driver looks at."""

    def kill(self, handle: ProcessHandle) -> None:
        assert self.probe(handle) == "gone", "a thread cannot be killed"

    def logs(self, _handle: ProcessHandle, _lines: int) -> tuple[str, ...]:
        return ()
