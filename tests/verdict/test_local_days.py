"""Changes of windows of local days: what the verdict says."""

from __future__ import annotations

import pytest

import tidemark as tm
from tests.verdict.stored import SCHEMA, columns, judged
from tests.verdict.test_operators import Change, over

CHANGES: dict[str, Change] = {
    "zone": Change(
        over(tm.tumbling("1 day", zone="Europe/Berlin")),
        over(tm.tumbling("1 day", zone="Asia/Tokyo")),
        "incompatible",
        ("windows were tumbling 1d in Europe/Berlin and are now tumbling 1d in Asia/Tokyo",),
    ),
    "zone added": Change(
        over(tm.tumbling("1 day")),
        over(tm.tumbling("1 day", zone="Asia/Tokyo")),
        "incompatible",
        ("windows were tumbling 1d and are now tumbling 1d in Asia/Tokyo",),
    ),
    "size of local days": Change(
        over(tm.sliding("2 days", "1 day", zone="Asia/Tokyo")),
        over(tm.sliding("3 days", "1 day", zone="Asia/Tokyo")),
        "incompatible",
        ("windows were",),
    ),
    "column of zones renamed": Change(
        over(tm.tumbling("1 day", zone_by="trim(borough)")),
        over(tm.tumbling("1 day", zone_by="trim(place)")),
        "compatible",
        new=SCHEMA.replace("borough", "place"),
        maps={"columns": columns(borough="place")},
    ),
    "zones of another column": Change(
        over(tm.tumbling("1 day", zone_by="borough")),
        over(tm.tumbling("1 day", zone_by="upper(borough)")),
        "incompatible",
        ("in the zone borough",),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_local_days(name: str) -> None:
    change = CHANGES[name]
    found = judged(change.before, change.after, old=change.old, new=change.new, **change.maps)
    assert found.status == change.status, found
    text = " ".join(finding.text() for finding in found.findings)
    assert [said for said in change.says if said not in text] == []
