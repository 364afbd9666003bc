"""The specification of a topic that an output is published to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Literal

from tidemark.graph.checks.output_columns import HISTORY_COLUMNS
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.schema import SchemaColumn

Format = Literal["json", "debezium-json", "raw"]
KeyFormat = Literal["json", "text"]
Mode = Literal["append", "upsert"]
Guarantee = Literal["exactly_once", "at_least_once"]

ROWS_PER_TRANSACTION = 1_000_000
ID_PREFIX = "tidemark"
MAX_TOPIC = 249
NOT_REVERTED: Final = "records that were published since stay in the topic, and their rows are published again"
"""What a rewind means for the readers of a topic."""


@dataclass(frozen=True)
class KafkaSpec(ConnectorSpec):
    """A topic; with ``exactly_once`` published in transactions that carry a marker of the job's epoch.

    ``servers`` are the addresses to start from, ``host:port`` with commas. ``key`` are the columns of the record's key, ``headers`` columns
    by header. ``environment`` names the environment variables that hold secret options. ``id_prefix`` begins the transactional id.
    """

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

    kind: ClassVar[str] = "kafka"

    @property
    def location(self) -> str:
        """The topic's address, such as ``kafka://broker:9092/fares``."""
        return f"kafka://{self.servers}/{self.topic}"

    @property
    def table_name(self) -> str:
        """The topic."""
        return self.topic

    @property
    def guarantee(self) -> str:
        """What readers can rely on."""
        if self.delivery == "at_least_once":
            return "at least once"
        return "exactly once for readers with isolation.level=read_committed"

    @property
    def on_rewind(self) -> str:
        """What a rewind does."""
        return NOT_REVERTED

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables of secret options."""
        return {variable: f"the option {option}" for option, variable in self.environment.items()}

    @property
    def row_keys(self) -> tuple[str, ...]:
        """The key of an upsert."""
        return self.key if self.mode == "upsert" else ()

    def added_columns(self, *, changelog: bool) -> tuple[SchemaColumn, ...]:
        """Return operation and epoch of a changelog's history."""
        return HISTORY_COLUMNS if changelog and self.mode == "append" and self.format == "json" else ()

    def encoded(self) -> list[object]:
        """Return what the records are made of."""
        return [type(self).__name__, self.mode, self.format, list(self.key), self.key_format, sorted(self.headers.items())]

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
