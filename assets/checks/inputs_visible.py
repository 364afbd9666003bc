"""A check that the results of given inputs are visible in the job's outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import dagster as dg

from tidemark.assets.checks.check import CheckDeclaration, Finding
from tidemark.assets.checks.check_context import CheckContext
from tidemark.assets.streams.job_streams import StreamData
from tidemark.control import Input, InputWatch
from tidemark.state import JobStore

_NAMED = 20


@dataclass(frozen=True)
class InputsVisible:
    """What came of all these inputs is published: files, records of Kafka's, epochs.

    Args:
        inputs: as ``tm.wait_for`` takes them, such as ``"file:/data/landing/7.json"``; or a function that returns them when the check runs.
        output: output whose asset shows the check; the job's first main output by default.
        source: the source that has to have read them; by default each that reads their topics or folders.
        severity: of a failure.
        blocking: keep downstream assets from running when it fails as an error.
    """

    inputs: Sequence[str] | Callable[[], Sequence[str]]
    output: str | None = None
    source: str = ""
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN
    blocking: bool = False
    name: str = "inputs_visible"

    @property
    def compares_runs(self) -> bool:
        """False: it reads the job's log only."""
        return False

    def declare(self, stream: StreamData) -> Sequence[CheckDeclaration]:
        """Return the check."""
        del stream
        return (CheckDeclaration(self.name, "What came of the expected inputs is published.", self.blocking),)

    def evaluate(self, stream: StreamData, context: CheckContext) -> Iterator[Finding]:
        """Yield the finding; it names the first inputs that are missing, and why.

        Raises:
            DefinitionError: one of them names no input, or the job has no such source.
        """
        wanted = self.inputs() if callable(self.inputs) else self.inputs
        watch = InputWatch(JobStore.open(context.store), stream.job.name, source=self.source)
        found = [watch.look(Input.parse(each)) for each in wanted]
        missing = [f"{each.input}: {each.missing}" for each in found if not each.is_visible]
        more = f", and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        yield Finding(
            self.name,
            passed=not missing,
            description="; ".join(missing[:_NAMED]) + more if missing else f"all {len(found)} inputs are visible",
            severity=self.severity,
            metadata={"tidemark/inputs": len(found), "tidemark/inputs_missing": len(missing)},
        )
