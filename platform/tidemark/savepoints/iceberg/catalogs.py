"""Catalogs of Iceberg, as PyIceberg's configuration has them; nothing of that gets into any text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from tidemark.errors import SetupError, SinkError, TidemarkError
from tidemark.graph.connectors.iceberg.node import IcebergTable
from tidemark.state.encoding.redaction import HIDDEN, redacted

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_SECRET: Final = re.compile(r"secret|token|passw|credential|key|signature|sas|auth|header", re.IGNORECASE)
_LOST: Final = frozenset({
    "OperationalError", "ServerError", "ServiceUnavailableError", "TooManyRequestsError", "CommitStateUnknownException",
})  # fmt: skip
"""Errors, by their class, after which trying again can help; so can it after those of the operating system and the network."""


class IcebergError(Exception):
    """A catalog or the files of a table cannot be read or written now; the text has no secret.

    Args:
        what: the message of the library.
        lost: whether trying again can help.
        conflict: whether another writer has committed to the table first; nothing was committed.
        unknown: whether it is not known what became of a commit.
    """

    def __init__(self, what: str, *, lost: bool = False, conflict: bool = False, unknown: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.lost = lost
        self.conflict = conflict
        self.unknown = unknown


@contextmanager
def catalog_of(table: IcebergTable) -> Iterator[Catalog]:
    """Open the catalog of a table, and run the block: errors of the libraries become ``IcebergError``.

    Raises:
        SetupError: pyiceberg is not installed.
        SinkError: there is no catalog of that name in PyIceberg's configuration.
        IcebergError: the catalog cannot be used.
    """
    try:
        from pyiceberg.utils.config import Config
    except ImportError as error:
        raise SetupError(
            f"the table {table.name} is one of Iceberg, and pyiceberg is not installed",
            fix="run pip install -e '.[iceberg]' in the checkout",
        ) from error
    # Not the library's own, which it reads once: a long-lived process would not see a changed token.
    settings = Config().get_catalog_config(table.catalog)
    if not settings:
        raise SinkError(
            f"PyIceberg's configuration has no catalog {table.catalog!r}",
            fix=f"set {_variable(table.catalog)}__TYPE, {_variable(table.catalog)}__URI and so on where this process runs, or write them "
            "to .pyiceberg.yaml in the home folder",
            place=table.location,
        )
    given = _flat(settings)
    try:
        yield _opened(table.catalog, json.dumps(settings, sort_keys=True))
    except (TidemarkError, IcebergError):
        raise
    except Exception as error:  # noqa: BLE001 - a catalog's client raises what it likes: SQLAlchemy's, boto3's, those of requests
        # Neither the error nor its text is kept: both may repeat what they were given.
        raise _translated(error, given) from None


@lru_cache(maxsize=8)
def _opened(name: str, settings: str) -> Catalog:
    """Return a catalog by its settings as JSON; it keeps its connections and its token."""
    from pyiceberg.catalog import load_catalog

    return load_catalog(name, **json.loads(settings))


def _flat(settings: Mapping[str, object], within: str = "") -> dict[str, str]:
    """Return settings by their full names; those of ``auth`` are nested in ``.pyiceberg.yaml``."""
    found: dict[str, str] = {}
    for name, value in settings.items():
        found |= _flat(value, f"{within}{name}.") if isinstance(value, Mapping) else {f"{within}{name}": str(value)}
    return found


def load(catalog: Catalog, table: IcebergTable) -> Table | None:
    """Return a table as it is now, None if there is none."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        return catalog.load_table(table.name)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def _translated(error: Exception, settings: Mapping[str, str]) -> IcebergError:
    kind = type(error).__name__
    lines = str(error).strip().splitlines() or [""]
    text = lines[0]
    for secret in _secrets(settings):
        text = text.replace(secret, HIDDEN)
    lost = isinstance(error, OSError) or kind in _LOST
    return IcebergError(
        f"{kind}: {redacted(text)}".rstrip(": "),
        lost=lost,
        conflict=kind == "CommitFailedException",
        unknown=kind == "CommitStateUnknownException",
    )


def _secrets(settings: Mapping[str, str]) -> list[str]:
    found = {value for name, value in settings.items() if _SECRET.search(name)}
    # A credential of OAuth is "client:secret".
    found |= {part for value in found for part in value.split(":")}
    for value in settings.values():
        try:
            password = urlsplit(value).password
        except ValueError:
            found.add(value)
            continue
        found |= {value, password, unquote(password)} if password else set()
    return sorted((value for value in found if len(value) > 2), key=len, reverse=True)


def _variable(catalog: str) -> str:
    return f"PYICEBERG_CATALOG__{catalog.upper().replace('-', '_')}"
