"""The folds of aggregates that the harness knows by their kind, and the arguments that they take of a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from tidemark.errors import DefinitionError
from tidemark.graph.aggregates.aggregates_custom import FoldElements, StateResult, plain
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.model.nodes import StatefulNode
from tidemark.semantics.reference.reference_results import Fold
from tidemark.testing import folds as known
from tidemark.testing.operators.contract import value_of

_FOLDS: Final[Mapping[str, Callable[[], Fold[Any]]]] = MappingProxyType(
    {
        "avg": known.avg,
        "collect_list": known.collect_list,
        "collect_set": known.collect_set,
        "count": known.count,
        "count_distinct": known.count_distinct,
        "max": known.max,
        "max_by": known.max_by,
        "min": known.min,
        "min_by": known.min_by,
        "stddev": known.stddev,
        "stddev_pop": known.stddev_pop,
        "sum": known.sum,
        "variance": known.variance,
        "variance_pop": known.variance_pop,
    }
)


def argument_of(aggregate: Aggregate, row: Mapping[str, object], *, name: str, node: StatefulNode) -> object:
    """Return an aggregate's argument in a row: one value, or several in a tuple; for ``count()`` any that is not null."""
    values = tuple(value_of(_column(text), row, what=f"argument of aggregate {name!r}", node=node) for text in aggregate.arguments)
    return values if len(values) > 1 or aggregate.functions else values[0] if values else True


def _column(text: str) -> str:
    """Return the column of an argument; those of ``reduce`` have a type, too."""
    cast = re.fullmatch(r"CAST\(`(.+)` AS .+\)", text)
    return cast[1].replace("``", "`") if cast else text


def fold_of(name: str, aggregate: Aggregate, node: StatefulNode) -> Fold[Any]:
    """Return the fold of an aggregate.

    Raises:
        DefinitionError: the harness does not know it.
    """
    made = [each.function for each in aggregate.functions]
    elements = next((each for each in made if isinstance(each, FoldElements)), None)
    finish = next((each for each in made if isinstance(each, StateResult)), None)
    if elements is not None and finish is not None:
        return Fold(
            create=elements.create,
            add=lambda state, values, *_: elements.add(state, *map(plain, cast("tuple[object, ...]", values))),
            result=finish,
        )
    if aggregate.kind in _FOLDS:
        return _FOLDS[aggregate.kind]()
    raise DefinitionError(
        f"the harness does not know the aggregate {name!r} ({aggregate.kind}), which is SQL",
        fix=f"give its implementation in Python: OperatorHarness(stream, folds={{{name!r}: tidemark.testing.folds...}})",
        uid=node.uid,
        place=node.place,
    )
