"""Declares tables that streams look rows up in."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.model.call_site import call_site
from tidemark.graph.operators.lookup.database_checks import OPTIONS, check_address, check_name, password_variable
from tidemark.graph.operators.lookup.node import DatabaseAccess, LookupTable
from tidemark.locations import Location


def delta_table(path: str, *, schema: str | None = None) -> LookupTable:
    """Return a Delta table for ``lookup``. An epoch reads one version of it, whose number is in the epoch's record.

    Args:
        path: of the table.
        schema: Spark DDL of the columns that are read, so that later steps can be checked before the job runs; else only the table says.

    Raises:
        DefinitionError: no path, or the schema cannot be read.
    """
    return _table("delta", path, schema)


def parquet_table(path: str, *, schema: str | None = None) -> LookupTable:
    """Return a folder of Parquet files for ``lookup``. An epoch reads a copy of it that was made when the epoch was planned.

    A copy has the columns that are looked up, and is part of the job's state. When it is time to look for a newer version, the folder is
    copied if the names, sizes or times of its files differ; where its rows are the same the older copy stays.

    Args:
        path: of the folder.
        schema: as for ``delta_table``.

    Raises:
        DefinitionError: no path, or the schema cannot be read.
    """
    return _table("parquet", path, schema)


def jdbc_table(
    url: str,
    table: str,
    *,
    schema: str | None = None,
    driver: str | None = None,
    user: str | None = None,
    password_env: str | None = None,
    options: Mapping[str, str | int | bool] | None = None,
    options_env: Mapping[str, str] | None = None,
) -> LookupTable:
    """Return a table of a database for ``lookup``, read by JDBC. An epoch reads a copy of it that was made when the epoch was planned.

    A copy has the columns that are looked up, and is part of the job's state. The table is read again when ``refresh`` has passed;
    where its rows are the same the older copy stays. The session needs the jar of the database's driver (``spark.jars.packages``).

    Args:
        url: address of the database, such as ``jdbc:postgresql://db/shop``; without user and password.
        table: its name, or a query (``SELECT ...``).
        schema: as for ``delta_table``. The job then starts without the database as long as the newest copy is in use.
        driver: Java class of the driver, where the address does not say which.
        user: who reads it.
        password_env: name of the environment variable of the driver's process that holds the password.
        options: further options of Spark's JDBC source and of the driver, such as ``fetchsize``, ``numPartitions`` and ``ssl``.
        options_env: options whose values are secret, each with the name of the environment variable that holds it.

    Raises:
        DefinitionError: no address or table, a password in any of them, or the schema cannot be read. The message repeats no secret.
    """
    place = call_site()
    check_address(url, place)
    check_name("table", table, "write tm.jdbc_table('jdbc:postgresql://db/shop', 'public.zones')", place)
    if driver is not None:
        check_name("driver", driver, "write driver='org.postgresql.Driver', or leave it out", place)
    if user is not None:
        check_name("user", user, "write user='reader', or leave it out", place)
    if schema is not None:
        parse_schema(schema, place=place)
    secret = {**OPTIONS.variables(options_env, place, allowed={"user"}), **password_variable(password_env, place)}
    access = DatabaseAccess(table.strip().rstrip(";"), driver, user, OPTIONS.plain(options, place), secret)
    return LookupTable("jdbc", url.strip(), schema, access)


def _table(format_: str, path: object, schema: str | None) -> LookupTable:
    place = call_site()
    if not isinstance(path, str) or not path.strip():
        raise DefinitionError(f"{format_}_table(path={path!r}) names no path", fix=f"write tm.{format_}_table('lake/zones')", place=place)
    try:
        Location.parse(path)
    except DefinitionError as error:
        raise DefinitionError(f"{format_}_table: {error.args[0]}", fix="give the path of a folder", place=place) from error
    if schema is not None:
        parse_schema(schema, place=place)
    return LookupTable("delta" if format_ == "delta" else "parquet", path, schema)
