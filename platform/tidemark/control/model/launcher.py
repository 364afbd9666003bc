"""What starts, finds and ends the processes of drivers. A launcher knows nothing of why; the reconciler decides."""

from __future__ import annotations

from typing import Literal, Protocol

from tidemark.control.model.records import Attempt, ProcessHandle
from tidemark.control.model.spec import SpecGeneration

ProcessState = Literal["alive", "gone", "unknown"]


class Launcher(Protocol):
    """Starts drivers as processes of their own, which outlive who started them.

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
        """Say whether a process lives; ``unknown`` where that cannot be told from here, such as a process of another machine.

        Whoever only looks calls it, too: it changes nothing.
        """
        ...

    def exit_code(self, handle: ProcessHandle) -> int | None:
        """Return what a process that is gone ended with, None where that is not known."""
        ...

    def ask_to_stop(self, handle: ProcessHandle) -> None:
        """Ask a process to finish its epoch and end; does nothing where it cannot be reached or is gone."""
        ...

    def kill(self, handle: ProcessHandle) -> None:
        """End a process at once, with all it started; of one that is gone, what it left running.

        Does nothing where it cannot be reached.
        """
        ...

    def logs(self, handle: ProcessHandle, lines: int) -> tuple[str, ...]:
        """Return the newest lines of a process's log, oldest first; none where they cannot be reached."""
        ...
