"""Operators and sources that come, go, and change their names."""

from __future__ import annotations

import pytest

import tidemark as tm
from tests.verdict.stored import job_of, record_of, trips
from tidemark.errors import StateMismatchError
from tidemark.graph.model.source_specs import SourceSpec
from tidemark.savepoints.compatibility.state_check import check_compatibility


def counted(stream: tm.Stream, uid: str, **aggregates: tm.Aggregate) -> tm.Stream:
    return stream.key_by("zone").window(tm.tumbling("1 hour")).aggregate(**(aggregates or {"n": tm.count()})).uid(uid)


def test_an_operator_without_an_heir_is_refused_until_it_is_left_behind() -> None:
    stream = trips()
    record, job = record_of(counted(stream, "w"), counted(stream, "v")), job_of(counted(stream, "w"))
    found = check_compatibility(record, job)
    assert (found.status, found.operator("v").status, found.operator("w").status) == ("incompatible", "dropped", "compatible")
    assert "10 rows of state" in found.text()
    assert "--allow-non-restored-state" in found.text()
    # Who restores needs a savepoint, and is told how one is taken; who names one already is not.
    with pytest.raises(StateMismatchError, match="where there is no savepoint yet, `tidemark savepoint trigger taxi` takes one"):
        found.require()
    with pytest.raises(StateMismatchError) as told:
        found.require(by_options=True)
    assert "savepoint trigger" not in str(told.value)
    for maps in ({"uids": {"v": None}}, {"allow_non_restored_state": True}):
        left = check_compatibility(record, job, **maps)
        assert (left.status, left.operator("v").left) == ("compatible", True)
        left.require()


def test_an_operator_under_another_uid() -> None:
    record, job = record_of(counted(trips(), "w")), job_of(counted(trips(), "v", n=tm.count(), m=tm.max("fare")))
    unsaid = check_compatibility(record, job)
    assert {each.uid: each.status for each in unsaid.operators} == {"v": "new", "w": "dropped"}
    same = check_compatibility(record, job_of(counted(trips(), "v")))
    assert "uids={'w': 'v'}" in same.text()
    said = check_compatibility(record, job, uids={"w": "v"})
    assert (said.status, said.operator("v").stored, said.operator("v").rewrite.added) == ("migrates", "w", ("m__max",))
    assert "its state is that of 'w'" in said.text()


def test_two_operators_that_swap_their_uids() -> None:
    stream = trips()
    record = record_of(counted(stream, "a"), counted(stream, "b", m=tm.max("fare")))
    job = job_of(counted(stream, "a", m=tm.max("fare")), counted(stream, "b"))
    assert check_compatibility(record, job).status == "incompatible"
    assert check_compatibility(record, job, uids={"a": "b", "b": "a"}).status == "compatible"


def test_sources_come_and_go() -> None:
    record = record_of(counted(trips(), "w"))
    joined = trips().union(trips(name="rides"))
    found = check_compatibility(record, job_of(counted(joined, "w")))
    assert {each.name: each.status for each in found.sources} == {"trips": "compatible", "rides": "new"}
    assert found.fits
    renamed = check_compatibility(record, job_of(counted(trips(name="rides"), "w")))
    assert {each.name: each.status for each in renamed.sources} == {"trips": "dropped", "rides": "new"}
    assert not renamed.fits
    assert "source 'trips'" in str(_refusal(renamed.require))
    assert check_compatibility(record, job_of(counted(trips(name="rides"), "w")), allow_non_restored_state=True).fits


def test_what_a_new_source_brings_late_is_said() -> None:
    record = record_of(counted(trips(), "w"))
    found = check_compatibility(record, job_of(counted(trips().union(trips(name="rides")), "w")))
    (new,) = [each for each in found.sources if each.status == "new"]
    assert [each.text() for each in new.findings] == [
        "it is new, and is read from its beginning",
        "its elements are late where restored watermarks have passed them: watermarks are up to 1970-01-01T00:00:01.000Z",
    ]


KINDS: dict[str, tuple[str, SourceSpec]] = {
    "files": ('{"logOffset":3}', tm.files("landing", format="json", schema="timestamp TIMESTAMP")),
    "delta": ('{"reservoirId":"a1","reservoirVersion":3,"index":-1}', tm.streaming_format("delta", options={"path": "/rides"})),
    "kafka": ('{"rides":{"0":17,"1":3}}', tm.streaming_format("kafka", options={"subscribe": "rides"})),
    "rate": ("42", tm.rate(rows_per_second=1)),
    "other": ('{"cursor":"a"}', tm.streaming_format("kinesis")),
}


@pytest.mark.parametrize("before", KINDS)
@pytest.mark.parametrize("after", KINDS)
def test_a_position_is_one_of_a_kind_of_source(before: str, after: str) -> None:
    record = record_of(counted(trips(), "w"), offsets=f"v2\n{{}}\ntrips:{KINDS[before][0]}")
    stream = tm.source("trips", KINDS[after][1], watermarks=tm.ascending(timestamp="timestamp"))
    found = check_compatibility(record, job_of(stream), uids={"w": None})
    (source,) = found.sources
    if before == after or "other" in (before, after):
        assert (source.status, source.findings, found.fits) == ("compatible", (), True)
    else:
        assert (source.status, found.fits) == ("incompatible", False)
        assert "source 'trips': it was read from" in str(_refusal(found.require))
        assert "give the new source another name" in str(_refusal(found.require))


def _refusal(act: object) -> BaseException:
    assert callable(act)
    try:
        act()
    except Exception as error:  # noqa: BLE001 - the caller looks at it
        return error
    raise AssertionError("nothing was refused")
