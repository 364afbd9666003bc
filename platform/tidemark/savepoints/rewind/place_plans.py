"""What a rewind would do to the places of connectors: those that outputs have now, and those that they had since the savepoint."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidemark.errors import SinkError
from tidemark.savepoints.model.place_plan import PlacePlan
from tidemark.savepoints.model.rewind_journal import FORMER, RewoundPlace, output_of
from tidemark.savepoints.rewind.place_rewinds import PLACE_REWINDS
from tidemark.state.gc.pins import LaterLineages
from tidemark.state.log.records import EpochRecord, OutputRecord


@dataclass
class PlacePlans:
    """The places that are rewound, by output; a former one has ``FORMER`` appended to its output's name.

    Args:
        places: that are rewound.
        changed: names of those with rows that are deleted.
        unpublished: names of those that do not hold the newest epoch yet.
        refusals: why the rewind is refused.
        left: places that cannot be rewound, and were outputs only between the savepoint and now, with what that means.
    """

    places: dict[str, RewoundPlace] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    unpublished: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


def plan_places(
    stored: EpochRecord, head: EpochRecord, later: LaterLineages, between: Iterable[EpochRecord], *, taken: Collection[str]
) -> PlacePlans:
    """Return what a rewind would do to the places of connectors.

    Args:
        stored: the savepoint's epoch.
        head: the job's newest epoch.
        later: lineages that came after the savepoint's epoch.
        between: epochs that came after the savepoint's, as far as they are known.
        taken: names of outputs and former tables that are no places of connectors.

    Raises:
        SinkError: a place that an output has now, or had at the savepoint, cannot be read.
    """
    plans = PlacePlans()
    now = _places({**stored.outputs, **head.outputs})
    required = {**now, **_former(_places(stored.outputs), now, taken)}
    for name, place in sorted(required.items()):
        plan = PLACE_REWINDS[place.sink].plan(output_of(name), place.location, stored, head, later)
        plans.places[name] = replace(place, to=plan.to)
        plans.refusals += plan.refusals
        plans.changed += [name] if plan.changed else []
        plans.unpublished += [name] if plan.unpublished else []
    known = dict(required)
    for record in between:
        for name, place in _former(_places(record.outputs), known, taken).items():
            known[name] = place
            # A place that was an output's only between the savepoint and now blocks nothing.
            try:
                plan = PLACE_REWINDS[place.sink].plan(output_of(name), place.location, stored, head, later)
            except SinkError as error:
                plan = PlacePlan(refusals=(error.what,))
            if plan.refusals:
                plans.left[name] = f"what was written to {place.location} since stays: {'; '.join(plan.refusals)}"
            elif plan.changed:
                plans.places[name] = replace(place, to=plan.to)
                plans.changed.append(name)
    return plans


def place_of(output: str, record: OutputRecord, places: Mapping[str, RewoundPlace]) -> RewoundPlace | None:
    """Return the rewound place of an output that a record was written for, None if there is none."""
    wanted = (output, record.sink, record.location or "")
    return next((place for name, place in places.items() if (output_of(name), place.sink, place.location) == wanted), None)


def _places(outputs: Mapping[str, OutputRecord]) -> dict[str, RewoundPlace]:
    return {
        name: RewoundPlace(output.sink, output.location)
        for name, output in outputs.items()
        if output.sink in PLACE_REWINDS and output.location is not None
    }


def _former(places: Mapping[str, RewoundPlace], known: Mapping[str, RewoundPlace], taken: Collection[str]) -> dict[str, RewoundPlace]:
    """Return the places that are not known yet, by names that nothing has."""
    seen = {(output_of(name), place) for name, place in known.items()}
    found: dict[str, RewoundPlace] = {}
    for name, place in places.items():
        if (name, place) in seen:
            continue
        former = name + FORMER
        while former in known or former in taken:
            former += FORMER
        found[former] = place
    return found
