"""The Python functions of aggregates, as a session calls them: their values are checked against the declared types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from tidemark.errors import UserCodeError
from tidemark.graph.aggregates.aggregates_custom import FoldElements, MergeStates
from tidemark.graph.model.aggregates import Aggregate, PythonFunction
from tidemark.graph.model.nodes import Node
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.user_lines import defined_at
from tidemark.spark.columns.user_values import MisfitError, coerce_values

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class TypedFunction:
    """A function of an aggregate that raises where its value does not fit its type.

    Args:
        function: the user's function.
        arrow: type of its value.
        what: the aggregate, and which of the user's functions this is, for the error.
        fix: for the error.
        uid: of the operator.
        place: of the user's function, or of the operator.
    """

    function: Callable[..., object]
    arrow: pa.DataType
    what: str
    fix: str
    uid: str | None
    place: str

    def __call__(self, *values: object) -> object:
        """Return the function's value, converted to its type.

        Raises:
            UserCodeError: the value does not fit.
        """
        returned = self.function(*values)
        try:
            return coerce_values([returned], self.arrow)[0]
        except MisfitError as misfit:
            raise UserCodeError(f"{self.what} returned {misfit}", fix=self.fix, uid=self.uid, place=self.place) from None


def register_functions(spark: SparkSession, operators: Iterable[Node]) -> None:
    """Register the Python functions of aggregates with a session; operators without aggregates have none."""
    for node in operators:
        if not isinstance(node, WindowNode):
            continue
        for column, aggregate in node.aggregates:
            for function in aggregate.functions:
                spark.udf.register(function.name, _typed(function, column, aggregate, node), function.returns)


def _typed(function: PythonFunction, column: str, aggregate: Aggregate, node: WindowNode) -> Callable[..., object]:
    try:
        arrow = to_arrow_type(DataType.fromDDL(function.returns), timezone="UTC")
    except PySparkException:
        # A type that Arrow does not have, such as an interval of months: Spark checks the value.
        return function.function
    match function.function:
        case FoldElements() as fold:
            role, argument, called = "add", "state", fold.add
        case MergeStates() as merging:
            role, argument, called = "merge", "state", merging.merge
        case called:
            role, argument, called = "result", "returns", getattr(called, "result", called)
    if aggregate.kind == "reduce":
        what, fix = "the function given to reduce()", "return values of the types that the columns have"
    else:
        what = f"aggregate {column!r}: {role}"
        fix = f"return a value of the type in {argument}={function.returns!r}, or declare the type of what it returns"
    place = defined_at(called) or node.place
    return TypedFunction(function.function, arrow, what, fix, node.uid, place)
