"""The help of every command: options by purpose, and an example that the command itself understands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

import click
import pytest
from click.testing import CliRunner

from tests.command_tree import subcommands
from tests.docs.page_commands import require_understood
from tidemark.cli.program.command_groups import SuggestingGroup
from tidemark.cli.program.documented_command import NAMED_OPTIONS, OPTIONS, DocumentedCommand, section_of
from tidemark.cli.program.main import SECTIONS, main


def commands(command: click.Command = main, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every command but the groups, by how it is typed."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    for word, found in subcommands(command).items():
        yield from commands(found, f"{name} {word}".strip())


COMMANDS: Mapping[str, click.Command] = dict(commands())


def helped(*arguments: str) -> str:
    done = CliRunner().invoke(main, [*arguments, "--help"], terminal_width=100)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def examples_of(command: click.Command) -> tuple[str, ...]:
    assert isinstance(command, DocumentedCommand | SuggestingGroup), "give it examples="
    return command.examples


def test_all_commands_are_found() -> None:
    assert {"run", "new", "top", "savepoint trigger", "savepoint rewind", "silence add", "connectors install", "state show"} <= set(
        COMMANDS
    )


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_an_example_that_it_understands(name: str) -> None:
    examples, shown = examples_of(COMMANDS[name]), helped(*name.split())
    assert examples
    for example in examples:
        program, *words = shlex.split(example)
        typed = SAME.get(name, name).split()
        assert (program, words[: len(typed)]) == ("tidemark", typed)
        require_understood(shlex.join(words))
        assert f"  {example}\n" in shown, "it is shown as it is typed, in one line"


SAME = {f"savepoint {name}": name for name in ("rewind", "fork", "discard", "promote")}
"""Commands that are listed under two names, with the name that their examples have."""


@pytest.mark.parametrize("example", ["status rides --chek", "rescale rides many", "fork fares", "nothing"])
def test_an_example_that_is_wrong_is_found(example: str) -> None:
    with pytest.raises((click.UsageError, KeyError)):
        require_understood(example)


def test_examples_of_groups_are_understood() -> None:
    groups = [found for found in subcommands(main).values() if isinstance(found, click.Group)]
    assert len(groups) == 4
    for group in groups:
        assert examples_of(group)
        for example in examples_of(group):
            require_understood(example.removeprefix("tidemark "))


def test_commands_are_in_groups_by_purpose() -> None:
    groups = {name: title for title, section in SECTIONS.items() for name in section}
    assert (groups["new"], groups["top"], groups["stop"]) == ("Run jobs", "Watch jobs", "Steer jobs")
    assert (groups["upgrade"], groups["connectors"]) == ("Upgrade", "This machine")
    assert len(SECTIONS) == 6


def test_every_option_of_a_long_help_is_in_one_section() -> None:
    text = helped("submit")
    titles = [f"\n{title}:\n" for title in (OPTIONS, "The job's code", "Spark", "After a failure", "Common", "Examples")]
    places = [text.index(title) for title in titles]
    assert places == sorted(places)
    options = [option for option in COMMANDS["submit"].params if isinstance(option, click.Option) and not option.hidden]
    assert len(options) > 25
    for option in options:
        assert text.count(f"\n  {'/'.join(option.opts)}") >= 1 or f"  {option.opts[0]} / " in text, option.opts
    assert text.index("--restart-jitter") > text.index("After a failure:") > text.index("--trigger")


def test_sections_name_options_that_there_are() -> None:
    options = [option for command in COMMANDS.values() for option in command.params if isinstance(option, click.Option)]
    known = {name for option in options for name in option.opts} | {"--help"}
    assert {section_of(option) for option in options} > {OPTIONS, "Common", "Spark", "Stored state"}
    assert known >= NAMED_OPTIONS


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("status", "--chek"), "--check"),
        (("submit", "x:y", "--paralelism", "2"), "--parallelism"),
        (("savepoint", "trigger", "fares", "--nam", "x"), "--name"),
        (("new", "rides", "--tempalte", "taxi"), "--template"),
    ],
)
def test_a_mistyped_option_is_guessed(typed: tuple[str, ...], meant: str) -> None:
    done = CliRunner().invoke(main, typed)
    assert done.exit_code == 2
    assert "Did you mean" in done.stderr
    assert meant in done.stderr
