"""The specification of a topic that an output is published to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from tidemark.graph.model.connector_spec import ConnectorSpec

Format = Literal["json", "debezium-json", "raw"]
KeyFormat = Literal["json", "text"]
Mode = Literal["append", "upsert"]
Guarantee = Literal["exactly_once", "at_least_once"]

ROWS_PER_TRANSACTION = 1_000_000
ID_PREFIX = "tidemark"
MAX_TOPIC = 249


@dataclass(frozen=True)
class KafkaSpec(ConnectorSpec):
    """A topic; with ``exactly_once`` published in transactions that carry a marker of the job's epoch.

    ``servers`` are the addresses to start from, ``host:port`` with commas. ``key`` are the columns of the record's key, ``headers`` columns
    by header. ``environment`` names the environment variables that hold secret options. ``id_prefix`` begins the transactional id.
    """

    KIND: ClassVar[str] = "kafka"

    servers: str
    topic: str
    key: tuple[str, ...] = ()
    format: Format = "json"
    key_format: KeyFormat = "json"
    mode: Mode = "append"
    headers: Mapping[str, str] = field(default_factory=dict)
    delivery: Guarantee = "exactly_once"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    rows_per_transaction: int = ROWS_PER_TRANSACTION
    id_prefix: str = ID_PREFIX

    @property
    def location(self) -> str:
        """The topic's address, such as ``kafka://broker:9092/fares``."""
        return f"kafka://{self.servers}/{self.topic}"

    @property
    def guarantee(self) -> str:
        """What readers can rely on."""
        if self.delivery == "at_least_once":
            return "at least once"
        return "exactly once for readers with isolation.level=read_committed"

    @property
    def identity(self) -> tuple[object, ...]:
        """What belongs to the version of the job's code."""
        return (self.mode, self.format, list(self.key), self.key_format, sorted(self.headers.items()))

    @property
    def replaces(self) -> bool:
        """Whether newer records of a key replace older ones."""
        return self.mode == "upsert"

    @property
    def adds_history(self) -> bool:
        """Whether changes are appended as rows with their operation and epoch."""
        return self.mode == "append" and self.format == "json"

    def describe(self) -> str:
        """Return the topic, the format and the key.

        >>> KafkaSpec("broker:9092", "fares", key=("zone",)).describe()
        'kafka broker:9092/fares as json, key zone'
        """
        upserts = ", upsert" if self.mode == "upsert" else ""
        key = f", key {', '.join(self.key)}" if self.key else ""
        return f"kafka {self.servers}/{self.topic} as {self.format}{upserts}{key}"

    def redirected(self, fork: str) -> KafkaSpec:
        """Return the same for the topic ``TOPIC-FORK``, which has to exist."""
        return replace(self, topic=f"{self.topic[: MAX_TOPIC - 1 - len(fork)]}-{fork}")
