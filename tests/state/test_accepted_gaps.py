from __future__ import annotations

from pathlib import Path

from tests.state.conftest import epoch_record
from tidemark.state.log.accepted_gaps import read_accepted, write_accepted
from tidemark.state.log.progress import OutputRepair
from tidemark.state.store.store import JobStore

GOLDEN = Path(__file__).parent / "golden" / "accepted-gaps-1.json"
REPAIR = OutputRepair.of_gap(8, "output 'hourly' lost its table", [("a1", 6), ("a1", 7)])


def test_what_was_accepted_is_written_and_read_as_ever_while_its_epoch_is_the_newest(tmp_path: Path) -> None:
    store, head = JobStore.open(str(tmp_path)), epoch_record(7)
    assert read_accepted(store, head) == {}
    write_accepted(store, head, {"hourly": REPAIR})
    assert (tmp_path / "accepted-gaps.json").read_bytes() == GOLDEN.read_bytes()
    assert read_accepted(store, head) == {"hourly": REPAIR}
    for other in (epoch_record(8), epoch_record(7, lineage="a2")):
        assert read_accepted(store, other) == {}
    (tmp_path / "accepted-gaps.json").write_bytes(GOLDEN.read_bytes()[:-9])
    assert read_accepted(store, head) == {}
