"""Every assigner with every trigger, and the finer rules, as transcripts; and wrong ones, which the runner has to notice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.semantics import transcript_runs as runner
from tests.semantics.transcript_runs import Seen, Transcript, TranscriptError, play, transcripts

RIGHT = transcripts()
WRONG = transcripts("wrong")


@pytest.mark.parametrize("transcript", RIGHT, ids=lambda transcript: transcript.name)
def test_transcript(transcript: Transcript) -> None:
    play(transcript)


@pytest.mark.parametrize("transcript", WRONG, ids=lambda transcript: transcript.name)
def test_runner_finds_what_is_wrong(transcript: Transcript) -> None:
    if transcript.fails is None:
        play(transcript)
        return
    with pytest.raises(TranscriptError) as error:
        play(transcript)
    assert transcript.fails in str(error.value)


def test_runner_holds_both_players_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    right = next(transcript for transcript in WRONG if transcript.fails is None)
    for player in ("played_by_reference", "played_by_process"):
        with monkeypatch.context() as patch:
            seen = [replace(found, expect=[]) for found in getattr(runner, player)(right)]
            patch.setattr(runner, player, lambda _transcript, seen=seen, **_how: iter(seen))
            with pytest.raises(TranscriptError, match=rf"epoch 1, {player.rpartition('_')[2]}: expect is \[\]"):
                play(right)


def test_every_assigner_is_played_with_every_trigger() -> None:
    played = {(str(one.parts["windows"]).partition("(")[0], str(one.parts.get("trigger", "")).partition("(")[0]) for one in RIGHT}
    triggers = {name for name in {trigger for _, trigger in played} if name}
    assigners = {assigner for assigner, _ in played} - {"count_window"}
    assert (len(assigners), len(triggers)) == (5, 9)
    missing = {(assigner, trigger) for assigner in assigners for trigger in triggers} - played
    assert missing == {("session", "delta_trigger")}


def test_there_is_something_to_play() -> None:
    assert len(RIGHT) > 90
    assert len([one for one in WRONG if one.fails]) == 20
    assert isinstance(next(runner.played_by_process(RIGHT[0])), Seen)
