"""Whether the functions of operators can be sent to workers, found before the first epoch."""

from __future__ import annotations

from pyspark import cloudpickle

from tidemark.errors import UserCodeError
from tidemark.graph.expressions.expression_text import function_name
from tidemark.graph.model.nodes import StatefulNode


def check_sendable(node: StatefulNode) -> None:
    """Refuse a function that holds what cannot leave its process, such as a lock or a connection.

    Raises:
        UserCodeError: it cannot be pickled.
    """
    function = getattr(node, "function", None)
    if function is None:
        return
    try:
        cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    except Exception as error:  # objects raise what they like when they are pickled
        raise UserCodeError(
            f"the function {function_name(function)} cannot be sent to the workers: {error}",
            fix="create what cannot be pickled, such as a lock, a client or an open file, in open(), which each task calls",
            uid=node.uid,
            place=node.place,
        ) from error
