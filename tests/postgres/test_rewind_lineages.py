"""Rewinds after restores, changes of the mode and rewinds before; and of tables that others made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres.rig import Rig
from tests.postgres.server import NEEDS_POSTGRES, Server
from tests.postgres.test_rewinds import Shop, shop, shown  # noqa: F401 - a fixture
from tidemark.errors import FencedError, RewindError
from tidemark.savepoints.database.ledger import ABORTED, REWOUND, Ledger
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.postgres.dialect import POSTGRES
from tidemark.savepoints.postgres.session import transaction
from tidemark.savepoints.rewind.rewinding import preview_rewind

pytestmark = NEEDS_POSTGRES

KEPT = "tidemark.savepoints.database.ledger.KEPT_EPOCHS"


def restore(shop: Shop, name: str) -> None:  # noqa: F811
    """Restore the state alone, as a start with ``--restore`` does."""
    shop.job.restart()
    shop.job.restore(Restore(name))
    shop.open()


@pytest.mark.parametrize("kept", [1000, 1])
def test_epochs_that_a_restore_ran_again_are_not_taken_for_the_savepoints(
    shop: Shop,  # noqa: F811
    server: Server,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
    kept: int,
) -> None:
    monkeypatch.setattr(KEPT, kept)
    shop.job.savepoints.take("later")
    restore(shop, "good")
    shop.run(6)
    found = [0, 1, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8]
    assert shown(server, schema) == found
    began = shop.job.driver.last
    assert began is not None
    with pytest.raises(RewindError, match=rf"rows of epochs up to 5 that the lineage {began.lineage} added after the savepoint.*Fix: "):
        shop.rewind("later")
    assert shown(server, schema) == found
    shop.rewind("good")
    assert shown(server, schema) == [0, 1, 2]


def test_a_lineage_that_the_log_no_longer_has_is_not_overlooked(shop: Shop, server: Server, schema: str) -> None:  # noqa: F811
    shop.job.savepoints.take("later")
    restore(shop, "good")
    shop.run(2)
    left = shop.rig.lineage
    restore(shop, "later")
    shop.run(4)
    shop.job.keep_house(retained=2)
    later = shop.job.savepoints.lineages_after(shop.job.savepoints.get("later").record)
    assert (left in later.names, later.all) == (False, False)
    (refusal,) = preview_rewind(shop.job.root, "taxi", "later", clock=shop.job.clock).refusals
    assert f"the lineage {left} added after the savepoint" in refusal
    # Of rows that the savepoint had, those of earlier lineages are not refused.
    shop.job.savepoints.take("newest")
    shop.run(3)
    shop.job.keep_house(retained=2)
    shop.rewind("newest")
    assert shown(server, schema) == [0, 1, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9]


def test_rows_without_epochs_are_known_however_many_epochs_follow(
    tmp_path: Path, server: Server, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KEPT, 1)
    shop = Shop(tmp_path, schema, "append")  # noqa: F811
    shop.run(2)
    shop.job.savepoints.take("good")
    shop.run(2)
    shop.mode = "history"
    shop.restart()
    shop.job.savepoints.take("since")
    shop.run(6)
    assert server.query(f"SELECT epoch, mode FROM {schema}.tidemark_epochs WHERE epoch >= 0 ORDER BY epoch") == [
        *((epoch, "append") for epoch in (0, 3)),
        *((epoch, "history") for epoch in (4, 8, 9)),
    ]
    with pytest.raises(RewindError, match=r"rows of epochs after 1 that it does not keep apart \(append\)"):
        shop.rewind("good")
    shop.rewind("since")
    assert shown(server, schema) == [0, 1, 2, 3]


def test_a_rewind_to_the_newest_epoch_leaves_its_row(tmp_path: Path, server: Server, schema: str) -> None:
    shop = Shop(tmp_path, schema, "append")  # noqa: F811
    shop.run(2)
    shop.job.savepoints.take("good")
    shop.run(1)
    shop.job.savepoints.take("newest")
    zombie, late = shop.rig, shop.rig.stage(2, [{"k": "late", "v": 2}])
    shop.rewind("newest")
    query = f"SELECT mode, term, rows, kept FROM {schema}.tidemark_epochs WHERE lineage = %s AND epoch = 2"
    assert server.query(query, zombie.lineage) == [("append", zombie.term + 1, 1, 2)]
    with pytest.raises(RewindError, match=r"rows of epochs after 1 that it does not keep apart \(append\)"):
        shop.rewind("good")
    with pytest.raises(FencedError):
        zombie.sink.publish(late, zombie.lineage, 2)
    assert shown(server, schema) == [0, 1, 2]


def test_rows_of_other_programs_are_not_deleted(tmp_path: Path, server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.orders (k text, v bigint, epoch bigint)")
    server.query(f"INSERT INTO {schema}.orders VALUES ('of another', 1000, 1000)")
    shop = Shop(tmp_path, schema)  # noqa: F811
    shop.run(2)
    shop.job.savepoints.take("good")
    assert shop.rewind("good").epoch == 1
    shop.restart()
    shop.run(1)
    with pytest.raises(RewindError, match=r"was not created by this output, so that other programs may have written rows.*Fix: "):
        shop.rewind("good")
    assert shown(server, schema) == [0, 1, 2, 1000]


def test_marks_of_rewinds_are_no_rows(schema: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path, schema, "history")
    mine, others = Ledger(POSTGRES, rig.table, "job", "orders"), Ledger(POSTGRES, rig.table, "other", "orders")
    with transaction(rig.table) as connection:
        mine.make(connection)
        mine.add(connection, "l1", 7, mode=REWOUND, kept=2)
        mine.add(connection, "rewind-1", 1, mode=ABORTED)
        mine.mark_rewound(connection, "rewind-2", 2)
        assert mine.is_rewound(connection, "rewind-2")
        assert not mine.is_rewound(connection, "rewind-1")
        assert not mine.is_own(connection)
        assert not others.has_others(connection)
        mine.add(connection, "l2", 3, mode="history")
        assert mine.is_own(connection)
        assert others.has_others(connection)
