"""The states of a key after a past epoch, read under the names and types that they had then."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.graph.operators.keyed_process.descriptors import StateDescriptor
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.graph.operators.registry import kind_of_definition
from tidemark.semantics.keyed_process.declarations import StateDeclaration
from tidemark.semantics.keyed_process.key_record import KeyRecord
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.keyed_process.runtime import KeyedProcessEpoch, KeyedProcessRuntime
from tidemark.spark.operators.keyed_process.stored_record import read_record
from tidemark.spark.replay.job_line import PastNames
from tidemark.spark.replay.replay_input import PastEpoch
from tidemark.spark.replay.replayed_key import ReplayedKey
from tidemark.state.log.records import EpochRecord, OperatorState


@dataclass(frozen=True)
class StoredStates:
    """An operator after an epoch.

    ``node`` is the job's operator with the states that it had then, by their names then. ``declared`` are those states in the same order,
    by the names that they have now. A state that was added since is in neither.
    """

    node: KeyedProcessNode
    declared: Mapping[str, StateDeclaration]
    epoch: KeyedProcessEpoch

    @staticmethod
    def of(past: PastEpoch, node: KeyedProcessNode, names: PastNames, record: EpochRecord, state: OperatorState) -> StoredStates:
        """Return the operator after an epoch.

        Args:
            past: the epoch that is replayed.
            node: the job's operator.
            names: that it, its states and its keys had.
            record: of the epoch, or the one before.
            state: the operator's in the record.
        """
        decoded = kind_of_definition(state.definition, names.uid).decode(state.definition, names.uid)
        known = dict(decoded.states) if isinstance(decoded, KeyedProcessNode) else {}
        found: list[tuple[str, str, StateDescriptor]] = []
        for name, descriptor in node.states:
            stored = names.of(name)
            if stored is not None and stored in known and known[stored].kind == descriptor.kind:
                then = dataclasses.replace(descriptor, type=known[stored].type, key_type=known[stored].key_type)
                found.append((name, stored, then))
        keys = tuple((names.of(name) or name, expression) for name, expression in node.keys)
        past_node = dataclasses.replace(node, keys=keys, states=tuple((stored, each) for _, stored, each in found))
        context = OperatorContext(past.spark, past.store, names.uid, state, state.definition, record.epoch + 1, record.processing_time)
        epoch = KeyedProcessRuntime(past_node).begin(context)
        return StoredStates(past_node, {name: each.declaration(name) for name, _, each in found}, epoch)

    def key_record(self, key: ReplayedKey, times: EpochTimes) -> KeyRecord:
        """Return what is kept of a key, by the names that its states have now."""
        found = self.epoch.stored_version(key.condition(self.node))
        return KeyRecord() if found is None else read_record(found, self.declared, times)
