"""What a function prints or logs says where it comes from."""

from __future__ import annotations

import logging
import sys

import pytest

from tidemark.semantics.keyed_process.context import ProcessContext
from tidemark.semantics.keyed_process.timers import KeyTimers
from tidemark.semantics.keyed_process.times import Now
from tidemark.spark.operators.keyed_process.user_output import named_output


def test_each_line_begins_with_job_operator_and_key(capsys: pytest.CaptureFixture[str]) -> None:
    context = ProcessContext(Now(0, 0), frozenset())
    handler = logging.StreamHandler()
    with named_output("taxi tips", context):
        print("opened")
        context.begin_key({"driver": 7}, KeyTimers(None))
        print("one\ntwo", end="")
        print(" more")
        handler.setStream(sys.stderr)
        handler.handle(logging.makeLogRecord({"msg": "odd"}))
        context.begin_key({"driver": 8}, KeyTimers(None))
        print("not ended", end="")
    print("after")
    out, errors = capsys.readouterr()
    assert out.splitlines() == [
        "taxi tips: opened",
        "taxi tips {'driver': 7}: one",
        "taxi tips {'driver': 7}: two more",
        "taxi tips {'driver': 8}: not ended",
        "after",
    ]
    assert errors.splitlines() == ["taxi tips {'driver': 7}: odd"]
