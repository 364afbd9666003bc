"""Compares the key columns by which an output's rows replace older ones with those that its table was written by. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidemark.savepoints.model.verdict import Finding, OutputVerdict
from tidemark.state.log.records import OutputRecord

_FIX = "keep the previous keys, go back to a savepoint before them (tidemark upgrade --from), or write to another path, table or topic"


def row_key_change(stored: OutputRecord, keys: Sequence[str]) -> Finding | None:
    """Return what changed in the keys of an output that has rows at its place, None if nothing did, or if its former keys are not known.

    By other keys a new row would replace rows of several former keys, which are lost, or none, and the older row would stay.

    Args:
        stored: the output in a record of an epoch.
        keys: of the output, empty where all rows are added.
    """
    then = stored.row_keys
    # In a topic the order of the columns is part of each record's key.
    same = then == tuple(keys) if stored.sink == "kafka" else set(then) == set(keys)
    if not then or same:
        return None
    if not keys:
        what = f"rows are appended from now on, and were upserted by {', '.join(then)} before"
        return Finding(what, "compatible", "older rows of a key stay")
    noun = "topic" if stored.sink == "kafka" else "table"
    what = f"rows are upserted by {', '.join(keys)}, and the {noun} was written by {', '.join(then)}: older rows would be lost, or stay"
    return Finding(what, "incompatible", fix=_FIX)


def with_finding(verdict: OutputVerdict, finding: Finding) -> OutputVerdict:
    """Return the verdict on an output with one finding more."""
    status = finding.fit if finding.fit == "incompatible" else verdict.status
    return replace(verdict, status=status, findings=(*verdict.findings, finding))
