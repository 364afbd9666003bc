"""Declares tables that streams look rows up in."""

from __future__ import annotations

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.model.call_site import call_site
from tidemark.graph.operators.lookup.node import LookupTable
from tidemark.locations import Location


def delta_table(path: str, *, schema: str | None = None) -> LookupTable:
    """Return a Delta table for ``lookup``. An epoch reads one version of it, whose number is in the epoch's record.

    Args:
        path: of the table.
        schema: Spark DDL of its columns, so that later steps can be checked before the job runs; else only the table says.

    Raises:
        DefinitionError: no path, or the schema cannot be read.
    """
    return _table("delta", path, schema)


def parquet_table(path: str, *, schema: str | None = None) -> LookupTable:
    """Return a folder of Parquet files for ``lookup``. An epoch reads the files that were there when it was planned.

    The version in the epoch's record is a hash of the names, sizes and times of its files. A file that is replaced while an epoch runs is
    read as it is then: use a Delta table where rows are changed.

    Args:
        path: of the folder.
        schema: as for ``delta_table``.

    Raises:
        DefinitionError: no path, or the schema cannot be read.
    """
    return _table("parquet", path, schema)


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
