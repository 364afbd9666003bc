"""Values of simple SQL expressions over a row, without Spark: arithmetic, comparisons, CASE, coalesce and the like, on Python's values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from math import isnan
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.expressions import Site, parse_sql

if TYPE_CHECKING:
    from sqlglot import exp


def _ranked(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda a, b: compare(_rank(a), _rank(b))


_BINARY: Final[Mapping[str, Callable[[Any, Any], Any]]] = MappingProxyType(
    {
        "Add": operator.add,
        "Sub": operator.sub,
        "Mul": operator.mul,
        "Div": lambda a, b: float(a) / float(b),
        "Mod": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
        "EQ": _ranked(operator.eq),
        "NEQ": _ranked(operator.ne),
        "GT": _ranked(operator.gt),
        "GTE": _ranked(operator.ge),
        "LT": _ranked(operator.lt),
        "LTE": _ranked(operator.le),
        "DPipe": lambda a, b: f"{a}{b}",
    }
)
_UNARY: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType(
    {"Neg": operator.neg, "Abs": abs, "Upper": str.upper, "Lower": str.lower, "Length": len, "Not": operator.not_, "Paren": lambda a: a}
)
_WHOLE: Final = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT"})


def sql_value(text: str, row: Mapping[str, object], site: Site) -> Any:  # noqa: ANN401  # of the expression's type
    """Return the value of an expression; names are looked up regardless of case, a struct is a dict.

    Raises:
        DefinitionError: it has something that only Spark evaluates, or reads a column that the row does not have.

    >>> sql_value("if(fare > 2 * last, 'high', NULL)", {"fare": 5.0, "last": 2.0}, Site("example", ""))
    'high'
    """
    return _Evaluation({name.lower(): value for name, value in row.items()}, site, text).of(parse_sql(text, site))


def typed_value(value: Any, kind: str | None) -> Any:  # noqa: ANN401  # as above
    """Return a value as one of a Spark type.

    >>> typed_value(3, "DOUBLE"), typed_value(2.7, "INT"), typed_value(1, "STRING")
    (3.0, 2, '1')
    """
    name = (kind or "").partition("(")[0].upper()
    if value is None or not name:
        return value
    if name in _WHOLE:
        return int(value)
    if name in {"DOUBLE", "FLOAT"}:
        return float(value)
    if name == "STRING":
        return str(value).lower() if isinstance(value, bool) else str(value)
    return bool(value) if name == "BOOLEAN" else value


class _Evaluation:
    """The evaluation of one expression over one row."""

    def __init__(self, row: Mapping[str, object], site: Site, text: str) -> None:
        self._row = row
        self._site = site
        self._text = text

    def of(self, part: exp.Expr | None) -> Any:  # noqa: ANN401
        """Return the value of a part."""
        from sqlglot import exp

        name = type(part).__name__
        if name in _UNARY:
            value = self.of(part.this) if part is not None else None
            return None if value is None else _UNARY[name](value)
        if part is not None and name in _BINARY:
            one, other = self.of(part.this), self.of(part.expression)
            return None if one is None or other is None else _BINARY[name](one, other)
        match part:
            case exp.Column():
                return self._column([each.name for each in part.parts])
            case exp.Literal():
                return part.name if part.is_string else float(part.name) if set(part.name.lower()) & {".", "e"} else int(part.name)
            case exp.Null():
                return None
            case exp.Boolean():
                return bool(part.this)
            case exp.Cast() | exp.TryCast():
                return typed_value(self.of(part.this), part.to.sql(dialect="spark"))
        return self._choice(part)

    def _choice(self, part: exp.Expr | None) -> Any:  # noqa: ANN401
        """Return the value of what treats nulls in its own way."""
        from sqlglot import exp

        match part:
            case exp.And() | exp.Or():
                decides = isinstance(part, exp.Or)
                values = [self.of(part.this), self.of(part.expression)]
                return decides if decides in values else None if None in values else not decides
            case exp.Is():
                value, other = self.of(part.this), self.of(part.expression)
                return value is other
            case exp.NullSafeEQ():
                return _rank(self.of(part.this)) == _rank(self.of(part.expression))
            case exp.Coalesce():
                return next((value for each in (part.this, *part.expressions) if (value := self.of(each)) is not None), None)
            case exp.Greatest() | exp.Least():
                values = [value for each in (part.this, *part.expressions) if (value := self.of(each)) is not None]
                chosen = max if isinstance(part, exp.Greatest) else min
                return chosen(values, key=_rank) if values else None
            case exp.Nullif():
                value = self.of(part.this)
                return None if _rank(value) == _rank(self.of(part.expression)) else value
            case exp.If():
                taken = part.args["true"] if self.of(part.this) is True else part.args.get("false")
                return None if taken is None else self.of(taken)
            case exp.Case():
                if part.this is None:
                    branch = next((each for each in part.args["ifs"] if self.of(each.this) is True), None)
                    taken = part.args.get("default") if branch is None else branch.args["true"]
                    return None if taken is None else self.of(taken)
        shown = "nothing" if part is None else part.sql(dialect="spark")
        raise DefinitionError(
            f"the harness does not evaluate {shown!r} in {self._site.of(self._text)}",
            fix="test this operator with a run of the job, or compute that as a column before, and give the rows that column",
            uid=self._site.uid,
            place=self._site.place,
        )

    def _column(self, parts: list[str]) -> Any:  # noqa: ANN401
        name, *fields = parts
        if name.lower() not in self._row:
            raise DefinitionError(
                f"{self._site.of(self._text)} reads {name!r}, and the row has the columns {', '.join(self._row) or 'none'}",
                fix="give the rows that column",
                uid=self._site.uid,
                place=self._site.place,
            )
        value: Any = self._row[name.lower()]
        for each in fields:
            value = None if value is None else {key.lower(): item for key, item in value.items()}[each.lower()]
        return value


def _rank(value: Any) -> tuple[bool, Any]:  # noqa: ANN401
    """Return a key that orders values as Spark does: NaN is the greatest number."""
    return (True, 0) if isinstance(value, float) and isnan(value) else (False, value)
