"""Upserts: which of an epoch's rows are staged, and which rows of a table they replace.

A row replaces the one with the same key; nulls are equal. Rows of sessions have a column ``replaces``: the bounds of the sessions
that they replace. Where the key has the window's start, the rows of these are removed, too; where it has no end, by their starts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Observation, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.errors import ConservationError, SinkError
from tidemark.graph.checks.upsert_keys import END, REPLACES, START
from tidemark.graph.model.nodes import VALID_FROM, VALID_TO
from tidemark.spark.columns.expressions import POSITION, TIME, quoted, visible_of
from tidemark.spark.columns.replaced_sessions import entries_of
from tidemark.state.log.parquet_files import ParquetSummary
from tidemark.state.log.records import row_keys_of, row_keys_option

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PANE_INDEX: Final = "pane_index"
_RANK: Final = "__tm_rank"
_REPLACED: Final = "__tm_replaced"
_MODE: Final = "mode"
_REPLACES: Final = "replaces"
_LISTED: Final = "listed"
_FOLLOWS: Final = "follows"
_SINCE: Final = "__tm_gone_since"
_ANY_END: Final = "__tm_gone_any_end"


@dataclass(frozen=True)
class Upsert:
    """How rows of an output replace older ones.

    Args:
        keys: columns that identify a row.
        listed: the column of staged rows that lists which sessions they replace, if they have one.
        versions: whether earlier rows of a key stay, with the time for which each was valid.
        follows: of versions, whether the newest ones are the content of a changelog; else rows are versions, in any order.
    """

    keys: tuple[str, ...]
    listed: str = REPLACES
    versions: bool = False
    follows: bool = False

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> Upsert | None:
        """Return the upsert in an output record's options, None where all rows are appended; one without keys has one row at most."""
        mode = options.get(_MODE)
        if mode not in {"upsert", "scd2"}:
            return None
        return cls(row_keys_of(options), options.get(_LISTED, REPLACES), mode == "scd2", _FOLLOWS in options)

    @property
    def mode(self) -> str:
        """The mode of the sink."""
        return "scd2" if self.versions else "upsert"

    @property
    def options(self) -> dict[str, str]:
        """The options of an output's record: enough to publish it, however the job changes."""
        listed = {} if self.listed == REPLACES else {_LISTED: self.listed}
        follows = {_FOLLOWS: "changelog"} if self.follows else {}
        return {_MODE: self.mode, **row_keys_option(self.keys), **listed, **follows}

    def replaced_by(self, schema: T.StructType) -> str | None:
        """Return SQL of the sessions that a row of this type replaces, by their bounds; None where rows name none or keys have no start."""
        if self.listed not in schema.names or START not in self.keys:
            return None
        return entries_of(self.listed, schema[self.listed].dataType)

    def require_keys(self, schema: T.StructType, output: str) -> None:
        """Make sure that the keys identify rows of a type.

        Raises:
            SinkError: a key is missing, or cannot be compared.
        """
        missing = [key for key in self.keys if key not in schema.names]
        unequal = [key for key in self.keys if key not in missing and not _comparable(schema[key].dataType)]
        if missing or unequal:
            faults = [f"there is no {key!r}" for key in missing]
            faults += [f"{key!r} of type {schema[key].dataType.simpleString()} cannot be compared" for key in unequal]
            raise SinkError(
                f"output {output!r} cannot be upserted by {', '.join(self.keys)}: {', '.join(faults)}",
                fix=f"name other columns in keys=[...] of the output, whose mode is 'upsert'; there are {', '.join(schema.names)}",
                uid=output,
            )

    def newest(self, rows: DataFrame) -> Newest:
        """Return the rows of an epoch to stage: one for each key, and none that another row of the epoch replaces.

        Of one key's rows the one with the greatest pane index is kept, of these the latest, by event time and source position.

        Args:
            rows: with the engine's own columns, which are left out of the result.
        """
        visible = visible_of(rows.columns)
        order = [F.col(name).desc_nulls_last() for name in (PANE_INDEX, TIME, POSITION) if name in rows.columns]
        # Elements that a flat_map made of one element share its time and position.
        order.append(F.xxhash64(*(F.col(quoted(name)) for name in visible if _comparable(rows.schema[name].dataType))).desc())
        window = Window.partitionBy(*map(_column, self.keys)).orderBy(*order)
        ranked = rows.withColumn(_RANK, F.row_number().over(window))
        stays = f"{_RANK} = 1"
        replaced = self.replaced_by(rows.schema)
        if replaced:
            ranked = ranked.withColumn(_REPLACED, F.expr(self._replaced(replaced)))
            stays += f" AND NOT {_REPLACED}"
        observation = Observation()
        counts = [F.expr("count(1) AS emitted"), F.expr(f"count_if({stays}) AS kept")]
        if replaced:
            starts = f"transform({replaced}, x -> x.{START})"
            counts += [F.expr(f"unix_micros({end}(array_{end}({starts}))) AS {end}_replaced") for end in ("min", "max")]
        # After the shuffle, so that a task which runs twice is not counted twice.
        counted = ranked.observe(observation, *counts)
        listed = [self.listed] if replaced and self.listed not in visible else []
        return Newest(self, counted.where(stays).select(*map(_column, [*visible, *listed])), observation)

    def _replaced(self, entries: str) -> str:
        """Return SQL of whether a row's session became part of another row's of the same key."""
        rest = ", ".join(quoted(key) for key in self.keys if key not in (START, END)) or "1"
        own = f"x.{START} <=> {START}"
        if END in self.keys:
            own += f" AND (x.{END} IS NULL OR x.{END} <=> {END})"
        others = f"filter({entries}, x -> NOT ({own}))"
        return f"exists(flatten(collect_list({others}) OVER (PARTITION BY {rest})), x -> {own})"

    def replaced_keys(self, new: DataFrame) -> DataFrame:
        """Return the keys, named by ``replaced_key_columns``, of all rows that new rows replace; some of them twice."""
        names = self.replaced_key_columns
        named = [_column(key).alias(name) for key, name in zip(self.keys, names, strict=True)]
        if self.versions:
            return new.groupBy(*named).agg(F.min(VALID_FROM).alias(_SINCE))
        own = new.select(*named)
        entries = self.replaced_by(new.schema)
        if entries is None:
            return own
        exploded = new.select(*map(_column, self.keys), F.explode(F.expr(entries)).alias(_REPLACED))
        bounds = [key for key in (START, END) if key in self.keys]
        merged = exploded.select(
            *(
                (F.col(f"{_REPLACED}.{key}") if key in bounds else _column(key)).alias(name)
                for key, name in zip(self.keys, names, strict=True)
            )
        )
        if END not in bounds:
            return own.unionByName(merged)
        any_end = F.col(names[self.keys.index(END)]).isNull()
        return own.withColumn(_ANY_END, F.lit(False)).unionByName(merged.withColumn(_ANY_END, any_end))

    @property
    def replaced_key_columns(self) -> tuple[str, ...]:
        """The names of the key columns in ``replaced_keys``."""
        return tuple(f"__tm_gone_{number}" for number in range(len(self.keys)))

    def matches(self, old: DataFrame, replaced: DataFrame) -> Column:
        """Return whether a row of the table is replaced."""
        condition = F.lit(True)
        for key, name in zip(self.keys, self.replaced_key_columns, strict=True):
            same = old[quoted(key)].eqNullSafe(replaced[name])
            condition = condition & (replaced[_ANY_END] | same if key == END and _ANY_END in replaced.columns else same)
        if self.versions:
            # What ended before the first new version begins stays as it is.
            condition = condition & (old[VALID_TO].isNull() | (old[VALID_TO] > replaced[_SINCE]))
        return condition

    @property
    def compared_columns(self) -> tuple[str, ...]:
        """The columns of the table by which replaced rows are found."""
        return (*self.keys, VALID_TO) if self.versions else self.keys


@dataclass(frozen=True)
class Newest:
    """The rows of an epoch to stage, and the number there were; the counts are known once the rows were written."""

    upsert: Upsert
    rows: DataFrame
    observation: Observation

    @property
    def options(self) -> dict[str, str]:
        """The options of the epoch's record: the upsert's, and the bounds of the starts that rows replace, if any do."""
        found: Mapping[str, Any] = self.observation.get
        low, high = found.get("min_replaced"), found.get("max_replaced")
        return self.upsert.options if low is None else {**self.upsert.options, _REPLACES: json.dumps([low, high])}

    def emitted(self, files: Iterable[ParquetSummary], output: str) -> int:
        """Return the number of emitted rows, including those that newer ones replaced.

        Raises:
            ConservationError: the files do not have the number of rows that were to be staged.
        """
        found: Mapping[str, Any] = self.observation.get
        written = sum(file.rows for file in files)
        if written != found["kept"]:
            raise ConservationError(
                f"{found['kept']} rows were to be staged and {written} are in the files",
                fix="if an expression or function gives other results when it is run twice, make it deterministic; else report this",
                uid=output,
            )
        return int(found["emitted"])


def replaced_starts(options: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the least and the greatest start that an epoch's rows replace, microseconds; None where they replace none."""
    found = options.get(_REPLACES)
    if found is None:
        return None
    low, high = json.loads(found)
    return int(low), int(high)


def _column(name: str) -> Column:
    return F.col(quoted(name))


def _comparable(kind: T.DataType) -> bool:
    """Whether values of a type can be grouped, compared and hashed."""
    if isinstance(kind, T.StructType):
        return all(_comparable(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _comparable(kind.elementType)
    return not isinstance(kind, T.MapType | T.VariantType)
