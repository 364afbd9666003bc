"""Checks every engine's results against sums made straight from the input, and counts the late rows it kept and lost."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from benchmarks.checks.aligned_windows import aligned_truth
from benchmarks.checks.session_windows import session_truth
from benchmarks.checks.verdicts import Verdict
from benchmarks.data.fares import Plan
from benchmarks.harness.shapes import Shape

BOUND_MS: Final = 300_000


class Truth(Protocol):
    """What the input says of its windows."""

    def judge(self, engine: str, folder: Path) -> Verdict:
        """Compare the results (and late rows) below an engine's folder with the input.

        The windows that are out must be those that the last watermark closes. Where no late row falls counts must be equal and sums too,
        within 1e-9. Elsewhere no row may be counted twice, none that is on time may be lost, and an engine that has an output of late
        rows must account for each: in a result or in that output.

        Raises:
            DisagreementError: they differ; the first place that does is named.
        """
        ...


def truth_of(plan: Plan, files: Path, shape: Shape) -> Truth:
    """Return what an input says of windows."""
    make = session_truth if shape.kind == "session" else aligned_truth
    return make(plan, files, shape, bound_ms=BOUND_MS)
