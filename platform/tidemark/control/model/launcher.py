"""Launchers start, find and end the processes of drivers; the reconciler decides when."""

from __future__ import annotations

from typing import Literal, Protocol

from tidemark.control.model.records import Attempt, ProcessHandle
from tidemark.control.model.spec import SpecGeneration

ProcessState = Literal["alive", "gone", "unknown"]


class Launcher(Protocol):
    """Starts drivers as separate processes, which outlive the process that launched them.

    Every method but ``launch`` may be called by another process, and on another machine, than the one that launched.
    """

    def launch(self, spec: SpecGeneration, attempt: Attempt, store_uri: str) -> ProcessHandle:
        """Start the driver of an attempt and return at once; called once per attempt, by the process that created its record.

        The driver calls ``attempts.claim_attempt`` before anything else, so that it is known even if the launching process dies here,
        and ends if that raises.

        Raises:
            LaunchError: no process was started.
        """
        ...

    def probe(self, handle: ProcessHandle) -> ProcessState:
        """Return whether a process lives; ``unknown`` if this process cannot see it, such as one on another machine.

        It changes nothing, so commands that only show a job call it, too.
        """
        ...

    def exit_code(self, handle: ProcessHandle) -> int | None:
        """Return the exit code of a process that has ended, None if it is unknown."""
        ...

    def ask_to_stop(self, handle: ProcessHandle) -> None:
        """Ask a process to finish its epoch and end; does nothing if it cannot be reached or has ended."""
        ...

    def kill(self, handle: ProcessHandle) -> None:
        """Kill a process and all that it started; if it has ended, the processes that it left running.

        Does nothing if it cannot be reached.
        """
        ...

    def logs(self, handle: ProcessHandle, lines: int) -> tuple[str, ...]:
        """Return the newest lines of a process's log, oldest first; none if it cannot be reached."""
        ...
