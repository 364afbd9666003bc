"""Streams in YAML: filters, columns, windows with their aggregates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Self

import dagster as dg
from pydantic import Field, model_validator

import tidemark as tm
from tidemark.components.choices import chosen, given
from tidemark.graph import Aggregate
from tidemark.semantics import WindowAssigner

_OF_ONE: Final = (
    "sum", "avg", "min", "max", "count", "count_distinct", "approx_count_distinct", "first", "last", "stddev", "variance",
    "collect_list", "collect_set",
)  # fmt: skip
_WITH: Final[Mapping[str, tuple[str, ...]]] = {"min_by": ("by",), "max_by": ("by",), "approx_percentile": ("p",), "top_k": ("k", "by")}
"""Aggregates with further arguments."""

_EXPRESSION: Final = "Of this SQL expression."


class AggregateModel(dg.Model, dg.Resolvable):
    """An aggregate: the name of one with its SQL expression, such as `sum: fare`; `count: '*'` counts all rows."""

    sum: str | None = Field(default=None, description=_EXPRESSION)
    avg: str | None = Field(default=None, description=_EXPRESSION)
    min: str | None = Field(default=None, description=_EXPRESSION)
    max: str | None = Field(default=None, description=_EXPRESSION)
    count: str | None = Field(default=None, description="Rows in which this SQL expression is not null; '*' counts all rows.")
    count_distinct: str | None = Field(default=None, description=_EXPRESSION)
    approx_count_distinct: str | None = Field(default=None, description=_EXPRESSION)
    first: str | None = Field(default=None, description="Of this SQL expression, in event time.")
    last: str | None = Field(default=None, description="Of this SQL expression, in event time.")
    stddev: str | None = Field(default=None, description=_EXPRESSION)
    variance: str | None = Field(default=None, description=_EXPRESSION)
    collect_list: str | None = Field(default=None, description=_EXPRESSION)
    collect_set: str | None = Field(default=None, description=_EXPRESSION)
    min_by: str | None = Field(default=None, description="Where `by` is least.")
    max_by: str | None = Field(default=None, description="Where `by` is greatest.")
    approx_percentile: str | None = Field(default=None, description="Of this SQL expression, for the share `p`.")
    top_k: str | None = Field(default=None, description="The `k` greatest, by `by` if given.")
    by: str | None = Field(default=None, description="SQL expression that orders, of min_by, max_by and top_k.")
    p: float | None = Field(default=None, description="Share from 0 to 1, of approx_percentile.")
    k: int | None = Field(default=None, description="How many, of top_k.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        name = chosen(self, *_OF_ONE, *_WITH)
        takes = _WITH.get(name, ())
        if wrong := [other for other in ("by", "p", "k") if getattr(self, other) is not None and other not in takes]:
            raise ValueError(f"{name} takes no {', '.join(wrong)}. Fix: leave that out")
        if missing := [other for other in takes if getattr(self, other) is None and (name, other) != ("top_k", "by")]:
            raise ValueError(f"{name} lacks {', '.join(missing)}. Fix: add it")
        return self

    def aggregate(self) -> Aggregate:
        """Return the aggregate.

        Raises:
            ExpressionError: its expression cannot be read.
        """
        arguments = given(self)
        name = chosen(self, *_OF_ONE, *_WITH)
        expression = arguments.pop(name)
        make: Callable[..., Aggregate] = getattr(tm, name)
        return make() if (name, expression) == ("count", "*") else make(expression, **arguments)


class WindowModel(dg.Model, dg.Resolvable):
    """Windows: one of `tumbling`, `sliding`, `cumulative`, `session`, `session_by`, `count`."""

    tumbling: str | None = Field(default=None, description="Size of windows side by side, such as '1 hour'.")
    sliding: str | None = Field(default=None, description="Size of windows of which a new one begins every `slide`.")
    cumulative: str | None = Field(default=None, description="Greatest size of windows that grow by `step`.")
    session: str | None = Field(default=None, description="The gap that ends a session, such as '30 minutes'.")
    session_by: str | None = Field(default=None, description="SQL expression of each element's own gap.")
    count: int | None = Field(default=None, description="Elements in a group.")
    slide: str | int | None = Field(default=None, description="Of sliding: from start to start. Of count: elements between two groups.")
    step: str | None = Field(default=None, description="Of cumulative: the smallest size.")
    offset: str | None = Field(default=None, description="Shifts aligned windows.")
    zone: str | None = Field(default=None, description="Time zone of windows of local days, such as Asia/Tokyo.")
    zone_by: str | None = Field(default=None, description="SQL expression of each element's own time zone.")
    time: Literal["event", "processing"] | None = Field(default=None, description="Event time, by default, or processing time.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        name = chosen(self, *_WINDOWS)
        takes = _WINDOWS[name]
        wrong = [other for other in _OPTIONS if getattr(self, other) is not None and other not in takes]
        if wrong:
            raise ValueError(f"{name} takes no {', '.join(wrong)}. Fix: leave that out")
        if missing := [other for other in takes if other in {"slide", "step"} and getattr(self, other) is None and name != "count"]:
            raise ValueError(f"{name} lacks {', '.join(missing)}. Fix: add it")
        return self

    def assigner(self) -> WindowAssigner:
        """Return the windows.

        Raises:
            DurationError: a duration cannot be read or is out of range.
            DefinitionError: a zone does not exist.
        """
        name = chosen(self, *_WINDOWS)
        arguments = given(self)
        size = arguments.pop(name)
        if name == "session_by":
            return tm.session(gap_by=size, **arguments)
        make: Callable[..., WindowAssigner] = {"count": tm.count_window}.get(name) or getattr(tm, name)
        between = [arguments.pop(other) for other in ("slide", "step") if other in arguments]
        return make(size, *between, **arguments)


_ALIGNED: Final = ("offset", "zone", "zone_by", "time")
_WINDOWS: Final[Mapping[str, tuple[str, ...]]] = {
    "tumbling": _ALIGNED,
    "sliding": ("slide", *_ALIGNED),
    "cumulative": ("step", *_ALIGNED),
    "session": ("time",),
    "session_by": ("time",),
    "count": ("slide",),
}
"""The options of each kind of windows."""

_OPTIONS: Final = ("slide", "step", *_ALIGNED)


class StreamModel(dg.Model, dg.Resolvable):
    """A stream made of others: rows are filtered, get columns, are chosen, and are aggregated in windows, in this order."""

    input: str | list[str] = Field(description="The stream, source or side output that it is made of; several are united.")
    filter: str | None = Field(default=None, description="SQL condition that rows have to meet.")
    rejects_to: str | None = Field(default=None, description="Name of the side output of rows that do not meet it.")
    with_columns: dict[str, str] | None = Field(default=None, description="Columns to add or replace, SQL expressions by name.")
    select: dict[str, str] | list[str] | None = Field(default=None, description="The columns to keep: names, or SQL expressions by name.")
    key_by: dict[str, str] | list[str] | str | None = Field(
        default=None, description="Keys of the windows: names, or SQL expressions by name."
    )
    window: WindowModel | None = Field(default=None, description="The windows.")
    allowed_lateness: str | None = Field(default=None, description="How late elements may be after their window fired.")
    late_to: str | None = Field(default=None, description="Name of the side output of late elements; they are counted without one.")
    aggregates: dict[str, AggregateModel] | None = Field(default=None, description="Aggregates of a window, by the name of their column.")
    uid: str | None = Field(default=None, description="Identifies the windows' state; the stream's name by default.")

    @model_validator(mode="after")
    def _has_what_belongs_together(self) -> Self:
        if (self.window is None) != (self.aggregates is None):
            raise ValueError("`window` and `aggregates` belong together. Fix: give both, or neither")
        if self.window is None and any(each is not None for each in (self.key_by, self.allowed_lateness, self.late_to, self.uid)):
            raise ValueError("`key_by`, `allowed_lateness`, `late_to` and `uid` belong to a window. Fix: add `window` and `aggregates`")
        if self.rejects_to is not None and self.filter is None:
            raise ValueError("`rejects_to` belongs to a filter. Fix: add `filter`")
        return self


def columns_of(given: Mapping[str, str] | list[str] | str | None) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return columns as positional and keyword arguments of ``select`` and ``key_by``."""
    if given is None:
        return (), {}
    if isinstance(given, str):
        return (given,), {}
    return ((), dict(given)) if isinstance(given, Mapping) else (tuple(given), {})
