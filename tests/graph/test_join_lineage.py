"""Column lineage through joins, changelogs, aggregates and queries, without Spark."""

from __future__ import annotations

import tidemark as tm
from tidemark.graph.checks.column_lineage import lineage
from tidemark.graph.job.explain import explain


def read(name: str, columns: str) -> tm.Stream:
    given = tm.from_elements(epochs=[], schema=f"at TIMESTAMP, {columns}")
    return tm.source(name, given, watermarks=tm.ascending(timestamp="at"))


def origins(stream: tm.Stream, *columns: str) -> dict[str, set[str]]:
    return {name: {".".join(pair) for pair in lineage(stream.node, name)} for name in columns}


RIDES = read("rides", "id BIGINT, zone STRING, km DOUBLE").latest(by=["id"], sequence="at").uid("rides")
FARES = read("fares", "id BIGINT, fare DOUBLE, tip DOUBLE").select("id", "fare", paid="fare + tip").as_changelog(key=["id"])


def test_a_column_of_both_sides_comes_from_both() -> None:
    for how in ("inner", "left", "right", "full"):
        made = RIDES.join(FARES, on="id", how=how).uid("j")
        assert origins(made, "id", "zone", "fare", "paid") == {
            "id": {"rides.id", "fares.id"},
            "zone": {"rides.zone"},
            "fare": {"fares.fare"},
            "paid": {"fares.fare", "fares.tip"},
        }
    for kept in (RIDES.join(FARES, on="id", how="semi"), RIDES.join(FARES, on="id", how="anti")):
        assert origins(kept.uid("j"), "id", "zone") == {"id": {"rides.id"}, "zone": {"rides.zone"}}


def test_through_a_left_join_an_aggregate_and_the_best_rows() -> None:
    joined = RIDES.join(FARES, on="id", how="left").uid("j").with_columns(per_km="paid / km")
    zones = joined.key_by("zone").aggregate(rides=tm.count(), most=tm.max("per_km"), total=tm.sum("fare")).uid("zones")
    best = zones.top_n(3, order="total DESC", rank="place").uid("best")
    assert origins(best, "zone", "rides", "most", "total", "place") == {
        "zone": {"rides.zone"},
        "rides": set(),
        "most": {"fares.fare", "fares.tip", "rides.km"},
        "total": {"fares.fare"},
        "place": {"fares.fare"},
    }


def test_a_query_has_the_lineage_of_its_steps() -> None:
    made = tm.sql(
        "SELECT r.zone, count(*) AS n, sum(f.paid) AS total FROM rides r LEFT JOIN fares f ON r.id = f.id WHERE r.km > 1 GROUP BY r.zone",
        uid="q",
        rides=RIDES,
        fares=FARES,
    )
    assert origins(made, "zone", "n", "total") == {"zone": {"rides.zone"}, "n": set(), "total": {"fares.fare", "fares.tip"}}
    job = tm.Job("zones", outputs={"zones": tm.memory(made, "zones")})
    assert "left join of changelogs" in explain(job)
