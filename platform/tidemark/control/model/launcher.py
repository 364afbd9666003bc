"""What starts, finds and ends the processes of drivers. The reconciler decides; a launcher only acts."""

from __future__ import annotations

from typing import Literal, Protocol

from tidemark.control.model.records import Attempt, ProcessHandle
from tidemark.control.model.spec import SpecGeneration

ProcessState = Literal["alive", "gone", "unknown"]


class Launcher(Protocol):
    """Starts drivers as separate processes, which outlive the process that started them.

    Every method but ``launch`` may be called by another process, and on another machine, than the one that launched.
    """

    def launch(self, spec: SpecGeneration, attempt: Attempt, store_uri: str) -> ProcessHandle:
        """Start the driver of an attempt and return at once; called once per attempt, by who created its record.

        The process that it starts calls ``attempts.claim_attempt`` before anything else, so that it is known even if who launched it
        dies here, and ends where that refuses.

        Raises:
            LaunchError: no process was started.
        """
        ...

    def probe(self, handle: ProcessHandle) -> ProcessState:
        """Return whether a process is alive; ``unknown`` if that cannot be seen from here, such as of a process on another machine.

        It changes nothing, so read-only callers may call it, too.
        """
        ...

    def exit_code(self, handle: ProcessHandle) -> int | None:
        """Return the exit code of a process that has ended, None if it is not known."""
        ...

    def ask_to_stop(self, handle: ProcessHandle) -> None:
        """Ask a process to finish its epoch and end; does nothing if it cannot be reached or has ended."""
        ...

    def kill(self, handle: ProcessHandle) -> None:
        """Kill a process and all that it started; of one that has ended, what it left running.

        Does nothing where it cannot be reached.
        """
        ...

    def logs(self, handle: ProcessHandle, lines: int) -> tuple[str, ...]:
        """Return the newest lines of a process's log, oldest first; none where they cannot be reached."""
        ...
