"""What a metric of a job is: its name by Prometheus's conventions, its labels, and how its numbers are read from a view. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from tidemark.control.model.view import JobView

MetricKind = Literal["counter", "gauge"]
MetricGroup = Literal["Jobs", "Time", "Rows", "Epochs", "State", "Resources", "Supervisor"]

Sample = tuple[tuple[str, ...], float]
"""Values of the labels besides ``job``, in order, and the number."""

_PREFIX: Final = "tidemark_"


@dataclass(frozen=True)
class MetricInfo:
    """A metric without its numbers.

    Args:
        stem: its name without prefix, unit and ``_total``.
        unit: ``seconds``, ``bytes``, ``rows``, …; empty for plain counts and marks.
        kind: a counter only grows, except when a new lineage begins.
        labels: names of the labels.
        text: its description, one sentence.
        group: the group in dashboards.
    """

    stem: str
    unit: str
    kind: MetricKind
    labels: tuple[str, ...]
    text: str
    group: MetricGroup

    @property
    def family(self) -> str:
        """The name without ``_total``, as Prometheus's client takes it."""
        return f"{_PREFIX}{self.stem}" + (f"_{self.unit}" if self.unit else "")

    @property
    def name(self) -> str:
        """The name of its series.

        >>> MetricInfo("source", "rows", "counter", ("job",), "Rows.", "Rows").name
        'tidemark_source_rows_total'
        """
        return f"{self.family}_total" if self.kind == "counter" else self.family


@dataclass(frozen=True)
class JobMetric:
    """A metric of jobs, and how its numbers are read from a view; its first label is ``job``.

    ``covers_damaged`` ones are also exported for a job with an unreadable file.
    """

    info: MetricInfo
    read: Callable[[JobView], Iterable[Sample]]

    @property
    def covers_damaged(self) -> bool:
        """Whether it is exported for a job with an unreadable file."""
        return self.info.stem in {"job_state", "job_healthy"}


def job_metric(
    stem: str,
    unit: str,
    text: str,
    group: MetricGroup,
    read: Callable[[JobView], Iterable[Sample]],
    *labels: str,
    kind: MetricKind = "gauge",
) -> JobMetric:
    """Return a metric of jobs; arguments as ``MetricInfo`` and ``JobMetric`` have them, ``labels`` are those besides ``job``."""
    return JobMetric(MetricInfo(stem, unit, kind, ("job", *labels), text, group), read)
