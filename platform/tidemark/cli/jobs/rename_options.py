"""The options that map changed code to stored state, which only the user can know: what was renamed, and which state may be dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import click

from tidemark.cli.program.options import pair, pairs
from tidemark.control.upgrade.code_check import Maps
from tidemark.errors import DefinitionError

F = TypeVar("F", bound=Callable[..., object])


def map_options(*, only_with: str = "") -> Callable[[F], F]:
    """Return a decorator that adds ``--map``, ``--column`` and ``--allow-non-restored-state``, as ``uids``, ``columns`` and ``allow``.

    Args:
        only_with: the option that they require; empty where they always apply.
    """

    def text(sentence: str) -> str:
        return f"With {only_with}: {sentence[0].lower()}{sentence[1:]}" if only_with else sentence

    def add(command: F) -> F:
        for option in (
            click.option("--allow-non-restored-state", "allow", is_flag=True, help=text("Drop state that nothing in the code claims.")),
            click.option(
                "--column",
                "columns",
                multiple=True,
                metavar="UID:OLD=NEW",
                help=text("A key, aggregate or column was renamed; an empty NEW drops it."),
            ),
            click.option("--map", "uids", multiple=True, metavar="OLD=NEW", help=text("An operator's uid was changed; may be repeated.")),
        ):
            command = option(command)
        return command

    return add


def maps_of(uids: Iterable[str], columns: Iterable[str], *, allow: bool) -> Maps:
    """Return the options' values.

    Raises:
        DefinitionError: one cannot be read.
    """
    return Maps(pairs("--map", uids, "OLD=NEW", empty=False), _column_names(columns), allow)


def _column_names(texts: Iterable[str]) -> dict[str, dict[str, str | None]]:
    """Return the new names of ``--column UID:OLD=NEW`` options by uid and old name; None for an empty new name."""
    found: dict[str, dict[str, str | None]] = {}
    for text in texts:
        place, new = pair("--column", text, "UID:OLD=NEW")
        uid, colon, old = place.partition(":")
        if not (uid and colon and old):
            raise DefinitionError(f"--column {text!r} names no operator's column", fix="write --column UID:OLD=NEW")
        found.setdefault(uid, {})[old] = new or None
    return found
