"""What the connectors' sinks have in common with all others by their kind, as records name it: what a rewind means for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemark.graph.connectors.kafka.spec import KafkaSpec

NOT_REVERTED: Final[Mapping[str, str]] = {
    KafkaSpec.KIND: "records that were published since stay in the topic, and their rows are published again",
}
"""For each kind whose place a rewind leaves as it is, what that means for its readers."""
