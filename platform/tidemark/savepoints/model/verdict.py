"""Whether a job can resume from stored state and positions: a verdict on each operator and source, with all findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from tidemark.errors import SinkError, StateMismatchError
from tidemark.savepoints.model.restore_words import by_option, with_savepoint

Fit = Literal["compatible", "migrates", "incompatible"]
Status = Literal["compatible", "migrates", "incompatible", "new", "dropped"]


_STRANGER: Final = "none of the state stored under this name belongs to this job: is it another job of the same name?"


@dataclass(frozen=True)
class Finding:
    """One difference: what it is, what it would lose, and what to do; the last two are empty if it fits."""

    what: str
    fit: Fit
    lost: str = ""
    fix: str = ""

    def text(self) -> str:
        """Return the finding as a sentence or three."""
        parts = (self.what, f"lost would be {self.lost}" if self.fit == "incompatible" and self.lost else self.lost)
        return "; ".join(filter(None, parts)) + (f". Fix: {self.fix}" if self.fix else "")


@dataclass(frozen=True)
class Rewrite:
    """How the columns of an operator's state change, by their names in state files; names no internal columns of the engine.

    ``renamed``: new names by old ones. ``dropped``: columns that are dropped. ``widened``: Spark's JSON of the new types by new names,
    where the graph or Spark infers them. ``added``: new columns, in order. ``without_function``: a window function's state is dropped.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    widened: Mapping[str, object] = field(default_factory=dict)
    added: tuple[str, ...] = ()
    without_function: bool = False

    @property
    def empty(self) -> bool:
        """Whether the state stays as it is."""
        return not (self.renamed or self.dropped or self.widened or self.added or self.without_function)


@dataclass(frozen=True)
class OperatorVerdict:
    """The verdict on one operator.

    ``uid`` is the job's, or the stored one if the state is dropped; ``stored`` is the stored one, None for a new operator. ``left`` says
    that the state is dropped on purpose.
    """

    uid: str
    stored: str | None
    status: Status
    findings: tuple[Finding, ...] = ()
    rewrite: Rewrite = field(default_factory=Rewrite)
    left: bool = False

    @property
    def fits(self) -> bool:
        """Whether a job may resume with it."""
        return self.status in {"compatible", "migrates", "new"} or (self.status == "dropped" and self.left)


@dataclass(frozen=True)
class SourceVerdict:
    """The verdict on one source, by its name; ``left`` says that its position is dropped on purpose."""

    name: str
    status: Status
    findings: tuple[Finding, ...] = ()
    left: bool = False

    @property
    def fits(self) -> bool:
        """Whether a job may resume with it."""
        return self.status in {"compatible", "new"} or (self.status == "dropped" and self.left)


@dataclass(frozen=True)
class OutputVerdict:
    """The verdict on one output whose place is not empty: ``migrates`` if its table gets columns, ``unknown`` if it cannot be read.

    ``sink`` is its sink's kind, ``place`` where the table or folder is.
    """

    name: str
    sink: str
    place: str
    status: Literal["compatible", "migrates", "incompatible", "unknown"]
    findings: tuple[Finding, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether rows may be written there, as far as is known."""
        return self.status != "incompatible"

    @property
    def noun(self) -> str:
        """``the table at``, ``the files in`` or ``the topic``, for a message that names the place next."""
        return {"parquet": "the files in", "kafka": "the topic"}.get(self.sink, "the table at")

    @property
    def blockers(self) -> tuple[Finding, ...]:
        """The findings that block it."""
        return tuple(finding for finding in self.findings if finding.fit == "incompatible")

    @property
    def reasons(self) -> str:
        """The blockers, in words."""
        return "; ".join(finding.what for finding in self.blockers)


@dataclass(frozen=True)
class Verdict:
    """The verdict on a job that is to resume from an epoch, of this job or of another one.

    ``job`` is the name of the job that resumes; ``lineage`` and ``epoch`` say from where. ``outputs`` are those whose places are not
    empty.
    """

    job: str
    lineage: str
    epoch: int
    operators: tuple[OperatorVerdict, ...]
    sources: tuple[SourceVerdict, ...]
    outputs: tuple[OutputVerdict, ...] = ()

    @property
    def status(self) -> Fit:
        """The worst status of all verdicts."""
        fits = (all(each.fits for each in self.operators), all(each.fits for each in self.sources), all(each.fits for each in self.outputs))
        if not all(fits):
            return "incompatible"
        changing = any(each.status == "migrates" for each in self.outputs)
        return "migrates" if self.rewrites or changing else "compatible"

    @property
    def shares_nothing(self) -> bool:
        """Whether no stored state or position belongs to the job, as with two jobs that share a name."""
        statuses = {*(each.status for each in self.operators), *(each.status for each in self.sources)}
        return bool(self.sources) and "dropped" in statuses and statuses <= {"new", "dropped"}

    @property
    def rewrites(self) -> bool:
        """Whether the state of an operator has to be rewritten."""
        return any(each.status == "migrates" for each in self.operators)

    @property
    def fits(self) -> bool:
        """Whether the job may resume."""
        return self.status != "incompatible"

    def operator(self, uid: str) -> OperatorVerdict:
        """Return the verdict on an operator by the job's uid, or by the stored one if its state is dropped.

        Raises:
            KeyError: neither has such an operator.
        """
        found = {each.uid: each for each in sorted(self.operators, key=lambda each: each.status != "dropped")}
        return found[uid]

    def require(self, *, by_options: bool = False) -> None:
        """Make sure that the job may resume.

        Args:
            by_options: fixes name options alone, of a command that takes them and has its savepoint.

        Raises:
            StateMismatchError: it may not; the message has every finding that blocks it.
            SinkError: only tables or folders at the outputs' places block it.
        """
        blockers = list(self._blockers())
        refused = [each for each in self.outputs if not each.fits]
        if not blockers and refused:
            raise incompatible_outputs_error(refused, job=self.job)
        if not blockers:
            return
        blockers += [(each.name, "output", finding) for each in refused for finding in each.blockers]
        named = {uid for uid, _, _ in blockers}
        what = "the stored state does not fit the job: " + "; ".join(f"{kind} {uid!r}: {each.what}" for uid, kind, each in blockers)
        fixes = _fixes(each for _, _, each in blockers)
        if self.shares_nothing:
            what, fixes = f"{_STRANGER} T{what[1:]}", f"give this job another name, or another store; if it is the same: {fixes}"
        raise StateMismatchError(
            what,
            fix=by_option(fixes) if by_options else with_savepoint(fixes, self.job),
            job=self.job,
            uid=next(iter(named)) if len(named) == 1 else None,
            epoch=self.epoch,
        )

    def text(self) -> str:
        """Return the verdict for a terminal: a line for each operator, source, and output with findings; one for each finding."""
        shown = [("operator", each) for each in self.operators] + [("source", each) for each in self.sources]
        lines = [f"job {self.job!r} against epoch {self.epoch} of lineage {self.lineage}: {self.status}"]
        if self.shares_nothing and not self.fits:
            lines.append(f"  {_STRANGER}")
        with_findings = [output for output in self.outputs if output.findings]
        width = max((*(len(_name(each)) for _, each in shown), *(len(output.name) for output in with_findings)), default=0)
        for kind, each in shown:
            status = f"{each.status} as requested" if each.left else each.status
            lines.append(f"  {kind:8}  {_name(each):{width}}  {status}")
            lines += [f"    {finding.text()}" for finding in each.findings]
        for output in with_findings:
            lines.append(f"  {'output':8}  {output.name:{width}}  {output.status}: {output.noun} {output.place}")
            lines += [f"    {finding.text()}" for finding in output.findings]
        return "\n".join(lines)

    def _blockers(self) -> Iterator[tuple[str, str, Finding]]:
        for operator in self.operators:
            if not operator.fits:
                yield from ((operator.uid, "operator", each) for each in operator.findings if each.fit == "incompatible")
        for source in self.sources:
            if not source.fits:
                yield from ((source.name, "source", each) for each in source.findings if each.fit == "incompatible")


def incompatible_outputs_error(outputs: Sequence[OutputVerdict], *, job: str | None = None, file: str = "") -> SinkError:
    """Return the error that says why the rows of some outputs cannot be written to their places; ``file`` is one that was read."""
    first = outputs[0] if len(outputs) == 1 else None
    return SinkError(
        "; ".join(f"output {each.name!r} does not fit {each.noun} {each.place}: {each.reasons}" for each in outputs),
        fix=_fixes(finding for each in outputs for finding in each.blockers),
        job=job,
        uid=first.name if first is not None else None,
        place="/".join(filter(None, (first.place, file))) if first is not None else None,
    )


def _fixes(findings: Iterable[Finding]) -> str:
    return " · ".join(dict.fromkeys(finding.fix for finding in findings if finding.fix)) or "undo the change"


def _name(each: OperatorVerdict | SourceVerdict) -> str:
    if isinstance(each, SourceVerdict):
        return each.name
    return each.uid if each.stored in (None, each.uid) else f"{each.uid} (was {each.stored})"
