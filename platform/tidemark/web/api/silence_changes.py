"""Routes that begin and end silences of alerts; a silence has its author, and is no part of a job's history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from tidemark.control.alerts.engine.alert_silences import Silence, add_silence, end_silence, read_silences
from tidemark.control.alerts.model.alert_settings import RuleName
from tidemark.durations import to_ms
from tidemark.errors import UnknownAddressError
from tidemark.web.api.routes import ApiRoute, Call, NoForm, route
from tidemark.web.api.schemas import Value
from tidemark.web.api.waits import Duration, Name, WhyForm


@dataclass(frozen=True, kw_only=True)
class SilenceForm(WhyForm):
    """A silence: whose alerts are not sent, and how long."""

    name: Name
    lasts: Duration
    jobs: Annotated[str, Value("Names of jobs, with * and ?; they begin with the prefix of the token.", longest=100, example="team-a-*")]
    rule: Annotated[RuleName | None, Value("One rule only; null is all rules.")] = None


def begin_silence(call: Call, form: SilenceForm) -> Silence:
    """Silence alerts for a time."""
    call.caller.require("operator", form.jobs)
    now = call.service.clock.now_ms()
    until = now + to_ms(form.lasts, what="lasts")
    made = Silence(form.name, until=until, jobs=form.jobs, rule=form.rule, at=now, by=call.caller.author, why=form.why)
    add_silence(call.service.store, made)
    return made


def end_silence_early(call: Call, form: NoForm) -> Silence:
    """End a silence early."""
    del form
    store, name = call.service.store, call.path["silence"]
    found = next((silence for silence in read_silences(store, call.service.clock.now_ms()) if silence.name == name), None)
    if found is None or not call.caller.covers(found.jobs) or not end_silence(store, name):
        raise UnknownAddressError(f"there is no silence {name!r}", fix="GET /api/v1/silences lists the silences")
    return found


SILENCE_CHANGES: Final[tuple[ApiRoute, ...]] = (
    route("POST", "/silences", begin_silence, SilenceForm, role="operator", answer=Silence, status=201, group="alerts"),
    route("DELETE", "/silences/{silence}", end_silence_early, NoForm, role="operator", answer=Silence, group="alerts"),
)
