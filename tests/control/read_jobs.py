"""A job whose epochs are committed and published by hand, with offsets and files of its sources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from tests.savepoints.stored_jobs import StoredJob
from tidemark.control.client.completion import Input, InputWatch
from tidemark.state.log.records import EpochRecord, SourceLogFile, SourceLogRef
from tidemark.state.status.status import JobStatus, write_status
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

HEADER = 'v2\n{"batchWatermarkMs":0}\n'


class Read:
    """A job whose epochs are committed and published by hand."""

    def __init__(self, root: JobStore) -> None:
        self.root = root
        self.stored = StoredJob(root, "taxi", ManualClock(1_700_000_000_000))

    def commit(self, offsets: Mapping[str, object], logs: Mapping[str, Mapping[str, int]] | None = None) -> EpochRecord:
        """Commit an epoch: its offsets by source, and files read so far with their log entries' numbers."""
        driver, appended = self.stored.driver, list[EpochRecord]()
        append, driver.append = driver.append, appended.append  # type: ignore[assignment, method-assign]  # completed below
        try:
            self.stored.commit()
        finally:
            driver.append = append  # type: ignore[method-assign]
        lines = "\n".join(f"{source}:{json.dumps(offset)}" for source, offset in offsets.items())
        found = {source: self._log(source, files) for source, files in (logs or {}).items()}
        record = replace(appended[0], offsets=HEADER + lines, source_logs=found)
        driver.append(record)
        return record

    def _log(self, source: str, files: Mapping[str, int]) -> SourceLogRef:
        entries = [json.dumps({"path": path, "timestamp": 1, "batchId": number}) for path, number in files.items()]
        data = "\n".join(["v1", *entries]).encode()
        path = f"sources/{source}/9.compact-{len(files)}"
        self.stored.folder.put(path, data)
        return SourceLogRef((SourceLogFile("9.compact", path, len(data), ""),))

    def publish(self, record: EpochRecord) -> None:
        """Write the status, as a driver does behind the last output."""
        write_status(self.root, JobStatus("taxi", record.lineage, "running", 0, 0, last=record.progress))

    def is_visible(self, text: str, *, output: str = "", source: str = "") -> bool:
        return InputWatch(self.root, "taxi", output=output, source=source).look(Input.parse(text)).is_visible


def kafka(**offsets: int) -> dict[str, object]:
    """Return the position of a source ``rides`` in the topic of that name: ``p0=5`` is offset 5 of partition 0."""
    return {"rides": {"rides": {number.removeprefix("p"): offset for number, offset in offsets.items()}}}
