"""Fixes name the store that commands look in, where the job's code names one that they would not find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.cli.jobs.next_command import naming_store
from tidemark.errors import StateMismatchError
from tidemark.state.store.root_store import STORE_VARIABLE
from tidemark.state.store.store import JobStore

FIX = "keep it (`tidemark savepoint trigger rides`), or leave it (`--missing accept` of `tidemark start rides` and `tidemark run`)"


@pytest.mark.parametrize("is_default", [False, True])
def test_commands_of_a_fix_name_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_default: bool) -> None:
    root = JobStore.open(str(tmp_path / "my store"))
    if is_default:
        monkeypatch.setenv(STORE_VARIABLE, root.uri)
    with pytest.raises(StateMismatchError) as raised, naming_store(root):
        raise StateMismatchError("it does not fit", fix=FIX, job="rides")
    given = f" --store '{root.uri}'"
    named = FIX.replace("trigger rides", f"trigger rides{given}").replace("start rides", f"start rides{given}")
    assert raised.value.fix == (FIX if is_default else named)
    assert str(raised.value) == f"[TM413] it does not fit (job 'rides'). Fix: {raised.value.fix}"
