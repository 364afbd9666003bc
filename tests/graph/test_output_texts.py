"""What outputs and their columns are: given where a sink is declared, checked there, and part of nothing that is computed."""

from __future__ import annotations

from typing import Any

import pytest

import tidemark as tm
from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.job.code_version import code_version
from tidemark.graph.model.nodes import DeltaSpec
from tidemark.savepoints.model.isolation import redirect_outputs

TRIPS = tm.source(
    "trips",
    tm.from_elements(epochs=[[]], schema="zone STRING, at TIMESTAMP, tip DOUBLE"),
    watermarks=tm.ascending(timestamp="at"),
)
HOURLY = TRIPS.key_by("zone").window(tm.tumbling("1 hour")).aggregate(tips=tm.sum("tip")).uid("hourly")
TEXTS: dict[str, Any] = {"description": " Tips by the hour. ", "columns": {"tips": "Sum of the tips.", "zone": " "}}
SINKS = {
    "delta": lambda **texts: tm.delta(HOURLY, "lake/hourly", **texts),
    "upsert": lambda **texts: tm.delta(HOURLY, "lake/hourly", mode="upsert", **texts),
    "parquet": lambda **texts: tm.parquet(HOURLY, "lake/hourly", **texts),
    "postgres": lambda **texts: tm.postgres(HOURLY, table="hourly", dsn_env="SHOP_DSN", **texts),
    "iceberg": lambda **texts: tm.iceberg(HOURLY, table="shop.hourly", catalog="lake", **texts),
    "kafka": lambda **texts: tm.kafka_sink(HOURLY, servers="broker:9092", topic="hourly", **texts),
}


@pytest.mark.parametrize("kind", SINKS)
def test_a_sink_has_descriptions_that_do_not_change_the_code(kind: str) -> None:
    given, plain = SINKS[kind](**TEXTS), SINKS[kind]()
    assert (given.description, given.column_texts) == ("Tips by the hour.", (("tips", "Sum of the tips."),))
    assert (plain.description, plain.column_texts) == ("", ())
    assert given.sink == plain.sink
    assert code_version(tm.Job("cabs", {"hourly": given})) == code_version(tm.Job("cabs", {"hourly": plain}))


@pytest.mark.parametrize("kind", SINKS)
def test_what_is_no_description_is_refused(kind: str) -> None:
    with pytest.raises(ColumnError, match=r"describes 'tip', which the output does not have.*write 'tips'"):
        SINKS[kind](columns={"tip": "A tip."})
    with pytest.raises(ColumnError, match="describe one of zone, "):
        SINKS[kind](columns={"xyzzy": "Nothing like it."})
    for wrong in ({"tips": 3}, {3: "tips"}, ["tips"], "tips"):
        with pytest.raises(DefinitionError, match="has no text for each column"):
            SINKS[kind](columns=wrong)
    with pytest.raises(DefinitionError, match="description=3 is no text"):
        SINKS[kind](description=3)
    for long in ({"description": "a" * 4_001}, {"columns": {"tips": "a" * 4_001}}):
        with pytest.raises(DefinitionError, match="has 4,001 characters, and tables keep 4,000"):
            SINKS[kind](**long)
    assert SINKS[kind](description="a" * 4_000).description


def test_columns_that_the_sink_adds_can_be_described() -> None:
    made = tm.delta(HOURLY, "lake/hourly", mode="scd2", sequence="window_start", columns={"valid_to": "Until then."})
    assert made.column_texts == (("valid_to", "Until then."),)


def test_a_fork_keeps_them() -> None:
    fork = redirect_outputs(tm.Job("cabs", {"hourly": tm.delta(HOURLY, "lake/hourly", **TEXTS)}), name="what-if", root="lake/what-if")
    output = fork.outputs["hourly"]
    assert isinstance(output.sink, DeltaSpec)
    assert output.sink.path.endswith("what-if/hourly")
    assert (output.description, output.column_texts) == ("Tips by the hour.", (("tips", "Sum of the tips."),))
