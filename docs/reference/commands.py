"""Writes the page of all commands, ``commands.md`` beside this file, from the commands themselves.

Run it from the top of the checkout: ``scripts/run python -m docs.reference.commands``.
"""
# ruff: noqa: E501, INP001 - rows of tables are one line each; a script, not a package

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from tidemark.cli.program.documented_command import DocumentedCommand, section_of
from tidemark.cli.program.main import SECTIONS, main

PLACE = Path(__file__).with_suffix(".md")

_PAGES: Mapping[str, str] = {
    "new": "../how-to/new-project.md",
    "run": "../how-to/running.md",
    "graph": "../how-to/running.md#the-passes-of-an-epoch",
    "submit": "../how-to/operations.md#run",
    "supervise": "../how-to/operations.md#supervise",
    "list": "../how-to/operations.md#watch",
    "status": "../how-to/operations.md#watch",
    "top": "../how-to/operations.md#watch",
    "ui": "../how-to/ui-and-api.md",
    "token": "../how-to/ui-and-api.md#tokens",
    "history": "../how-to/operations.md#who-changed-what",
    "logs": "../how-to/operations.md#watch",
    "state": "../how-to/state.md#show-state",
    "wait": "../how-to/operations.md#wait-for-an-input",
    "profile": "../how-to/resources-and-profiles.md#where-the-time-goes-tidemark-profile",
    "silence": "../how-to/alerts.md#silences",
    "rescale": "../how-to/savepoints.md#rescale",
    "autoscale": "../how-to/autoscaler.md",
    "savepoint": "../how-to/savepoints.md",
    "rewind": "../how-to/savepoints.md#rewind",
    "fork": "../how-to/savepoints.md#forks",
    "diff": "../how-to/savepoints.md#forks",
    "discard": "../how-to/savepoints.md#forks",
    "check": "../how-to/compatibility.md#check-a-change",
    "upgrade": "../how-to/upgrade.md",
    "promote": "../how-to/upgrade.md#promoting-a-fork",
    "connectors": "../how-to/kafka.md#the-connector",
    "class-archive": "../how-to/operations.md#start-faster",
}
"""The page on a command; of those that are not here it is the table of commands in Operations."""

_TABLE = "../how-to/operations.md#run"
_HEAD = """# Commands

Every command of `tidemark`, with all its options and their defaults. This page is written by
`scripts/run python -m docs.reference.commands`, from the texts that `tidemark COMMAND --help` prints.

"""
_TAIL = """## Environment variables

| variable | read by | meaning | default |
|---|---|---|---|
| `TIDEMARK_STORE` | all commands, `tm.run`, drivers | root of the job store, where neither the call nor the job names one | `.tidemark/jobs` |
| `TIDEMARK_LOGS` | all that start drivers or Spark | folder of logs: of drivers, and in `spark/` of Spark | `$XDG_STATE_HOME/tidemark/logs`, else `~/.local/state/tidemark/logs` |
| `TIDEMARK_LOG_FORMAT` | drivers | `json` writes a JSON object per line | text |
| `TIDEMARK_METRICS` | drivers | address of [metrics](metrics.md), such as `9464` | none are served |
| `TIDEMARK_UI_TOKENS` | `ui`, `supervise --ui` | text of the [file of tokens](../how-to/ui-and-api.md#tokens) | none: read-only |
| `TIDEMARK_CONNECTORS` | `connectors`, sessions | folder of the jars of connectors | `$XDG_DATA_HOME/tidemark/connectors`, else `~/.local/share/tidemark/connectors` |
| `TIDEMARK_MAVEN_REPOSITORY` | `connectors install` | mirror of Maven Central | Maven Central |
| `TIDEMARK_CRASH_AT` | the process that runs a job | kills it at a [crash point](faults.md#why-a-crash-changes-nothing), for tests only | none |
| `JAVA_HOME` | sessions | Java 17 or later | Java on `PATH`, else that of the extra `jre` |

Those of object stores are in [stores](../how-to/stores.md#credentials-and-settings). Exit codes are in [operations](../how-to/operations.md#exit-codes).
"""


def page() -> str:
    """Return the page."""
    return _HEAD + _overview() + _shared_options() + "".join(_parts()) + _TAIL


def _overview() -> str:
    lines = []
    for title, section in SECTIONS.items():
        lines += ["", f"**{title}**", "", "| command | what it does | page |", "|---|---|---|"]
        for name, entry in section.items():
            place = _PAGES.get(name, _TABLE)
            lines.append(f"| [`{name}`](#{_anchor(name)}) | {entry.text} | [{_title(place)}]({place}) |")
    return "\n".join(lines[1:]) + "\n\n"


def _title(place: str) -> str:
    """Return the title of a page that is named by its place beside this one."""
    text = (PLACE.parent / place.partition("#")[0]).resolve().read_text(encoding="utf-8")
    return text.splitlines()[0].removeprefix("# ")


def _anchor(name: str) -> str:
    group = main.get_command(click.Context(main), name)
    first = next(iter(group.list_commands(click.Context(group)))) if isinstance(group, click.Group) else ""
    return f"tidemark-{name}-{first}".rstrip("-")


def _parts() -> Iterator[str]:
    """Yield a part for each command, those of a group one after the other, in the order of the overview."""
    top = click.Context(main, info_name="tidemark")
    for title, section in SECTIONS.items():
        yield f"## {title}\n\n"
        for name in section:
            yield from _commands(main.get_command(top, name), name, top)


def _commands(command: click.Command | None, name: str, parent: click.Context) -> Iterator[str]:
    if isinstance(command, click.Group):
        context = click.Context(command, parent=parent, info_name=name)
        for word in command.list_commands(context):
            found = command.get_command(context, word)
            # `savepoint rewind` and the like are other spellings of the same commands.
            if found is not main.get_command(parent, word):
                yield from _commands(found, word, context)
    elif isinstance(command, DocumentedCommand):
        yield _part(command, click.Context(command, parent=parent, info_name=name))


def _part(command: DocumentedCommand, context: click.Context) -> str:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    rows = [_row(option, context) for option in _options(command) if not _is_shared(option)]
    shared = [f"`{max(option.opts, key=len)}`" for option in _options(command) if _is_shared(option)]
    lines = [f"### {context.command_path}", "", " ".join((command.help or "").split()), "", "```text", usage, "```", ""]
    if rows:
        lines += ["| option | meaning |", "|---|---|", *rows, ""]
    if shared:
        lines += [f"[Shared options](#shared-options): {', '.join(shared)}.", ""]
    return "\n".join([*lines, "```console", *(f"$ {example}" for example in command.examples), "```", "", ""])


def _options(command: click.Command) -> Sequence[click.Option]:
    return [option for option in command.params if isinstance(option, click.Option) and not option.hidden]


def _is_shared(option: click.Option) -> bool:
    return section_of(option) == "Common" and option.name != "timeout"


def _row(option: click.Option, context: click.Context) -> str:
    names, text = option.get_help_record(context) or ("", "")
    return f"| `{_escaped(names)}` | {_escaped(_with_defaults(text))} |"


def _with_defaults(text: str) -> str:
    """Return a text with what click adds in brackets, such as defaults and bounds, in parentheses."""
    words, *added = text.split("  [")
    return " ".join([words, *(f"({part.strip().removesuffix(']')})" for part in added)]).strip()


def _escaped(text: str) -> str:
    """Return a text for a cell of a table."""
    return text.replace("|", "\\|")


def _shared_options() -> str:
    found: dict[str, str] = {}
    for name in ("submit", "stop"):
        command = main.get_command(click.Context(main), name)
        if command is not None:
            context = click.Context(command)
            found |= {option.opts[0]: _row(option, context) for option in _options(command) if _is_shared(option)}
    lines = [
        "## Shared options",
        "",
        "| option | meaning |",
        "|---|---|",
        *found.values(),
        "| `-h, --help` | The options of a command. |",
        "",
    ]
    return "\n".join([*lines, f"A duration is text with a unit: `10 seconds`, `5 minutes`. {_KINDS}", "", ""])


_KINDS = "`JOB` is the name of a job in the store; `MODULE:JOB` is its code, importable from the working folder, or a file of YAML."


if __name__ == "__main__":
    PLACE.write_text(page(), encoding="utf-8")
