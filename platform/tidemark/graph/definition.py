"""What a window operator's state means, as plain JSON: recorded with the state, and compared before it is read again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from tidemark.graph.aggregates import Aggregate
from tidemark.graph.function_text import function_text, text_hash
from tidemark.graph.nodes import Expression, WindowNode
from tidemark.graph.rule_definition import rule_definition, settings_of
from tidemark.semantics.builtin_triggers import default_trigger
from tidemark.semantics.windows import WindowAssigner

DEFINITION_FORMAT = 1


def operator_definition(node: WindowNode) -> dict[str, object]:
    """Return a window operator's definition as plain JSON.

    ``keys``: name and expression, or a hash of the function's text. ``assigner``: kind and fields. ``aggregates``, in order: name,
    kind, arguments, partial columns with their create and merge templates, result. ``allowed_lateness_ms``. ``trigger`` and ``evictor``,
    where there are other than the windows' own: kind and settings. ``function``: a hash of its text, and what it returns.
    Functions written in Python are named ``function_1``, … in templates, and hashed, so that equal declarations are equal here.
    """
    return {
        "format": DEFINITION_FORMAT,
        "kind": "window",
        "keys": [{"name": name, "expression": _expression(expression)} for name, expression in node.keys],
        "assigner": _assigner(node.assigner),
        "aggregates": [aggregate_definition(name, aggregate) for name, aggregate in node.aggregates],
        "allowed_lateness_ms": node.allowed_lateness_ms,
        **_firing(node),
    }


def _firing(node: WindowNode) -> dict[str, object]:
    """Return trigger, evictor and function where they are not what goes without saying: before they could be given, none were recorded."""
    found: dict[str, object] = {}
    if node.trigger is not None and node.trigger != default_trigger(node.assigner):
        found["trigger"] = rule_definition(node.trigger)
    if node.evictor is not None:
        found["evictor"] = rule_definition(node.evictor)
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


def compatible(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Return in words why stored state of one definition does not fit another; empty if it fits.

    The allowed lateness, the order of aggregates, and how a result is computed from the state (also by a function) may change freely;
    so may a trigger's settings, but not its kind, since each keeps other things of a window, and a whole evictor, which keeps nothing.

    >>> old = {"kind": "window", "keys": [{"name": "zone", "expression": "zone"}], "assigner": {"kind": "Tumbling"}, "aggregates": []}
    >>> compatible(old, {**old, "keys": []})
    ["the key 'zone' is gone"]
    """
    if old.get("kind") != new.get("kind"):
        return [f"it was a {old.get('kind')} operator and is now a {new.get('kind')} operator"]
    findings = _key_findings(_items(old, "keys"), _items(new, "keys"))
    if old.get("assigner") != new.get("assigner"):
        findings.append(f"the windows were {json.dumps(old.get('assigner'))} and are now {json.dumps(new.get('assigner'))}")
    if _kinds(old.get("trigger")) != _kinds(new.get("trigger")):
        findings.append(f"the trigger was {_shown(old.get('trigger'))} and is now {_shown(new.get('trigger'))}")
    before, after = (bool(definition.get("aggregates")) or "function" not in definition for definition in (old, new))
    if before != after:
        kept = {True: "aggregates", False: "all elements of a window"}
        return [*findings, f"it kept {kept[before]} and is now to keep {kept[after]}, which the stored windows do not have"]
    return findings + _aggregate_findings(_items(old, "aggregates"), _items(new, "aggregates"))


def _kinds(rule: object) -> object:
    """Return the kinds of a trigger and of those in it, without their settings."""
    if not isinstance(rule, Mapping):
        return None
    inner = {name: _kinds(value) for name, value in rule.items() if isinstance(value, Mapping) and "kind" in value}
    return {"kind": rule.get("kind"), **inner}


def _shown(trigger: object) -> str:
    return "the windows' own" if trigger is None else json.dumps(trigger)


def _key_findings(old: dict[str, Mapping[str, object]], new: dict[str, Mapping[str, object]]) -> list[str]:
    findings = [f"the key {name!r} is gone" for name in old if name not in new]
    findings += [f"the key {name!r} is new" for name in new if name not in old]
    for name in old.keys() & new.keys():
        before, after = old[name].get("expression"), new[name].get("expression")
        if before != after:
            findings.append(f"the key {name!r} was {before} and is now {after}")
    return findings


def _aggregate_findings(old: dict[str, Mapping[str, object]], new: dict[str, Mapping[str, object]]) -> list[str]:
    findings = [f"the aggregate {name!r} is gone" for name in old if name not in new]
    findings += [f"the aggregate {name!r} is new, and the stored windows have no state of it" for name in new if name not in old]
    for name in (each for each in old if each in new):
        before, after = old[name], new[name]
        if before.get("kind") != after.get("kind") or before.get("arguments") != after.get("arguments"):
            findings.append(f"the aggregate {name!r} was {_call(before)} and is now {_call(after)}")
        elif before.get("partials") != after.get("partials") or before.get("functions") != after.get("functions"):
            findings.append(f"the state of aggregate {name!r}, {_call(after)}, is made in another way than before")
    return findings


def _items(definition: Mapping[str, object], kind: str) -> dict[str, Mapping[str, object]]:
    entries = cast("list[Mapping[str, object]]", definition.get(kind, []))
    return {str(entry["name"]): entry for entry in entries}


def _call(aggregate: Mapping[str, object]) -> str:
    arguments = cast("list[str]", aggregate.get("arguments", []))
    return f"{aggregate.get('kind')}({', '.join(arguments)})"


def _expression(expression: Expression) -> str:
    return expression if isinstance(expression, str) else f"function {text_hash(function_text(expression))}"


def _assigner(assigner: WindowAssigner) -> dict[str, object]:
    settings = settings_of(assigner) or {"description": assigner.describe()}
    # Event time goes without saying, as it did before there was another.
    return {"kind": type(assigner).__name__, **{name: value for name, value in settings.items() if (name, value) != ("domain", "event")}}


def _renamed(template: str, names: Mapping[str, str]) -> str:
    # Longest first: one generated name may begin with another.
    for name in sorted(names, key=len, reverse=True):
        template = template.replace(name, names[name])
    return template
