"""Drivers as processes of this machine, which outlive the process that launched them."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidemark.control.launch.logs import OUT, rotate, tail
from tidemark.control.launch.processes import kill_session, reap, spawn
from tidemark.control.launch.run_folder import SCRATCH, RunFolder, read_exit_status, run_folder, write_exit_status
from tidemark.control.model.launcher import ProcessState
from tidemark.control.model.records import Attempt, ProcessHandle
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.control.model.standby_files import assign_attempt, read_standby
from tidemark.errors import LaunchError
from tidemark.spark.env.start.described_session import VARIABLE, described
from tidemark.state.encoding.redaction import redacted, without_secrets
from tidemark.state.log.process_identity import is_known_dead, process_info, started_since_boot
from tidemark.state.log.records import OwnerInfo

_PROGRAM: Final = "tidemark.control.driver"

_PARENT_VARIABLES: Final = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "_PYSPARK_DRIVER_CONN_INFO_PATH", "SPARK_ENV_LOADED")
"""Variables with which a process that itself runs in Spark would pass its own JVM to the driver."""

_MARK: Final = "TIDEMARK_DRIVER"
"""Variable of a driver and of all it starts: the path of its log. Pids are reused; this is not."""

_REAPING: Final = threading.Lock()
"""A thread that asks for an exit code after another one has reaped the process finds it written."""


class LocalLauncher:
    """Starts drivers with this Python on this machine; a ``launcher.Launcher``.

    Args:
        logs: where logs are kept; else ``$TIDEMARK_LOGS``, or the user's folder for state.
        name: the launcher's name in process handles.
    """

    def __init__(self, logs: Path | None = None, *, name: str = "local") -> None:
        self._logs = logs
        self._name = name
        self._host = socket.gethostname()
        self._alive: dict[int, OwnerInfo] = {}

    def launch(self, spec: SpecGeneration, attempt: Attempt, store_uri: str) -> ProcessHandle:
        """Start the driver of an attempt and return at once.

        Raises:
            LaunchError: no process was started.
        """
        job = spec.spec
        files = run_folder(store_uri, job.job, self._logs)
        try:
            folder = Path(job.folder).expanduser() if job.folder is not None else None
            if folder is not None and not folder.is_dir():
                raise LaunchError(
                    f"the working directory {folder} of job {job.job!r} does not exist", fix="create it, or submit with another"
                )
            handed = self._hand_to_standby(spec, attempt, files)
            if handed is not None:
                return handed
            files.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
            rotate(files.out)
            scratch = files.new_scratch(attempt.number)
            variables = {**self.environment(job, scratch), **self.session(job, files), _MARK: str(files.log), SCRATCH: str(scratch)}
            command = self.command(spec, attempt, store_uri, files)
            pid = spawn(command, variables, out=files.out, folder=folder)
        # The home of an unknown user (~ada/jobs) is a RuntimeError, a text that the system rejects a ValueError.
        except (OSError, RuntimeError, ValueError) as error:
            raise LaunchError(
                f"the driver of job {job.job!r} cannot be started: {redacted(str(error))}",
                fix="check that the program and the spec's folder and code_paths exist, and free space for log and temporary files",
                place=str(files.logs),
            ) from without_secrets(error)
        # One that has ended already is known, too, until it is reaped.
        info = process_info(pid)
        return ProcessHandle(
            self._name, self._host, pid, started=info.start_token if info is not None else f"{pid} is gone", log=str(files.log)
        )

    def _hand_to_standby(self, spec: SpecGeneration, attempt: Attempt, files: RunFolder) -> ProcessHandle | None:
        """Assign the attempt to the standby of this generation; None if there is none, and a process has to be started."""
        standby = read_standby(files.logs) if spec.spec.standby else None
        if standby is None or not standby.ready or not standby.is_alive or standby.generation != spec.generation:
            return None
        if not assign_attempt(files.logs, standby, attempt.number):
            return None
        return ProcessHandle(self._name, self._host, standby.pid, started=standby.started, log=str(files.log))

    def standby_command(self, spec: SpecGeneration, store_uri: str, log: Path) -> Sequence[str]:
        """Return the program of a standby, and its arguments."""
        arguments = ("--store", store_uri, "--job", spec.spec.job, "--standby", str(spec.generation), "--launcher", self._name)
        return (sys.executable, "-m", _PROGRAM, *arguments, "--log", str(log))

    def standby_environment(self, job: JobSpec, scratch: Path, log: Path) -> dict[str, str]:
        """Return the environment of a standby that a driver starts: the driver's own, except the folders of temporary files."""
        found = self.environment(job, scratch)
        if found["SPARK_LOCAL_DIRS"] == os.environ.get(SCRATCH):
            found["SPARK_LOCAL_DIRS"] = str(scratch)
        return {**found, _MARK: str(log), SCRATCH: str(scratch)}

    def command(self, spec: SpecGeneration, attempt: Attempt, store_uri: str, files: RunFolder) -> Sequence[str]:
        """Return the program to start, and its arguments."""
        return (sys.executable, "-m", _PROGRAM, *driver_arguments(spec.spec.job, attempt, store_uri, launcher=self._name, log=files.log))

    def session(self, job: JobSpec, files: RunFolder) -> Mapping[str, str]:
        """Return the variable by which a driver starts its JVM before all else; none where Spark's master is elsewhere."""
        if not job.master.startswith("local"):
            return {}
        return {VARIABLE: described(job.master, job.app_name, job.conf, files.out)}

    def environment(self, job: JobSpec, scratch: Path) -> dict[str, str]:
        """Return the environment of a driver: that of this process, the job's variables, and the path of its code."""
        found = {key: value for key, value in os.environ.items() if key not in _PARENT_VARIABLES}
        # Temporary files of a killed driver are where the next one removes them.
        found |= {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": found.get("SPARK_LOCAL_DIRS", str(scratch))}
        found |= job.variables
        paths = [str(path) for path in resolve_code_paths(job)] + [path for path in (found.get("PYTHONPATH"),) if path]
        return {**found, "PYTHONPATH": os.pathsep.join(paths)} if paths else found

    def probe(self, handle: ProcessHandle) -> ProcessState:
        """Return whether a process is alive."""
        if not self._is_here(handle) or handle.pid is None:
            return "unknown"
        self._reap(handle)
        owner = OwnerInfo(handle.host, handle.pid, handle.started)
        if is_known_dead(owner):
            self._alive.pop(handle.pid, None)
            return "gone"
        self._alive[handle.pid] = owner
        return "alive"

    def any_driver_ended(self) -> bool:
        """Return whether a driver that was alive at its last probe has ended since; each end is reported once."""
        ended = [pid for pid, owner in tuple(self._alive.items()) if is_known_dead(owner)]
        for pid in ended:
            self._alive.pop(pid, None)
        return bool(ended)

    def exit_code(self, handle: ProcessHandle) -> int | None:
        """Return the exit code of a process that has ended, None if it was not recorded."""
        if not self._is_here(handle) or handle.pid is None or handle.log is None:
            return None
        self._reap(handle)
        return read_exit_status(Path(handle.log), pid=handle.pid, started=handle.started)

    def ask_to_stop(self, handle: ProcessHandle) -> None:
        """Send the driver SIGTERM: it finishes its epoch and ends."""
        pid = self.driver_pid(handle) if self._is_here(handle) else None
        if pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)

    def driver_pid(self, handle: ProcessHandle) -> int | None:
        """Return the pid of the driver's Python, None if it is not alive."""
        alive = handle.pid is not None and not is_known_dead(OwnerInfo(handle.host, handle.pid, handle.started))
        return handle.pid if alive else None

    def kill(self, handle: ProcessHandle) -> None:
        """Kill a process and all that it started; if it has ended, the processes that it left running.

        A JVM without its Python, or the other way round, is of no use.
        """
        if not self._is_here(handle) or handle.pid is None:
            return
        if is_known_dead(OwnerInfo(handle.host, handle.pid, handle.started)):
            self._kill_leftovers(handle, handle.pid)
        else:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(handle.pid, signal.SIGKILL)
            kill_session(handle.pid)
        self._reap(handle)

    def logs(self, handle: ProcessHandle, lines: int) -> tuple[str, ...]:
        """Return the newest lines of the log; if a driver died before it wrote any, of its output."""
        if not self._is_here(handle) or handle.log is None:
            return ()
        log = Path(handle.log)
        return tail(log, lines) or tail(log.with_name(OUT), lines)

    def _is_here(self, handle: ProcessHandle) -> bool:
        return handle.host == self._host

    def _kill_leftovers(self, handle: ProcessHandle, leader: int) -> None:
        """Kill the rest of the session that a driver led; processes of a later session with the same number are left alone."""
        info = process_info(leader)
        if (info is None or info.is_zombie) and handle.log is not None and started_since_boot(handle.started):
            kill_session(leader, mark=f"{_MARK}={handle.log}")

    def _reap(self, handle: ProcessHandle) -> None:
        """Reap a child of this process that has ended, and write its exit status."""
        if handle.pid is None:
            return
        info = process_info(handle.pid)
        # The pid may belong to another child of this process by now.
        if info is not None and (not info.is_zombie or not handle.started.endswith(f":{info.started}")):
            return
        with _REAPING:
            code = reap(handle.pid) if info is not None else None
            if code is not None and handle.log is not None:
                log = Path(handle.log)
                with suppress(OSError):
                    if read_exit_status(log, pid=handle.pid, started=handle.started) is None:
                        write_exit_status(log, pid=handle.pid, started=handle.started, code=code)


def driver_arguments(job: str, attempt: Attempt, store_uri: str, *, launcher: str, log: Path | None) -> tuple[str, ...]:
    """Return the arguments of a driver."""
    arguments = ("--store", store_uri, "--job", job, "--attempt", str(attempt.number), "--launcher", launcher)
    return (*arguments, "--log", str(log)) if log is not None else arguments


def resolve_code_paths(job: JobSpec) -> tuple[Path, ...]:
    """Return the job's code paths, absolute; relative ones are relative to its working directory.

    Raises:
        LaunchError: one does not exist.
    """
    folder = Path(job.folder or ".").expanduser()
    places = tuple((folder / Path(path).expanduser()).absolute() for path in job.code_paths)
    for place in places:
        if not place.exists():
            raise LaunchError(f"code path {place} of job {job.job!r} does not exist", fix="submit with existing code_paths")
    return places
