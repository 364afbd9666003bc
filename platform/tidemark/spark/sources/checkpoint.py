"""Spark's own checkpoint as a disposable cache on local disk, rebuilt from the head of the job log at every start."""

from __future__ import annotations

import hashlib
import json
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from tidemark.errors import CorruptStoreError
from tidemark.state.log.records import EpochRecord, SourceLogFile, SourceLogRef
from tidemark.state.store.layout import is_source_log, source_folder
from tidemark.state.store.store import JobStore

_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
_SEEDED = (0, 1)
_LOG_VERSION = "v1"
_COMPACT_INTERVAL = 10
"""Spark's default. From it, and from the newest compacted entry, Spark works out the interval of a log that it finds."""


class SparkCheckpoint:
    """One query's checkpoint folder.

    Args:
        store: the job's folder in the store; copies of the sources' own logs live there under ``sources/``.
        term: of the driver, part of the copies' names so that two drivers never write one name.
    """

    def __init__(self, store: JobStore, term: int) -> None:
        self._store = store
        self._term = term
        self._folder = tempfile.TemporaryDirectory(prefix="tidemark-checkpoint-")
        self._saved: dict[str, dict[str, SourceLogFile]] = {}

    @property
    def path(self) -> str:
        """Address of the folder as Spark takes it."""
        return f"file://{self._folder.name}"

    def seed(self, record: EpochRecord | None) -> int:
        """Fill the empty folder so that a query resumes after the record's epoch; returns the number of its first batch.

        Raises:
            CorruptStoreError: a copy of a source's log is missing or damaged, or has a name that Spark would not give it.
        """
        root = Path(self._folder.name)
        if record is None or not record.offsets:
            return 0
        _write(root / "metadata", json.dumps({"id": str(uuid.uuid4())}))
        # At its start Spark has each file source list the files of the newest entry, since the entry before. For a first entry these are
        # all files ever read; between two equal entries there are none. Batch numbers need not be epoch numbers.
        for batch in _SEEDED:
            _write(root / "offsets" / str(batch), record.offsets)
            _write(root / "commits" / str(batch), _COMMIT)
        for source, log in record.source_logs.items():
            folder = root / source_folder(source)
            for file in log.files:
                _write(folder / file.name, self._load(source, file).decode())
            self._saved[source] = {file.name: file for file in log.files}
        return len(_SEEDED)

    def offsets(self, batch: int) -> str:
        """Return the raw text of a batch's entry in Spark's offset log."""
        return (Path(self._folder.name) / "offsets" / str(batch)).read_text()

    def files(self, source: str, after: int, until: int) -> list[str]:
        """Return the files that a file source's offsets (after, until] stand for, from its own log."""
        folder = Path(self._folder.name) / "sources" / source
        found: list[str] = []
        for number in range(after + 1, until + 1):
            name = folder / str(number)
            text = (name if name.exists() else folder / f"{number}.compact").read_text(encoding="utf-8")
            entries = [json.loads(line) for line in text.splitlines()[1:] if line]
            # Spark's log holds addresses, percent-encoded; its readers take paths as they are.
            found += [unquote(entry["path"]) for entry in entries if entry["batchId"] == number]
        return found

    def log_files(self, source: str, number: int, entries: Sequence[str]) -> None:
        """Write an entry of a file source's log, as Spark does: every tenth holds all entries so far.

        Args:
            source: its name.
            number: of the entry.
            entries: a line of JSON for each file.
        """
        folder = Path(self._folder.name) / source_folder(source)
        if (number + 1) % _COMPACT_INTERVAL:
            _write(folder / str(number), "\n".join([_LOG_VERSION, *entries]))
            return
        kept, compacted = _needed(folder) if number else [], folder / f"{number}.compact"
        # A log names all files ever read, so its lines are copied as they are, and nothing is asked of each of them.
        texts = [file.read_text(encoding="utf-8").partition("\n")[2] for file in kept if file != compacted]
        if compacted in kept:
            # A batch that is planned a second time has an entry already, behind those of the batches before.
            earlier = (line for line in compacted.read_text(encoding="utf-8").split("\n")[1:] if line)
            texts.append("\n".join(line for line in earlier if json.loads(line)["batchId"] != number))
        _write(compacted, "\n".join([_LOG_VERSION, *filter(None, texts), *entries]))
        # They are listed in every epoch, and a run may have any number of these.
        for file in kept:
            if file != compacted:
                file.unlink()

    def files_read(self, source: str) -> list[str]:
        """Return all files that a file source's log names: those that were ever read from it."""
        folder = Path(self._folder.name) / source_folder(source)
        if not folder.is_dir():
            return []
        lines = (line for file in _needed(folder) for line in file.read_text(encoding="utf-8").splitlines()[1:] if line)
        return [unquote(json.loads(line)["path"]) for line in lines]

    def save_source_logs(self) -> dict[str, SourceLogRef]:
        """Copy new files of the sources' own logs to the job store; returns the copies that each source needs to resume."""
        root = Path(self._folder.name) / "sources"
        if not root.is_dir():
            return {}
        found = {}
        for folder in sorted(root.iterdir()):
            if folder.is_dir():
                needed = {file.name: self._save(folder.name, file) for file in _needed(folder)}
                self._saved[folder.name] = needed
                found[folder.name] = SourceLogRef(tuple(needed.values()))
        return found

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()

    def _load(self, source: str, file: SourceLogFile) -> bytes:
        if not is_source_log(file.name):
            raise CorruptStoreError(
                f"the log of source {source!r} has a file named {file.name!r}, which is not a name that Spark gives",
                fix="resume from a savepoint that Tidemark took; this one was made or changed by another program",
                uid=source,
                place=self._store.spark_uri(file.path),
            )
        try:
            data: bytes | None = self._store.get(file.path)
        except FileNotFoundError:
            data = None
        if data is None or hashlib.sha256(data).hexdigest() != file.sha256:
            raise CorruptStoreError(
                f"the copy of the log of source {source!r} is {'missing' if data is None else 'damaged'}",
                fix="restore the file from a backup of the job store; without it the source would be read again",
                uid=source,
                place=self._store.spark_uri(file.path),
            )
        return data

    def _save(self, source: str, file: Path) -> SourceLogFile:
        saved = self._saved.setdefault(source, {})
        if file.name not in saved:
            data = file.read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            path = f"sources/{source}/{file.name}-{self._term}-{digest[:16]}"
            self._store.put(path, data)
            saved[file.name] = SourceLogFile(file.name, path, len(data), digest)
        return saved[file.name]


def _needed(folder: Path) -> list[Path]:
    """Return the log files from the newest compacted one on, oldest first; earlier ones are contained in it."""
    numbered = sorted(
        (int(file.name.split(".")[0]), file)
        for file in folder.iterdir()
        if file.name.split(".")[0].isdigit() and file.suffix in ("", ".compact")
    )
    newest = max((number for number, file in numbered if file.suffix == ".compact"), default=-1)
    return [file for number, file in numbered if number >= newest]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
