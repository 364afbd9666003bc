"""The description of a Delta table and the comments of its columns, as the job declares them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from deltalake import CommitProperties, DeltaTable, Schema

from tidemark.state.delta.delta_hooks import KEEP_LOG
from tidemark.state.delta.delta_tags import DESCRIBED, MAINTENANCE

COMMENT: Final = "comment"
"""Key of a column's metadata that Spark, Unity Catalog and other readers show as its comment."""


@dataclass(frozen=True)
class TableTexts:
    """Description of a table, and comments by column; what is not named here is left as the table has it.

    Args:
        description: of the table; empty for none.
        columns: comments by column.
    """

    description: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)

    def commented(self, schema: str) -> Schema:
        """Return a type of rows, in Delta's JSON, with the columns' comments."""
        found = json.loads(schema)
        for column in found["fields"]:
            if column["name"] in self.columns:
                column["metadata"] = {**column.get("metadata", {}), COMMENT: self.columns[column["name"]]}
        return Schema.from_json(json.dumps(found))

    def describe(self, table: DeltaTable, metadata: Mapping[str, str]) -> int:
        """Give a table what it lacks of these texts, in a version for each, without rows; returns how many there were.

        Args:
            table: loaded at its newest version; afterwards at that of the last commit.
            metadata: of the commits.
        """
        properties = CommitProperties(custom_metadata={**metadata, MAINTENANCE: DESCRIBED})
        made = 0
        if self.description and table.metadata().description != self.description:
            table.alter.set_table_description(self.description, commit_properties=properties, post_commithook_properties=KEEP_LOG)
            made += 1
        for column, text in self._missing(table):
            table.alter.set_column_metadata(column, {COMMENT: text}, commit_properties=properties, post_commithook_properties=KEEP_LOG)
            made += 1
        return made

    def _missing(self, table: DeltaTable) -> Iterator[tuple[str, str]]:
        there = {column.name: column.metadata.get(COMMENT) for column in table.schema().fields}
        return ((name, text) for name, text in self.columns.items() if name in there and there[name] != text)
