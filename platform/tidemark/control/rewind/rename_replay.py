"""Replays renames: a job that was upgraded with renames and then rewound to before them needs them again for the same code. Pure.

An upgrade's renames (``--map``, ``--column``) are made once. After a rewind to an older savepoint the state has its old names again,
which the job's code does not know. The renames are still in the spec, as the restore that made them. A rollback of the upgrade itself
needs nothing: there the old code resumes, and the state has the names that it knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tidemark.graph.operators.state_names import element_name
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.model.stored_types import stored_columns
from tidemark.state.log.records import EpochRecord, OperatorState

_IDENTITY: Final = "renamed-again-"


def reapply_renames(made: Restore | None, head: EpochRecord, *, savepoint: str, before: EpochRecord | None = None) -> Restore | None:
    """Return the restore that gives a rewound job the names of its code; None if it has them already.

    Called twice for the same rewind it returns the same restore, so that it is made once.

    Args:
        made: the restore in the job's spec.
        head: the job's newest epoch after the rewind.
        savepoint: the savepoint that it was rewound to.
        before: the newest epoch before the rewind, if known: only names that the job had there are its code's.
    """
    if made is None or (before is not None and not _has_new_names(made, before)):
        return None
    stored = head.operators
    uids = {old: new for old, new in made.uids.items() if old in stored and new not in stored}
    by_new = {new: old for old, new in uids.items()}
    columns = {}
    for uid, names in made.columns.items():
        state = stored.get(by_new.get(uid, uid))
        old_ones = {old: new for old, new in names.items() if _has_name(state, old, new)}
        if old_ones:
            columns[uid] = old_ones
    if not uids and not columns:
        return None
    return replace(made, savepoint=savepoint, job="", mode="no-claim", uids=uids, columns=columns, identity=f"{_IDENTITY}{head.lineage}")


def is_rename_replay(restore: Restore) -> bool:
    """Return whether a restore is one that ``reapply_renames`` returned."""
    return restore.identity.startswith(_IDENTITY)


def renames_text(restore: Restore) -> str:
    """Return a restore's renames as command options."""
    options = [f"--map {old}={new}" for old, new in restore.uids.items()]
    options += [f"--column {uid}:{old}={new or ''}" for uid, names in restore.columns.items() for old, new in names.items()]
    return " ".join(options)


def _has_new_names(made: Restore, before: EpochRecord) -> bool:
    """Return whether an epoch is of code with the new names; the spec may keep the restore after a change to other code."""
    stored = before.operators
    uids = all(new in stored and old not in stored for old, new in made.uids.items())
    return uids and all(
        (old not in _names(stored.get(uid)) if new is None else _has_name(stored.get(uid), new, old))
        for uid, names in made.columns.items()
        for old, new in names.items()
    )


def _has_name(state: OperatorState | None, name: str, other: str | None) -> bool:
    """Return whether an operator's state has one name and not the other, which is None for dropped state."""
    names = _names(state)
    if other is None or name in names or other in names:
        return name in names and other not in names
    # A column of the stream is not stored by name if only an expression over it is.
    words = _words(state)
    return name in words and other not in words


def _words(state: OperatorState | None) -> set[str]:
    """Return the identifiers in the expressions of an operator's keys and aggregates."""
    if state is None:
        return set()
    texts = [str(entry.get("expression")) for entry in _entries(state.definition.get("keys"))]
    for entry in _entries(state.definition.get("aggregates")):
        arguments = entry.get("arguments")
        texts += map(str, arguments) if isinstance(arguments, list | tuple) else ()
    return {word for text in texts for word in re.findall(r"\w+", text)}


def _names(state: OperatorState | None) -> set[str]:
    """Return the names of an operator's keys and aggregates, and of the stored columns of elements."""
    if state is None:
        return set()
    entries = [entry for kind in ("keys", "aggregates") for entry in _entries(state.definition.get(kind))]
    kept = map(element_name, stored_columns(state.definition.get("schema")))
    return {*(str(entry.get("name")) for entry in entries), *(name for name in kept if name is not None)}


def _entries(found: object) -> list[Mapping[str, object]]:
    return [entry for entry in found if isinstance(entry, Mapping)] if isinstance(found, list | tuple) else []
