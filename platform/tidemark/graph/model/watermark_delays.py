"""How much later than upstream nodes a node sees the watermark: operators whose results come behind it delay what follows them."""

from __future__ import annotations

from tidemark.graph.model.nodes import Node, StatefulNode, walk


def watermark_delays(node: Node, *, results: bool = False) -> tuple[tuple[Node, int], ...]:
    """Return a node and all nodes upstream of it, consumers before inputs, each with the delay of the watermark behind it, milliseconds.

    The delay of a node is the greatest sum of the result delays of the operators that follow it, up to the given node. Its own comes
    in addition for its results.

    Args:
        node: the node that sees the watermark.
        results: include the result delay of the given node, for the watermark that goes with its results.
    """
    delays: dict[int, int] = {id(node): 0}
    nodes = walk([node])[::-1]
    for each in nodes:
        waits = each.result_delay_ms if isinstance(each, StatefulNode) and (results or each is not node) else 0
        for child in each.inputs:
            delays[id(child)] = max(delays.get(id(child), 0), delays[id(each)] + waits)
    return tuple((each, delays[id(each)]) for each in nodes)
