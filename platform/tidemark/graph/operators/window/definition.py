"""The definition of a window operator as plain JSON: recorded with the state, and compared before the state is read again."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.graph.expressions.function_fingerprint import function_text, text_hash
from tidemark.graph.expressions.policy_definition import policy_definition, settings_of, source_hash
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.operators.keys import encode_keys
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.triggers.builtin_triggers import default_trigger
from tidemark.semantics.windows.local_windows import LocalWindows
from tidemark.semantics.windows.windows import WindowAssigner

DEFINITION_FORMAT = 1


def operator_definition(node: WindowNode) -> dict[str, object]:
    """Return a window operator's definition as plain JSON.

    ``keys``: name and expression, or a hash of the function's text. ``assigner``: kind and fields, and a hash of its text if it is the
    user's own. ``aggregates``, in order: name, kind, arguments, partial columns with their create and merge templates, result.
    ``allowed_lateness_ms``. ``trigger`` and ``evictor``, where there are other than the windows' own: kind and settings. ``function``: a
    hash of its text, and what it returns.
    Functions written in Python are named ``function_1``, … in templates, and hashed, so that equal declarations are equal here.
    """
    return {
        "format": DEFINITION_FORMAT,
        "kind": "window",
        "keys": encode_keys(node.keys),
        "assigner": assigner_definition(node.assigner),
        "aggregates": [aggregate_definition(name, aggregate) for name, aggregate in node.aggregates],
        "allowed_lateness_ms": node.allowed_lateness_ms,
        **_firing(node),
    }


def _firing(node: WindowNode) -> dict[str, object]:
    """Return trigger, evictor and function if they are not the default: earlier releases, which had no others, recorded none."""
    found: dict[str, object] = {}
    if node.trigger is not None and node.trigger != default_trigger(node.assigner):
        found["trigger"] = policy_definition(node.trigger)
    if node.evictor is not None:
        found["evictor"] = policy_definition(node.evictor)
    if node.function is not None:
        text = function_text(node.function.function)
        found["function"] = {"hash": text_hash(text), "returns": node.function.returns, "batches": node.function.batches}
    return found


def aggregate_definition(name: str, aggregate: Aggregate) -> dict[str, object]:
    """Return an aggregate's definition as plain JSON; part of ``operator_definition``."""
    renamed = {function.name: f"function_{number}" for number, function in enumerate(aggregate.functions, start=1)}
    functions = [{"returns": each.returns, "hash": text_hash(function_text(each.function))} for each in aggregate.functions]
    partials = [
        {"name": part.name, "create": _renamed(part.create, renamed), "merge": _renamed(part.merge, renamed)} for part in aggregate.partials
    ]
    return {
        "name": name,
        "kind": aggregate.kind,
        "arguments": list(aggregate.arguments),
        "partials": partials,
        "result": _renamed(aggregate.result, renamed),
        **({"functions": functions} if functions else {}),
    }


def assigner_definition(assigner: WindowAssigner) -> dict[str, object]:
    """Return an assigner as plain JSON: its kind and settings."""
    if isinstance(assigner, LocalWindows):
        zone = {"zone": assigner.zone} if assigner.zone is not None else {"zone_by": assigner.zone_by}
        return {"kind": "LocalWindows", "windows": assigner_definition(assigner.windows), **zone}
    settings = settings_of(assigner) or {"description": assigner.describe()}
    # Event time is the default and is not recorded, as in releases that had no other.
    return {
        "kind": type(assigner).__name__,
        **source_hash(type(assigner)),
        **{name: value for name, value in settings.items() if (name, value) != ("domain", "event")},
    }


def _renamed(template: str, names: Mapping[str, str]) -> str:
    # Longest first: one generated name may begin with another.
    for name in sorted(names, key=len, reverse=True):
        template = template.replace(name, names[name])
    return template
