"""The layout of a job's folder, ``<store>/<job>/``; all paths are relative to it.

===========================  =========================================================================================
``log/<slot>.json``          the job log, one record per slot; ``log/<slot>.floor`` says that earlier slots were retired
``segments/``                immutable lists of files that records refer to
``state/<uid>/``             Parquet files of an operator's state, and copies of tables that it reads
``sources/<name>/``          copies of a source's own log (the files it has seen)
``history/``                 progress of the epochs, in blocks of lines
``refs/pins/<name>.json``    epochs that retention does not expire, with their whole record: savepoints
``refs/holds/<name>.json``   references to files that others need: jobs that were forked from this one, an import under way; also
                             restores that are requested, and savepoints that retention is disposing of
``refs/loans/<name>.json``   savepoints that this job was restored from, as long as it reads their files
``refs/restored/<id>.json``  completed restores, each once
``refs/rewind.json``         the journal of an unfinished rewind
``refs/upgrade.json``        an upgrade that is under way, and the savepoints that it needs
``refs/discard.json``        of a fork: it is being deleted, and what else is deleted with it
``sweep/``                   files found unused, waiting for their deletion
``sweep-outputs/``           the same of files that were staged for outputs
``staging/<output>/``        files staged for outputs that live within one process, and for connectors
``elements/``                input given in the program
``status.json``              the driver's last report on itself and the job
``graph.json``               the graph of the job that the newest driver runs, for drawings
``plan.json``                processing time, input and tables' versions of the current epoch, in case it is replayed
``accepted-gaps.json``       gaps of outputs that were accepted and that no epoch records yet
``heartbeat.json``           the process that drives the job, and when it was last alive
===========================  =========================================================================================
"""

from __future__ import annotations

import re
from typing import Final

from tidemark.names import validate_name, validate_source_name

LOG: Final = "log"
SEGMENTS: Final = "segments"
STATE: Final = "state"
SOURCES: Final = "sources"
HISTORY: Final = "history"
PINS: Final = "refs/pins"
FILE_REFERENCES: Final = "refs/holds"
SHARED_SAVEPOINTS: Final = "refs/loans"
RESTORED: Final = "refs/restored"
REWIND: Final = "refs/rewind.json"
UPGRADE: Final = "refs/upgrade.json"
DISCARD: Final = "refs/discard.json"
SWEEP: Final = "sweep"
OUTPUT_SWEEP: Final = "sweep-outputs"
STAGING: Final = "staging"
ELEMENTS: Final = "elements"
STATUS: Final = "status.json"
HEARTBEAT: Final = "heartbeat.json"
GRAPH: Final = "graph.json"
PLAN: Final = "plan.json"
ACCEPTED_GAPS: Final = "accepted-gaps.json"

_SLOT_DIGITS = 12
_RECORD = re.compile(rf"(?:.*/)?(\d{{{_SLOT_DIGITS}}})\.json")
_SOURCE_LOG = re.compile(r"[0-9]+(\.compact)?")
_FLOOR = re.compile(rf"(?:.*/)?(\d{{{_SLOT_DIGITS}}})\.floor")


def job_folder(job: str) -> str:
    """Return the job's folder in the store.

    Raises:
        InvalidNameError: the name could lead elsewhere.
    """
    return validate_name("job", job)


def record_path(slot: int) -> str:
    """Return the path of a slot's record."""
    return f"{LOG}/{slot:0{_SLOT_DIGITS}d}.json"


def floor_path(slot: int) -> str:
    """Return the path of the mark that the log begins at a slot."""
    return f"{LOG}/{slot:0{_SLOT_DIGITS}d}.floor"


def record_slot(path: str) -> int | None:
    """Return the slot of a record's path, None for other files."""
    found = _RECORD.fullmatch(path)
    return int(found[1]) if found else None


def floor_slot(path: str) -> int | None:
    """Return the slot of a floor's path, None for other files."""
    found = _FLOOR.fullmatch(path)
    return int(found[1]) if found else None


def state_folder(uid: str) -> str:
    """Return the folder of an operator's state files.

    Raises:
        InvalidNameError: the uid could lead elsewhere.
    """
    return f"{STATE}/{validate_name('uid', uid)}"


def source_folder(name: str) -> str:
    """Return the folder of a source's log copies.

    Raises:
        InvalidNameError: Spark would not take the name.
    """
    return f"{SOURCES}/{validate_source_name(name)}"


def is_source_log(name: str) -> bool:
    """Return whether Spark could have given a file of a source's own log that name; it becomes a path of the driver's machine.

    >>> is_source_log("7"), is_source_log("9.compact"), is_source_log("../7")
    (True, True, False)
    """
    return _SOURCE_LOG.fullmatch(name) is not None


def segment_path(term: int, sha256: str) -> str:
    """Return the path of a segment.

    The term is part of it, so that a driver never refers to an object that a fenced driver's sweep may be about to delete.
    """
    return f"{SEGMENTS}/{term:08d}-{sha256}.json"


def history_path(block: int) -> str:
    """Return the path of a block of the history; blocks count up, also over lineages that go back in epochs."""
    return f"{HISTORY}/{block:012d}.jsonl"


def pin_path(name: str) -> str:
    """Return the path of a pin.

    Raises:
        InvalidNameError: the name could lead elsewhere.
    """
    return f"{PINS}/{validate_name('pin', name)}.json"


def file_reference_path(name: str) -> str:
    """Return the path of a file reference.

    Raises:
        InvalidNameError: the name could lead elsewhere.
    """
    return f"{FILE_REFERENCES}/{validate_name('hold', name)}.json"


def shared_savepoint_path(token: str) -> str:
    """Return the path of the record of a savepoint that the job was restored from.

    Raises:
        InvalidNameError: the token could lead elsewhere.
    """
    return f"{SHARED_SAVEPOINTS}/{validate_name('restore', token)}.json"


def restored_path(identity: str) -> str:
    """Return the path of the mark that a restore was made.

    Raises:
        InvalidNameError: the name could lead elsewhere.
    """
    return f"{RESTORED}/{validate_name('restore', identity)}.json"


def sweep_path(identity: str, folder: str = SWEEP) -> str:
    """Return the path of a tombstone list."""
    return f"{folder}/{identity}.json"
