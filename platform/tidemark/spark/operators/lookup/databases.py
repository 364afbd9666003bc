"""Reads tables of databases by Spark's JDBC source, and says what is wrong where one cannot be read, without any secret."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidemark.errors import DefinitionError, SourceError
from tidemark.graph.operators.lookup.node import DatabaseAccess, LookupNode
from tidemark.spark.columns.error_text import first_line
from tidemark.state.encoding.redaction import HIDDEN, redacted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NO_TABLE: Final = frozenset({"42P01", "42S02", "42X05", "42704", "S0002", "42S2"})
"""States of SQL that say that there is no such table: of PostgreSQL, of the standard, of Derby, Db2, SQL Server."""

_NO_DRIVER: Final = ("No suitable driver", "ClassNotFoundException")
_CAUSES: Final = 12


def database_rows(node: LookupNode, spark: SparkSession) -> DataFrame:
    """Return the rows of an operator's table as it is in its database; connects to it for the columns, and runs nothing.

    Raises:
        SourceError: the driver is missing, the database refuses the connection, or it has no such table.
        DefinitionError: an environment variable that holds a secret is not set.
    """
    access = access_of(node)
    secrets = _secrets(node, access)
    options = {**access.options, "url": node.table.path, ("query" if access.is_query else "dbtable"): access.table, **secrets}
    if access.driver is not None:
        options["driver"] = access.driver
    if access.user is not None:
        options.setdefault("user", access.user)
    with naming_database(node):
        return spark.read.format("jdbc").options(**options).load()


def access_of(node: LookupNode) -> DatabaseAccess:
    """Return how an operator's table is read, which is one of a database."""
    if node.table.database is None:
        raise TypeError(node.table.format)
    return node.table.database


@contextmanager
def naming_database(node: LookupNode) -> Iterator[None]:
    """Translate errors of the block, in which rows of a database are read; of other tables they stay.

    Raises:
        SourceError: for an error of the database or of its driver.
    """
    try:
        yield
    except (Py4JError, PySparkException) as error:
        if node.table.database is None:
            raise
        secrets = _secrets(node, node.table.database)
        what, fix = _explained(node.table.database, *_origin(error))
        # Drivers may repeat what they were given: neither the text nor a cause of the error has it.
        raise SourceError(
            f"the table {node.table.label!r} {_hidden(what, secrets)}", fix=fix, uid=node.uid, place=node.place
        ) from RuntimeError(_hidden(first_line(error), secrets))


def _secrets(node: LookupNode, access: DatabaseAccess) -> dict[str, str]:
    """Return the options whose values are in environment variables.

    Raises:
        DefinitionError: one is not set.
    """
    missing = {option: variable for option, variable in access.environment.items() if not os.environ.get(variable)}
    for option, variable in missing.items():
        raise DefinitionError(
            f"the environment variable {variable}, which holds the {option} for the table {node.table.label!r}, is not set",
            fix=f"set {variable} where the driver of the job runs",
            uid=node.uid,
            place=node.place,
        )
    return {option: os.environ[variable] for option, variable in access.environment.items()}


def _hidden(text: str, secrets: Mapping[str, str]) -> str:
    for value in sorted(secrets.values(), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return redacted(text)


def _explained(access: DatabaseAccess, text: str, state: str) -> tuple[str, str]:
    """Return what is wrong, and what to do, from the text of the database's error and its state of SQL."""
    if any(each in text for each in _NO_DRIVER):
        driver = access.driver or "that the address needs"
        fix = (
            "install the database's driver: of Postgres by `tidemark connectors install postgres`, of others as a jar in spark.jars "
            "(`--conf` of `tidemark run`); and name its class with driver= where the address does not say which"
        )
        return f"cannot be read: the session has no driver {driver} ({text})", fix
    if state in _NO_TABLE:
        return f"does not exist: {text}", "create it before the job runs, or correct the name, with its schema: 'public.zones'"
    if state.startswith("28"):
        named = ", ".join(access.environment.values()) or "password_env="
        return f"cannot be read: the database refuses the user: {text}", f"correct user= and the password in the environment ({named})"
    if state.startswith("08"):
        fix = "check that the database runs and can be reached from this machine, that the address is right, and the user and password"
        return f"cannot be read: no connection to the database: {text}", fix
    return f"cannot be read: {text}", "check the table or query, its options, and the rights of the user; then start the job again"


def _origin(error: BaseException) -> tuple[str, str]:
    """Return the text of the cause of Spark's error, and its state of SQL; the state is empty where the database says nothing."""
    thrown: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    last = first_line(error)
    for _ in range(_CAUSES):
        if thrown is None:
            break
        name, text = str(thrown.getClass().getName()), str(thrown.getMessage())
        last = (text.strip().splitlines() or [name])[0] if "ClassNotFound" not in name else f"{name}: {text}"
        state = _state(thrown)
        if state is not None:
            return last, state
        thrown = thrown.getCause()
    return last, ""


def _state(thrown: Any) -> str | None:  # noqa: ANN401 - an exception of Java's
    """Return the state of SQL of an exception of a database, None of another one."""
    try:
        return str(thrown.getSQLState() or "").strip()
    except Py4JError:
        return None  # it has no such method
