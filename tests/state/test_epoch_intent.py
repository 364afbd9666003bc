from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidemark.errors import FormatError
from tidemark.state.log.epoch_intent import EpochIntent, read_intent, write_intent
from tidemark.state.store.store import JobStore

GOLDEN = Path(__file__).parent / "golden" / "plan-1.json"
PLAN = EpochIntent("a1", 7, "00ff", 1_700_000_000_000)


def test_the_golden_plan_is_written_and_read_as_ever(tmp_path: Path) -> None:
    store = JobStore.open(str(tmp_path))
    assert read_intent(store) is None
    write_intent(store, replace(PLAN, epoch=6))
    write_intent(store, PLAN)
    assert (tmp_path / "plan.json").read_bytes() == GOLDEN.read_bytes()
    assert read_intent(store) == PLAN


def test_a_damaged_plan_is_none_and_a_newer_one_is_left_alone(tmp_path: Path) -> None:
    store = JobStore.open(str(tmp_path))
    (tmp_path / "plan.json").write_bytes(GOLDEN.read_bytes()[:-9])
    assert read_intent(store) is None
    (tmp_path / "plan.json").write_bytes(GOLDEN.read_bytes().replace(b'"format":1', b'"format":2'))
    with pytest.raises(FormatError):
        read_intent(store)


def test_a_replay_has_the_same_lineage_number_and_input() -> None:
    assert replace(PLAN, processing_time=9).replays(PLAN)
    assert not PLAN.replays(None)
    for other in (replace(PLAN, lineage="a2"), replace(PLAN, epoch=8), replace(PLAN, input="00fe")):
        assert not other.replays(PLAN)
