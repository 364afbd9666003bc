"""Outputs that were moved or removed: rewinds to before that, and starts while their former database is switched off."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.killed import kill_at
from tests.postgres.rig import VARIABLE, Mode, Rig
from tests.postgres.server import NEEDS_POSTGRES, Server
from tests.postgres.test_rewinds import Shop, shop  # noqa: F401 - a fixture
from tidemark.errors import RewindError, SinkError, StoreError
from tidemark.savepoints.model.rewind_journal import FORMER
from tidemark.savepoints.rewind.rewind_abort import abort_rewind
from tidemark.savepoints.rewind.rewinding import preview_rewind
from tidemark.spark.loop.recovery import Recovery
from tidemark.spark.sinks.sinks import BoundSink
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.state.log.records import EpochRecord

pytestmark = NEEDS_POSTGRES

OTHER = "OTHER_DSN"


def move(shop: Shop, table: str, *, mode: Mode | None = None) -> None:  # noqa: F811
    """Have the output write to another table from now on."""
    rig = shop.rig
    shop.rig = Rig(rig.folder, rig.schema, mode or rig.mode, term=rig.term, lineage=rig.lineage, job=rig.job, name=table)


def shown(server: Server, schema: str, table: str = "orders") -> list[Any]:
    return [found[0] for found in server.query(f"SELECT v FROM {schema}.{table} ORDER BY v")]


def test_the_table_before_a_move_is_rewound_too(shop: Shop, server: Server, schema: str) -> None:  # noqa: F811
    move(shop, "between")
    shop.run(1)
    move(shop, "moved")
    shop.run(2)
    plan = preview_rewind(shop.job.root, "taxi", "good", clock=shop.job.clock)
    assert (plan.refusals, dict(plan.left)) == ((), {})
    assert {name: place.location.rpartition(".")[2] for name, place in plan.places.items()} == {
        "orders": "moved",
        f"orders{FORMER}": "orders",
        f"orders{FORMER}{FORMER}": "between",
    }
    assert set(plan.changed) == set(plan.places)
    head = shop.rewind("good")
    assert [shown(server, schema, table) for table in ("orders", "between", "moved")] == [[0, 1, 2], [], []]
    # The code of the savepoint writes to its table again.
    position = head.outputs["orders"].before
    assert position is not None
    assert (position.table, position.epoch) == (f"{schema}.orders", 2)
    shop.restart()
    shop.rig.sink.expect(Expected(position))
    shop.rig.sink.require_whole()
    shop.run(2)
    assert shown(server, schema) == [0, 1, 2, 3, 4]


def test_a_table_before_a_move_that_cannot_be_rewound(tmp_path: Path, server: Server, schema: str) -> None:
    shop = Shop(tmp_path, schema, "append")  # noqa: F811
    shop.run(1)
    shop.job.savepoints.take("good")
    shop.run(1)
    shop.job.savepoints.take("before-the-move")
    move(shop, "between")
    shop.run(1)
    move(shop, "moved", mode="history")
    shop.run(1)
    with pytest.raises(RewindError, match=rf"the table {schema}.orders has rows of epochs after 0 that it does not keep apart"):
        shop.rewind("good")
    # A table that was the output's only in between blocks nothing.
    plan = preview_rewind(shop.job.root, "taxi", "before-the-move", clock=shop.job.clock)
    assert plan.refusals == ()
    (left,) = plan.left.values()
    assert f"what was written to postgres://{VARIABLE}/{schema}.between since stays: " in left
    assert "does not keep apart" in left
    shop.rewind("before-the-move")
    assert [shown(server, schema, table) for table in ("orders", "between", "moved")] == [[0, 1], [2], []]


@pytest.mark.crash
def test_a_rewind_that_is_killed_between_two_places(shop: Shop, server: Server, schema: str) -> None:  # noqa: F811
    move(shop, "moved")
    shop.run(2)
    shop.job.driver.release()
    args = [str(shop.folder)]
    kill_at("tests.postgres.test_rewinds:rewind_in_process", "rewind-table-back", args)
    assert (shown(server, schema, "moved"), shown(server, schema)) == ([], [0, 1, 2, 3, 4, 5])
    with pytest.raises(RewindError, match="rewound already"):
        abort_rewind(shop.job.root, "taxi", clock=shop.job.clock)
    assert shop.rewind("good").epoch == 2
    assert (shown(server, schema, "moved"), shown(server, schema)) == ([], [0, 1, 2])


def start(shop: Shop, sinks: Mapping[str, BoundSink]) -> EpochRecord | None:  # noqa: F811
    """Start the job with other outputs, up to where its first epoch would begin."""
    shop.job.restart()
    found = Recovery(shop.job.root, shop.job.driver, sinks, frozenset({"trips"}), ("hourly",), lambda record, _: record)
    return found.resume_point()


@pytest.mark.parametrize("how", ["removed", "moved"])
def test_a_former_output_is_reached_only_for_what_it_has_to_publish(
    shop: Shop,  # noqa: F811
    server: Server,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    monkeypatch.setenv(OTHER, server.dsn())
    sinks = {"orders": BoundSink("orders", Rig(shop.rig.folder, schema, "history", job="taxi", variable=OTHER, name="moved").sink)}
    sinks = sinks if how == "moved" else {}
    monkeypatch.setenv(VARIABLE, server.dsn().replace(f":{server.port}/", ":1/"))
    head = start(shop, sinks)
    assert head is not None
    assert head.epoch == 5
    monkeypatch.delenv(VARIABLE)
    assert start(shop, sinks) == head
    # Staged for it, and not published.
    monkeypatch.setenv(VARIABLE, server.dsn())
    shop.restart()
    staged = shop.stage()
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(SinkError, match=f"{VARIABLE}, which holds the connection string .* is not set"):
        start(shop, sinks)
    monkeypatch.setenv(VARIABLE, server.dsn().replace(f":{server.port}/", ":1/"))
    with pytest.raises(StoreError, match="check that the server runs"):
        start(shop, sinks)
    monkeypatch.setenv(VARIABLE, server.dsn())
    assert start(shop, sinks) == staged
    assert shown(server, schema) == [0, 1, 2, 3, 4, 5, 6]
    server.query(f"DROP SCHEMA {schema} CASCADE")
    assert start(shop, {}) == staged
