"""A setting that is changed for a while is the user's own again, also where several jobs change it at once."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest
from py4j.protocol import Py4JNetworkError

from tidemark.spark.changed_settings import changed_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Session:
    """A session, its settings, and its counterpart in Java in one."""

    values: dict[str, str] = field(default_factory=dict)
    ended: bool = False

    @property
    def conf(self) -> Session:
        return self

    @property
    def _jsparkSession(self) -> Session:  # noqa: N802 - PySpark's
        return self

    def sessionUUID(self) -> int:  # noqa: N802 - Spark's
        return id(self)

    def get(self, key: str, default: str | None) -> str | None:
        return self.values.get(key, default)

    def set(self, key: str, value: str) -> None:
        if self.ended:
            raise Py4JNetworkError("no answer")
        self.values[key] = value

    def unset(self, key: str) -> None:
        del self.values[key]


def change(session: Session, value: str) -> ExitStack:
    """Change the setting until the stack that is returned is closed."""
    stack = ExitStack()
    stack.enter_context(changed_settings(cast("SparkSession", session), {"limit": value}))
    return stack


@pytest.mark.parametrize("own", [{}, {"limit": "7"}])
def test_the_last_of_several_jobs_restores_the_users_own_value(own: dict[str, str]) -> None:
    session, other = Session(dict(own)), Session({"limit": "1"})
    first, elsewhere = change(session, "8"), change(other, "2")
    second = change(session, "8")
    first.close()
    assert session.values == {"limit": "8"}
    second.close()
    elsewhere.close()
    assert session.values == own
    assert other.values == {"limit": "1"}
    change(session, "9").close()
    assert session.values == own


def fail(session: Session) -> None:
    with change(session, "8"):
        session.ended = True
        raise ValueError("the pass failed")


def test_the_error_of_the_block_is_the_one_that_is_raised() -> None:
    with pytest.raises(ValueError, match="the pass failed"):
        fail(Session({"limit": "7"}))
