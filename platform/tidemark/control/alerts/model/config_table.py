"""A table of a TOML file, read strictly: each value by its type, and unknown keys are errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from tidemark.durations import to_ms
from tidemark.errors import DefinitionError


class ConfigTable:
    """One table; ``where`` is its name for errors, empty for the file itself, ``place`` the file."""

    def __init__(self, plain: Mapping[str, object], *, where: str, place: str) -> None:
        self._plain = plain
        self._where = where
        self._known_keys: set[str] = set()
        self.place = place

    def table(self, key: str) -> ConfigTable:
        """Return an inner table; an empty one if there is none."""
        value = self._value(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.error(f"{self._name(key)} is not a table", fix=f"write [{self._name(key)}] and its settings below")
        return ConfigTable(value, where=self._name(key), place=self.place)

    def tables(self, key: str) -> Iterator[tuple[str, ConfigTable]]:
        """Yield the inner tables of a table, by name."""
        inner = self.table(key)
        for name in inner.keys():  # noqa: SIM118 - it is no mapping
            yield name, inner.table(name)

    def keys(self) -> tuple[str, ...]:
        """Return the table's keys."""
        return tuple(self._plain)

    def text(self, key: str, default: str | None = None) -> str | None:
        """Return a text."""
        value = self._value(key)
        if value is None:
            return default
        if not isinstance(value, str) or not value.strip():
            raise self._mismatch(key, value, "a text")
        return value

    def required(self, key: str) -> str:
        """Return a text; raises if it is missing."""
        value = self.text(key)
        if value is None:
            raise self.error(f"{self._label} lacks {key!r}", fix=f"add {key} = ...")
        return value

    def text_list(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return a list of texts, which is not empty."""
        value = self._value(key)
        if value is None:
            return default
        if not isinstance(value, list) or not value or not all(isinstance(item, str) and item.strip() for item in value):
            raise self._mismatch(key, value, "a list of texts")
        return tuple(value)

    def text_map(self, key: str) -> Mapping[str, str]:
        """Return texts by name."""
        inner = self.table(key)
        return {name: inner.required(name) for name in inner.keys()}  # noqa: SIM118 - it is no mapping

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        """Return one of some texts."""
        value = self.text(key, default) or default
        if value not in choices:
            raise self._mismatch(key, value, f"one of {', '.join(choices)}{_hint(value, choices)}")
        return value

    def choices(self, key: str, choices: Sequence[str], default: tuple[str, ...]) -> tuple[str, ...]:
        """Return some of some texts."""
        found = self.text_list(key, default)
        for value in found:
            if value not in choices:
                raise self._mismatch(key, value, f"of {', '.join(choices)}{_hint(value, choices)}")
        return found

    def boolean(self, key: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self._value(key)
        if value is not None and not isinstance(value, bool):
            raise self._mismatch(key, value, "true or false")
        return default if value is None else value

    def number(self, key: str, default: float, *, minimum: float, maximum: float) -> float:
        """Return a number between two others, both allowed."""
        value = self._value(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
            raise self._mismatch(key, value, f"a number from {minimum} to {maximum}")
        return float(value)

    def integer(self, key: str, default: int, *, minimum: int) -> int:
        """Return a whole number."""
        value = self._value(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self._mismatch(key, value, f"a whole number, at least {minimum}")
        return value

    def duration(self, key: str, default: int, *, minimum: int = 0) -> int:
        """Return a duration in milliseconds, written as text."""
        value = self.text(key)
        return default if value is None else to_ms(value, what=self._name(key), minimum=minimum, place=self.place)

    def reject_secret(self, key: str, *, fix: str) -> None:
        """Raise for a key that would contain a secret, with the fix; its value is not shown.

        Raises:
            DefinitionError: the key exists.
        """
        if key in self._plain:
            raise self.error(f"{self._name(key)} would contain a secret, which is not allowed in this file", fix=fix)

    def reject_unknown_keys(self) -> None:
        """Raise for keys that were not read.

        Raises:
            DefinitionError: there is one; the message suggests a similar key.
        """
        for key in self._plain:
            if key not in self._known_keys:
                known = sorted(self._known_keys)
                raise self.error(f"{self._label} has an unknown {key!r}", fix=f"use {', '.join(known)}{_hint(key, known)}")

    def error(self, what: str, *, fix: str) -> DefinitionError:
        """Return an error that names the file."""
        return DefinitionError(what, fix=fix, place=self.place)

    def _value(self, key: str) -> object:
        self._known_keys.add(key)
        return self._plain.get(key)

    def _mismatch(self, key: str, value: object, wanted: str) -> DefinitionError:
        return self.error(f"{self._name(key)} = {value!r} is not {wanted.partition(' (did')[0]}", fix=f"give {wanted}")

    def _name(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    @property
    def _label(self) -> str:
        return f"[{self._where}]" if self._where else "the file"


def _hint(value: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(value, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
