"""What the launchpad's forms offer is what the commands do: a new option without a field fails here, and a field without an option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import click
import dagster as dg
import pytest

from tests.command_tree import subcommands
from tidemark.cli.program.main import main
from tidemark.operations import build_operations, control_jobs, savepoint_jobs

pytestmark = pytest.mark.dagster

NOWHERE = {
    "store": "the code location knows it",
    "as_json": "the run's output has metadata",
    "by": "the Dagster run says who launched it",
}
"""Options of commands that make no sense in a form, and why."""

OF_THE_SPEC = "how the job is wanted, which `start` with `resubmit` takes from the code location"


@dataclass(frozen=True)
class Pair:
    """An operation and the command that does the same.

    ``fields``: the field of an option (by its parameter's name) where they are called otherwise. ``left_out``: options that make no sense
    in the form, and why. ``own``: fields that no option stands for, and why. ``otherwise``: fields whose default is another one, and why.
    """

    command: str
    fields: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    otherwise: Mapping[str, str] = field(default_factory=dict)


REASON = {"why": "every form has it, for the run's own record"}
NEWEST = "the newest savepoint is a sensible one where tables of its own, or none, are written"
CHANGES_NOTHING = "launched as it is it changes nothing, and says what is missing"
_STEERED = {"wait": "these only ask; in Dagster somebody may want to wait", "timeout": "goes with `wait`"}

PAIRS: Mapping[str, Pair] = {
    "status": Pair("status"),
    "start": Pair("start", own={"resubmit": "the code location has a spec, which the command does not know"}),
    "stop": Pair("stop", {"drain": "how"}),
    "cancel": Pair("cancel"),
    "restart": Pair("restart"),
    "suspend": Pair("suspend", own={"how": "as of `stop`", **_STEERED}),
    "resume": Pair("resume", own={"resubmit": "as of `start`", **_STEERED}),
    "savepoint": Pair("savepoint trigger", {"note": "why"}, own={"kind": "the schedule's are periodic, which retention lets go"}),
    "dispose_savepoints": Pair("savepoint dispose", left_out={"retire": "said by giving no names"}, own=REASON),
    "export_savepoint": Pair(
        "savepoint export", {"name": "savepoint"}, own=REASON, otherwise={"savepoint": NEWEST, "to": "in the job store"}
    ),
    "rewind": Pair(
        "rewind",
        {"name": "savepoint", "stop_first": "stop"},
        otherwise={"dry_run": CHANGES_NOTHING, "stop": "a job of Dagster's runs, as a rule"},
    ),
    "restore": Pair(
        "run",
        {"restore_of": "savepoint_of", "allow": "allow_non_restored_state", "claim": "mode"},
        left_out={
            "trigger": OF_THE_SPEC,
            "master": OF_THE_SPEC,
            "conf": OF_THE_SPEC,
            "missing_epochs": "`start` has it, for a restore that was refused, too",
            "end_of_input": "that is `stop` with `how: drain`",
            "takeover": "reconcilers see to that",
            "max_epochs": "the job runs on",
        },
        own={**REASON, "wait": "the job is a submitted one", "timeout": "goes with `wait`"},
    ),
    "fork": Pair(
        "fork",
        {"allow": "allow_non_restored_state", "suspended": "start"},
        otherwise={"savepoint": NEWEST, "name": "JOB-what-if", "start": "the option says the opposite"},
    ),
    "diff": Pair(
        "diff", own=REASON, otherwise={"other": "JOB-what-if", "output": "every one that both have", "samples": "the same, of each output"}
    ),
    "discard": Pair("discard", {"job": "fork"}, own={"job": "every form has it", **REASON}, otherwise={"fork": CHANGES_NOTHING}),
    "promote": Pair("promote", {"within": "checks_within"}, own={"job": "every form has it"}, otherwise={"fork": "JOB-what-if"}),
    "rescale": Pair("rescale", otherwise={"parallelism": "back to the job's own"}),
    "upgrade": Pair(
        "upgrade",
        {"back_to": "savepoint", "allow": "allow_non_restored_state", "within": "checks_within", "abort": "end", "accept": "end"},
    ),
}

WITHOUT_COMMAND = {"maintenance": "drivers do it by themselves, and `tidemark savepoint dispose --retire` does a part of it"}

WITHOUT_FORM = {
    "graph": "Dagster's pages show it, in the metadata of the assets",
    "check": "the asset check `state_fits`",
    "state show": "answers with rows, on a terminal or in a notebook",
    "submit": "`start` submits what the code location's spec says",
    **dict.fromkeys(("connectors install", "connectors list"), "of the machine that sessions start on, not of a job"),
    "wait": "the check `InputsVisible`, and the sensor of `build_input_sensor`",
    "list": "observations, and the health sensor",
    "history": "observations",
    "logs": "the metadata of `start` has the log's place",
    "top": "observations",
    "new": "of a folder, before there is a job",
    "supervise": "the reconcile sensor",
    "autoscale": "settings of the spec; the reconcile sensor runs the autoscaler and says what it decided",
    "profile": "runs on the driver's machine, as its user",
    **dict.fromkeys(("ui", "token"), "Dagster has pages and users of its own, and links to those of `tidemark ui`"),
    **dict.fromkeys(("silence add", "silence list", "silence end"), "of those who are told, not of the job"),
    "class-archive": "of the machine that drivers start on, not of a job",
    **dict.fromkeys(
        ("savepoint rewind", "savepoint fork", "savepoint discard", "savepoint promote"), "the same commands as without `savepoint`"
    ),
    "savepoint list": "observations",
    "savepoint show": "observations",
    "savepoint diff": "observations, side by side",
    "savepoint import": "what is imported may be for a job that this code location does not have",
}


def parameters(path: str) -> dict[str, click.Parameter]:
    """Return the arguments and options of a command, by the names of its parameters."""
    command: click.Command = main
    for word in path.split():
        command = subcommands(command)[word]
    # Hidden options are former names.
    return {str(each.name): each for each in command.params if not getattr(each, "hidden", False)}


def leaves(command: click.Command, path: str = "") -> list[str]:
    """Return all commands that do something."""
    if isinstance(command, click.Group):
        return [found for name, each in subcommands(command).items() for found in leaves(each, f"{path} {name}".strip())]
    return [path]


@pytest.fixture(scope="module")
def forms() -> dict[str, dict[str, dg.Field]]:
    """Return the fields of every operation's form, as the launchpad has them."""
    return {"status": {"job": dg.Field(str, description="of all operations"), **choices()["status"]}, **single_forms()}


def fields_of(schema: dg.Field | None) -> dict[str, dg.Field]:
    assert schema is not None
    return dict(getattr(schema.config_type, "fields"))  # noqa: B009 - of some types only


def choices() -> dict[str, dict[str, dg.Field]]:
    """Return the fields of every operation as ``tidemark_operate`` offers them."""
    (job,) = (job for job in build_operations(store="jobs").resolve_all_job_defs() if job.name == "tidemark_operate")
    (node,) = job.graph.node_defs
    assert node.config_schema is not None
    return {verb: fields_of(field) for verb, field in fields_of(fields_of(node.config_schema.as_field())["do"]).items()}


def single_forms() -> dict[str, dict[str, dg.Field]]:
    defs = dg.Definitions.merge(control_jobs(store="jobs"), savepoint_jobs(store="jobs"))
    found = {}
    for job in defs.resolve_all_job_defs():
        if job.name.startswith("tidemark_"):
            (node,) = job.graph.node_defs
            assert node.config_schema is not None
            found[job.name.removeprefix("tidemark_")] = fields_of(node.config_schema.as_field())
    return found


def test_every_operation_and_every_command_is_looked_at(forms: Mapping[str, object]) -> None:
    assert set(forms) == {*PAIRS, *WITHOUT_COMMAND}
    assert set(leaves(main)) == {*(pair.command for pair in PAIRS.values()), *WITHOUT_FORM}
    assert not set(WITHOUT_FORM) & {pair.command for pair in PAIRS.values()}


def test_one_dagster_job_offers_what_the_single_ones_do(forms: Mapping[str, Mapping[str, dg.Field]]) -> None:
    def shown(fields: Mapping[str, dg.Field]) -> dict[str, tuple[object, ...]]:
        known = {name: field for name, field in fields.items() if name != "job"}
        return {
            name: (field.description, field.is_required, field.default_provided and field.default_value) for name, field in known.items()
        }

    assert {verb: shown(fields) for verb, fields in choices().items()} == {verb: shown(fields) for verb, fields in forms.items()}


@pytest.mark.parametrize("verb", PAIRS)
def test_every_option_has_a_field_and_every_field_an_option(forms: Mapping[str, Mapping[str, dg.Field]], verb: str) -> None:
    pair, fields, options = PAIRS[verb], forms[verb], parameters(PAIRS[verb].command)
    assert differing(pair, fields, options) == ({}, set())
    assert (set(pair.fields) | set(pair.left_out)) - set(options) == set(), "options that are gone"
    assert (set(pair.own) | set(pair.otherwise)) - set(fields) == set(), "fields that are gone"
    assert set(pair.own) & set(meant(pair, options).values()) == set(), "fields that have an option"
    assert all(found.description for found in fields.values()), "fields that do not say what they are for"


def test_what_only_one_of_them_has_is_found(forms: Mapping[str, Mapping[str, dg.Field]]) -> None:
    options = parameters("upgrade")
    more = {**options, "speed": options["version"]}
    assert differing(PAIRS["upgrade"], forms["upgrade"], more) == ({"speed": "speed"}, set())
    fewer = {name: each for name, each in options.items() if name != "back_to"}
    assert differing(PAIRS["upgrade"], forms["upgrade"], fewer) == ({}, {"savepoint"})


def differing(pair: Pair, fields: Mapping[str, object], options: Mapping[str, object]) -> tuple[dict[str, str], set[str]]:
    """Return options without a field, and fields without an option."""
    wanted = meant(pair, options)
    without = {name: place for name, place in wanted.items() if place not in fields}
    return without, set(fields) - set(wanted.values()) - set(pair.own)


def meant(pair: Pair, options: Mapping[str, object]) -> dict[str, str]:
    """Return the fields that options should have."""
    return {name: pair.fields.get(name, name) for name in options if name not in NOWHERE and name not in pair.left_out}


@pytest.mark.parametrize("verb", PAIRS)
def test_what_is_not_given_means_the_same(forms: Mapping[str, Mapping[str, dg.Field]], verb: str) -> None:
    pair, fields = PAIRS[verb], forms[verb]
    options = parameters(pair.command)
    for name, place in meant(pair, options).items():
        option = options[name]
        if place not in pair.otherwise and isinstance(option, click.Option):
            given = fields[place].default_value if fields[place].default_provided else None
            assert plain(given) == plain(option.default), f"{option.opts[0]} and {place}"


def plain(value: object) -> object:
    """Return a default with all that means nothing as one: not given, empty, off."""
    nothing = value is None or value is False or value in ("", (), [], {}) or "UNSET" in repr(value)
    return None if nothing or value in _FIRST else value


_FIRST = ("finish", "no-claim", "refuse")
"""What choices are where the option that says otherwise is not given."""
