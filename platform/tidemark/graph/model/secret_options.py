"""Which options of databases and brokers hold secrets: definitions are stored and shown, so such values come from the environment."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from tidemark.errors import DefinitionError

_NAME: Final = re.compile(
    r"""(?ix)
    secret | token | passw | passphrase | credential | authorization
    | (?: access | account | private | api | encryption | signing | shared | master ) [-_.]? key
    | (?: ^ | [^a-z] ) (?: pass | pwd | pw | pat | sas | sig ) \d* $
    """
)
_TEXT: Final = re.compile(r"(?i)(?:passw(?:or)?d|secret|token|identified\s+by)\b")
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*")


def names_secret(name: str) -> bool:
    """Return whether an option's name says that its value is secret.

    >>> names_secret("sasl.password"), names_secret("fetchsize")
    (True, False)
    """
    return _NAME.search(name) is not None


def holds_secret(text: str) -> bool:
    """Return whether an option's value looks as if it holds a secret.

    >>> holds_secret("user=ada password=x"), holds_secret("10000")
    (True, False)
    """
    return _TEXT.search(text) is not None


def is_variable(variable: object) -> bool:
    """Return whether a value is the name of an environment variable, in capital letters.

    >>> is_variable("SHOP_PASSWORD"), is_variable("hunter2")
    (True, False)
    """
    return isinstance(variable, str) and _VARIABLE.fullmatch(variable) is not None


@dataclass(frozen=True)
class OptionChecks:
    """The checks of options that a function passes on to a driver or client.

    Args:
        function: its name, for messages.
        own: options that it has an argument for, and how that is written.
        example: of ``options=``.
        secret: options whose values are secret though their names do not say so, in small letters.
    """

    function: str
    own: Mapping[str, str]
    example: str
    secret: Collection[str] = ()

    def plain(self, options: object, place: str) -> dict[str, str]:
        """Return options as texts; None is none.

        Raises:
            DefinitionError: one has an argument of its own, or looks as if it holds a secret; the message does not repeat its value.
        """
        found = {}
        for name, value in self._mapping("options", options, f"write options={self.example}", place).items():
            self._refuse_own(name, place)
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if names_secret(name) or holds_secret(text) or name.lower() in self.secret:
                raise DefinitionError(
                    f"the option {name!r} of {self.function} looks as if it holds a secret, and it is kept and shown",
                    fix=f"write options_env={{{name!r}: 'NAME'}}, with the name of the environment variable that holds it",
                    place=place,
                )
            found[name] = text
        return found

    def variables(self, named: object, place: str, *, allowed: Collection[str] = ()) -> dict[str, str]:
        """Return the environment variables that hold options; None is none.

        Args:
            named: what the user gave.
            place: file and line of it.
            allowed: options that may be given so although they have an argument.

        Raises:
            DefinitionError: not such names. What is given may be a secret, and the message does not repeat it.
        """
        fix = "give each option the name of an environment variable in capital letters, which holds its value"
        found = {}
        for name, variable in self._mapping("options_env", named, fix, place).items():
            if name.lower() not in allowed:
                self._refuse_own(name, place)
            if not is_variable(variable):
                raise DefinitionError(f"options_env= of {self.function} names no environment variable for {name!r}", fix=fix, place=place)
            found[name] = str(variable)
        return found

    def _mapping(self, argument: str, given: object, fix: str, place: str) -> Mapping[str, object]:
        if given is None:
            return {}
        if not isinstance(given, Mapping) or not all(isinstance(name, str) and name for name in given):
            raise DefinitionError(f"{argument}= of {self.function} is no mapping of options", fix=fix, place=place)
        return given

    def _refuse_own(self, name: str, place: str) -> None:
        instead = self.own.get(name.lower())
        if instead is not None:
            raise DefinitionError(f"{self.function} takes no option {name!r}", fix=f"give it as {instead}", place=place)
