"""Waits until the results of an input are visible in a job's outputs: of a file, of a record of Kafka's, or of an epoch.

The answer is in the job's log: an epoch's record has the offsets of each source behind it, and the names of the files. An input is visible
once the first epoch that has it behind it has been published. Results that the input only will have, such as those of a window that the
watermark has not passed yet, come with a later epoch.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.durations import Duration, format_duration, to_ms
from tidemark.errors import DefinitionError, NotReachedError, UnknownJobError
from tidemark.graph.job.job import Job
from tidemark.locations import Location
from tidemark.state.log.joblog import JobLog, newest_epoch
from tidemark.state.log.offset_log import log_offset, positions
from tidemark.state.log.records import EpochRecord, SourceLogFile
from tidemark.state.status.status import read_status
from tidemark.state.store.layout import job_folder
from tidemark.state.store.root_store import root_store
from tidemark.state.store.store import JobStore

POLL_SECONDS: Final = 0.5
_FORMS: Final = "epoch:12, file:/data/landing/7.json, or kafka:rides:0:4711 (topic, partition, offset)"


@dataclass(frozen=True)
class Input(ABC):
    """Something that a job reads; ``text`` is how a user writes it."""

    text: str

    @staticmethod
    def parse(text: str) -> Input:
        """Read an input as users write it.

        Raises:
            DefinitionError: it has another form.

        >>> Input.parse("kafka:rides:0:4711")
        KafkaInput(text='kafka:rides:0:4711', topic='rides', partition=0, offset=4711)
        """
        kind, _, rest = text.partition(":")
        if kind == "epoch" and rest.isascii() and rest.isdigit():
            return EpochInput(text, int(rest))
        if kind == "file" and rest:
            # file:///data/7.json is the address of the file itself.
            return FileInput(text, Location.parse(text if rest.startswith("//") else rest))
        topic, *numbers = rest.rsplit(":", 2)
        if kind == "kafka" and topic and len(numbers) == 2 and all(each.isascii() and each.isdigit() for each in numbers):
            return KafkaInput(text, topic, *map(int, numbers))
        raise DefinitionError(f"{text!r} names no input", fix=f"write {_FORMS}")

    @abstractmethod
    def behind(self, record: EpochRecord, folder: JobStore) -> Mapping[str, bool]:
        """Return by source whether an epoch has the input behind it; sources that do not read such inputs are left out.

        Args:
            record: the epoch's.
            folder: the job's folder in the store.
        """


@dataclass(frozen=True)
class EpochInput(Input):
    """All that an epoch reads."""

    epoch: int

    def behind(self, record: EpochRecord, folder: JobStore) -> Mapping[str, bool]:
        """Return it under the name of no source."""
        del folder
        return {"": record.epoch >= self.epoch}


@dataclass(frozen=True)
class KafkaInput(Input):
    """A record of Kafka's."""

    topic: str
    partition: int
    offset: int

    def behind(self, record: EpochRecord, folder: JobStore) -> Mapping[str, bool]:
        """Return it for each source that reads the topic."""
        del folder
        found = {}
        for source, position in positions(record.offsets).items():
            topic = position.get(self.topic) if isinstance(position, Mapping) else None
            if isinstance(topic, Mapping):
                following = topic.get(str(self.partition), -1)
                found[source] = isinstance(following, int) and following > self.offset
        return found


@dataclass(frozen=True)
class FileInput(Input):
    """A file in the folder of a source."""

    location: Location

    def behind(self, record: EpochRecord, folder: JobStore) -> Mapping[str, bool]:
        """Return it for each source that has read the file, or another one of its folder."""
        address = _comparable(self.location.spark_uri)
        parent, found = address.rpartition("/")[0], {}
        offsets = positions(record.offsets)
        for source, log in record.source_logs.items():
            until = log_offset(offsets.get(source))
            read = {path for file in log.files for path in _files_in(folder, file, until)}
            if address in read or any(path.rpartition("/")[0] == parent for path in read):
                found[source] = address in read
        return found


def _comparable(address: str) -> str:
    """Return a file's address with what two ways to write it have in common: S3 has two schemes, a local path any number of slashes."""
    scheme, _, path = address.partition(":")
    return f"{'s3' if scheme == 's3a' else scheme}:{path.lstrip('/')}"


def _files_in(folder: JobStore, file: SourceLogFile, until: int) -> Iterator[str]:
    """Yield the comparable addresses in a file of a source's log, of those that were read up to an offset."""
    try:
        lines = folder.get(file.path).decode().splitlines()[1:]
    except FileNotFoundError:
        # An epoch that came since has taken its place.
        return
    for line in lines:
        entry = json.loads(line) if line else None
        if entry is not None and entry["batchId"] <= until:
            yield _comparable(unquote(entry["path"]))


@dataclass(frozen=True)
class Completion:
    """Whether an input is visible in the outputs of a job.

    ``epoch`` is the newest one that was published, None before the first; the one that read the input may be older. ``sources`` says for
    each source that reads such inputs whether it has read this one by then.
    """

    input: str
    job: str
    lineage: str
    epoch: int | None
    sources: Mapping[str, bool]

    @property
    def is_visible(self) -> bool:
        """Whether all of these sources have read it."""
        return bool(self.sources) and all(self.sources.values())

    @property
    def missing(self) -> str:
        """What it waits for, as text; empty where it is visible."""
        unread = sorted(name for name, there in self.sources.items() if not there)
        if self.epoch is None:
            return "the job has published no epoch"
        if not self.sources:
            return f"no source has read its topic or folder by epoch {self.epoch}"
        if unread == [""]:
            return f"the newest published epoch is {self.epoch}"
        return f"source {', '.join(map(repr, unread))} has not read it by epoch {self.epoch}" if unread else ""


class InputWatch:
    """Tells whether inputs are visible in the outputs of a job.

    Args:
        store: the root store.
        job: its name.
        source: the one that has to read the input; by default each that reads its topic, or files of its folder.
        output: that has to show it; by default all of them.
        clock: for waiting.
    """

    def __init__(self, store: JobStore, job: str, *, source: str = "", output: str = "", clock: Clock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._folder = store.at(job_folder(job))
        self._job = job
        self._source = source
        self._output = output
        self._clock = clock

    def look(self, wanted: Input) -> Completion:
        """Return whether an input is visible now.

        Raises:
            UnknownJobError: nothing in the store belongs to a job of that name.
            DefinitionError: the job has no such source or output.
            CorruptStoreError: the job's log is damaged.
        """
        head = newest_epoch(self._store, self._job)
        if head is None and next(iter(self._folder.list()), None) is None:
            raise UnknownJobError(
                f"there is no job {self._job!r} in {self._store.uri}", fix="`tidemark list` shows the jobs of a store", job=self._job
            )
        if head is not None:
            self._require_names(head)
        record = None if head is None else self._published(head)
        if record is None:
            return Completion(wanted.text, self._job, head.lineage if head is not None else "", None, {})
        behind = wanted.behind(record, self._folder)
        chosen = {name: there for name, there in behind.items() if not self._source or name in {self._source, ""}}
        return Completion(wanted.text, self._job, record.lineage, record.epoch, chosen)

    def wait(self, wanted: Input, *, timeout_ms: int, on_progress: Callable[[Completion], None] | None = None) -> Completion:
        """Wait until an input is visible.

        Args:
            wanted: the input.
            timeout_ms: how long at most.
            on_progress: called when another epoch was published, or a source has read the input.

        Raises:
            NotReachedError: the timeout expired; the error says which source has not read it.
            TidemarkError: as ``look``.
        """
        begun, shown = self._clock.monotonic(), None
        while True:
            found = self.look(wanted)
            if found.is_visible:
                return found
            if on_progress is not None and found != shown:
                on_progress(found)
            shown = found
            if self._clock.monotonic() - begun >= timeout_ms / 1000:
                after = format_duration(timeout_ms)
                raise NotReachedError(
                    f"{wanted.text} is not visible in the outputs of job {self._job!r} after {after}: {found.missing}",
                    fix="see `tidemark status`; give the source with --source if another one will never read it",
                    job=self._job,
                    epoch=found.epoch,
                )
            self._clock.sleep(POLL_SECONDS)

    def wait_for_all(
        self, wanted: Sequence[Input], *, timeout_ms: int, on_progress: Callable[[Completion], None] | None = None
    ) -> Iterator[Completion]:
        """Wait for several inputs within one timeout, and yield each when it is visible, in their order; as ``wait`` otherwise."""
        until = self._clock.monotonic() + timeout_ms / 1000
        for each in wanted:
            yield self.wait(each, timeout_ms=max(0, round((until - self._clock.monotonic()) * 1000)), on_progress=on_progress)

    def _require_names(self, record: EpochRecord) -> None:
        for what, name, known in (
            ("source", self._source, {*positions(record.offsets), *record.sources, *record.source_logs}),
            ("output", self._output, {*record.outputs}),
        ):
            if name and name not in known:
                raise DefinitionError(
                    f"job {self._job!r} has no {what} {name!r}", fix=f"name one of {', '.join(sorted(known)) or 'none'}", job=self._job
                )

    def _published(self, head: EpochRecord) -> EpochRecord | None:
        """Return the newest epoch whose rows are in the outputs: the driver writes its status behind the last of them."""
        # The first record of a restore repeats an epoch of the savepoint's, and adds nothing to the outputs.
        if head.restored is not None and head.parent is not None and head.parent.epoch == head.epoch:
            return head
        status = read_status(self._store, self._job)
        last = status.last if status is not None and status.lineage == head.lineage else None
        if last is None or last.epoch >= head.epoch:
            return head if last is not None else None
        return JobLog(self._folder, self._job).read(last.epoch, lineage=head.lineage)


def wait_for(
    job: Job | str,
    wanted: str,
    *,
    store: str | JobStore | None = None,
    source: str = "",
    output: str = "",
    timeout: Duration = "10 minutes",
    on_progress: Callable[[Completion], None] | None = None,
) -> Completion:
    """Wait until the results of an input are visible in a job's outputs. Starts no JVM, and does not run the job.

    Results that the input will have only later, such as those of a window that the watermark has not passed, come with a later epoch.

    Args:
        job: the job, or its name.
        wanted: ``"epoch:12"``, ``"file:/data/landing/7.json"``, or ``"kafka:rides:0:4711"`` (topic, partition, offset).
        store: root of the job store; else the job's own, ``$TIDEMARK_STORE``, or ``.tidemark/jobs``.
        source: the one that has to read it; by default each that reads its topic, or files of its folder.
        output: checked to be one of the job's; all outputs of an epoch are published before the next one begins.
        timeout: how long to wait at most.
        on_progress: called when another epoch was published, or a source has read the input.

    Raises:
        DefinitionError: ``wanted`` names no input, or the job has no such source or output.
        NotReachedError: the timeout expired.
        UnknownJobError: the store has no such job.
    """
    named, declared = (job.name, job.store) if isinstance(job, Job) else (job, None)
    root = root_store(store, declared, make=False)
    watch = InputWatch(root, named, source=source, output=output)
    return watch.wait(Input.parse(wanted), timeout_ms=to_ms(timeout, what="timeout"), on_progress=on_progress)
