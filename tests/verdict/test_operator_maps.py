"""What a map of uids and columns may say."""

from __future__ import annotations

from typing import Any

import pytest

import tidemark as tm
from tests.verdict.stored import columns, trips, whole
from tests.verdict.test_operators import hourly
from tidemark.errors import DefinitionError

COUNT = tm.count()


@pytest.mark.parametrize(
    ("maps", "says"),
    [
        ({"uids": {"v": "w"}}, "'v', which has no stored state"),
        ({"uids": {"w": "v"}}, "'v', which the job does not have"),
        ({"columns": {"v": {"n": "m"}}}, "the operator 'v', which the job does not have"),
        ({"columns": {"w": {"absent": "n"}}}, "'absent', which has no stored state"),
        ({"columns": {"w": {"n": "m"}}}, "gives 'n' the new name 'm', which the operator does not have"),
        ({"columns": {"w": {"zone": "area"}}}, "gives 'zone' the new name 'area', which the operator does not have"),
        ({"columns": columns(zone=None)}, "drops 'zone', and only the state of an aggregate can be dropped"),
    ],
)
def test_maps_that_name_what_is_not_there(maps: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        whole(hourly(n=COUNT)(trips()), hourly(n=COUNT)(trips()), **maps)


def test_a_mistyped_new_name_gets_the_one_that_is_nearest() -> None:
    with pytest.raises(DefinitionError) as caught:
        whole(hourly(n=COUNT)(trips()), hourly(number=COUNT)(trips()), columns=columns(n="numbr"))
    assert (caught.value.fix, caught.value.uid) == ("write 'number'", "w")


def test_two_columns_never_become_one() -> None:
    before, after = hourly(n=COUNT, m=COUNT)(trips()), hourly(n=COUNT)(trips())
    with pytest.raises(DefinitionError, match="two columns of the stored state would be one: 'n__count'"):
        whole(before, after, columns=columns(m="n"))
    assert whole(before, after, columns=columns(m="n", n=None)).operator("w").rewrite.renamed == {"m__count": "n__count"}
    swapped = whole(before, hourly(n=COUNT, m=COUNT)(trips()), columns=columns(m="n", n="m")).operator("w")
    assert swapped.rewrite.renamed == {"m__count": "n__count", "n__count": "m__count"}
