"""The join with a table of a database: versions, secrets, and what is said where it cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import NOW, elements
from tests.joins.derby import PASSWORD, USER, Database
from tests.joins.table_runs import SCHEMA, killed_at, row, run_epochs
from tidemark.errors import DefinitionError, SourceError
from tidemark.graph.model.nodes import StatefulNode
from tidemark.graph.operators.lookup.node import LookupNode
from tidemark.graph.operators.registry import encode, kind_of
from tidemark.spark.operators.lookup.versions import TableReader
from tidemark.state.log.joblog import JobLog
from tidemark.state.store.store import JobStore
from tidemark.testing import ManualClock, OperatorHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIABLE = "NAMES_PASSWORD"
COLUMNS = "K VARCHAR(9), NAME VARCHAR(9), WORTH DECIMAL(9, 2), SINCE TIMESTAMP, CODE CHAR(3)"
SHOP = "jdbc:postgresql://db/shop"


@pytest.fixture(scope="module")
def database(spark: SparkSession) -> Database:
    found = Database(spark, "lookups")
    found.execute(f"CREATE TABLE APP.NAMES ({COLUMNS})")
    return found


def table_of(database: Database, table: str = "APP.NAMES", **settings: Any) -> Any:
    return tm.jdbc_table(database.url, table, user=USER, password_env=VARIABLE, **settings)


def node_of(stream: tm.Stream) -> LookupNode:
    assert isinstance(stream.node, LookupNode)
    return stream.node


@pytest.mark.spark
def test_a_table_is_copied_when_it_is_time(
    spark: SparkSession, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)
    table = table_of(database, schema="k STRING, name STRING", options={"fetchsize": 10})
    given = [[row(second, "a")] for second in range(5)]
    stream = elements(*given, schema=SCHEMA).lookup(table, on="k").uid("names")
    database.replace_names(("a", "planned"), ("b", "other"))
    with killed_at("before-commit", monkeypatch):
        run_epochs(spark, tmp_path, stream)
    database.replace_names(("b", "other"), ("a", "newer"))
    versions = []

    def between(number: int, clock: ManualClock) -> None:
        head = JobLog(JobStore.open(str(tmp_path / "store")).at("lookup"), "lookup").load().epoch
        assert head is not None
        state = head.operators["names"]
        versions.append((state.definition["table_version"], state.files))
        if number == 3:
            database.replace_names(("a", "newer"), ("b", "other"))
        clock.advance(40_000)

    # At 0 (the replay), 40, 80, 120 and 160 seconds; it is read at 0, 80 and 160.
    assert run_epochs(spark, tmp_path, stream, between, at=NOW) == [["planned"], ["planned"], ["newer"], ["newer"], ["newer"]]
    assert [version != versions[0] for version in versions] == [False, False, True, True, True]
    assert versions[2] == versions[3] == versions[4], "the same rows in another order are no other version"
    for path in (tmp_path / "store").rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path


@pytest.mark.spark
def test_queries_and_columns_as_the_database_has_them(
    spark: SparkSession, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)
    database.execute("CREATE TABLE APP.PRICES (K VARCHAR(9), WORTH DECIMAL(9, 2), SINCE TIMESTAMP, CODE CHAR(3))")
    database.execute("INSERT INTO APP.PRICES VALUES ('a', 1.25, '2025-01-01 10:00:00.000001', 'x'), ('b', NULL, NULL, NULL)")
    query = table_of(database, "SELECT K AS KEY_, WORTH, SINCE, CODE AS NAME FROM APP.PRICES WHERE K < 'c'")
    stream = elements([row(1, "a"), row(2, "b"), row(3, "c")], schema=SCHEMA).lookup(query, on={"k": "key_"}, how="inner")
    assert run_epochs(spark, tmp_path, stream.select("k", name="concat_ws(',', WORTH, SINCE, trim(NAME))")) == [
        ["", "1.25,2025-01-01 10:00:00.000001,x"]
    ]


@pytest.mark.spark
def test_an_error_names_job_operator_and_place(
    spark: SparkSession, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)
    lookup = elements([row(1, "a")], schema=SCHEMA).lookup(table_of(database, "APP.NOTHING", schema="k STRING, name STRING"), on="k")
    with pytest.raises(SourceError, match=r"APP\.NOTHING of jdbc:derby:memory:lookups' does not exist") as raised:
        run_epochs(spark, tmp_path, lookup.uid("names"))
    error = raised.value
    assert (error.job, error.uid) == ("lookup", "names")
    assert str(error.place).startswith(__file__)
    assert "create it before the job runs" in error.fix


TROUBLES: dict[str, tuple[Callable[[Database], Any], dict[str, str], str]] = {
    "no driver": (lambda _: tm.jdbc_table(SHOP, "t"), {}, "the session has no driver that the address needs.*connectors install postgres"),
    "no class": (lambda _: tm.jdbc_table(SHOP, "t", driver="org.postgresql.Driver"), {}, "no driver org.postgresql.Driver.*spark.jars"),
    "no database": (lambda _: tm.jdbc_table("jdbc:derby:memory:none", "t"), {}, "cannot be read.*not found"),
    "refused": (lambda _: tm.jdbc_table("jdbc:hive2://localhost:1/x", "t"), {}, "no connection to the database.*can be reached"),
    "password": (table_of, {VARIABLE: "another-password"}, "cannot be read: no connection to the database.*the user and password"),
    "variable": (table_of, {}, f"environment variable {VARIABLE}, which holds the password.* is not set.*set {VARIABLE}"),
    "statement": (lambda at: table_of(at, "SELECT ? FROM"), {VARIABLE: PASSWORD}, "cannot be read.*check the table or query"),
}


@pytest.mark.spark
@pytest.mark.parametrize("name", TROUBLES)
def test_what_is_wrong_with_a_database(spark: SparkSession, database: Database, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, variables, message = TROUBLES[name]
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    node = node_of(elements(schema=SCHEMA).lookup(make(database), on="k"))
    with pytest.raises(tm.TidemarkError, match=f"(?s){message}") as raised:
        TableReader(node).current(spark)
    shown = [str(raised.value), str(raised.value.__cause__), raised.value.fix]
    assert not any(secret in text for text in shown for secret in (PASSWORD, "another-password"))
    assert raised.value.place == node.place


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "no address": (lambda: tm.jdbc_table("postgresql://db/shop", "t"), "no address of JDBC"),
    "no table": (lambda: tm.jdbc_table(SHOP, " "), r"jdbc_table\(table="),
    "user": (lambda: tm.jdbc_table(SHOP, "t", user=""), r"jdbc_table\(user=''\)"),
    "driver": (lambda: tm.jdbc_table(SHOP, "t", driver=3), r"jdbc_table\(driver="),  # type: ignore[arg-type]
    "password in front": (lambda: tm.jdbc_table("jdbc:postgresql://me:hunter2@db/shop", "t"), "holds a user or a password"),
    "password behind": (lambda: tm.jdbc_table(f"{SHOP}?ssl=true&pass%77ord=hunter2", "t"), "holds a user or a password"),
    "password of SQL Server": (lambda: tm.jdbc_table("jdbc:sqlserver://h:1433;pwd=hunter2;x=1", "t"), "holds a user or a password"),
    "password of Oracle": (lambda: tm.jdbc_table("jdbc:oracle:thin:scott/hunter2@//h:1521/x", "t"), "holds a user or a password"),
    "password of Db2": (lambda: tm.jdbc_table("jdbc:db2://h:5/db:password=hunter2;", "t"), "holds a user or a password"),
    "option": (lambda: tm.jdbc_table(SHOP, "t", options={"password": "hunter2"}), "password_env="),
    "secret option": (lambda: tm.jdbc_table(SHOP, "t", options={"sslPassword": "hunter2"}), "options_env="),
    "statement": (lambda: tm.jdbc_table(SHOP, "t", options={"sessionInitStatement": "SET PASSWORD hunter2"}), "looks as if"),
    "no variable": (lambda: tm.jdbc_table(SHOP, "t", password_env="hunter2"), "no name of an environment variable"),  # noqa: S106
    "no variables": (lambda: tm.jdbc_table(SHOP, "t", options_env={"sslPassword": "hunter2"}), "names no environment variable"),
    "own option": (lambda: tm.jdbc_table(SHOP, "t", options_env={"dbtable": "TABLE"}), "the second argument"),
    "options": (lambda: tm.jdbc_table(SHOP, "t", options=["fetchsize"]), "no mapping"),  # type: ignore[arg-type]
    "schema": (lambda: tm.jdbc_table(SHOP, "t", schema="k STRUNG"), "STRUNG"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_says_what_to_write(name: str) -> None:
    call, message = MISTAKES[name]
    with pytest.raises(DefinitionError, match=message) as raised:
        call()
    assert "hunter2" not in str(raised.value)
    assert str(raised.value.place).startswith(__file__)


def test_addresses_with_parameters_are_taken_and_shown_without_them() -> None:
    table = tm.jdbc_table(
        f"{SHOP}?ssl=true&x=a@b", "public.zones", user="me", options_env={"sslPassword": "P"}, schema="k STRING, zone INT"
    )
    stream = elements(schema=SCHEMA).lookup(table, on="k").uid("zones")
    node = stream.node
    assert isinstance(node, StatefulNode)
    kind = kind_of(node)
    texts = [kind.describe(node), kind.describe_rows(node), kind.made_by(node)[1]]
    assert all("public.zones of jdbc:postgresql://db/shop" in text and "ssl" not in text for text in texts)
    assert node_of(stream).table == kind.decode(encode(node), "zones").table
    for address in (
        "jdbc:oracle:thin:@//h:1521/x",
        "jdbc:sqlserver://h:1433;databaseName=x;encrypt=true",
        "jdbc:derby:memory:x;create=true",
    ):
        assert tm.jdbc_table(address, "SELECT 1 FROM dual").label.startswith(f"a query of {address.partition(';')[0]}")


def test_the_harness_is_given_the_rows_of_a_database() -> None:
    stream = elements(schema=SCHEMA).lookup(tm.jdbc_table(SHOP, "names", schema="k STRING, name STRING"), on="k")
    harness = OperatorHarness(stream, table=[{"K": "a", "NAME": "one", "unread": 1}])
    harness.process({"k": "a", "n": 1}, at=1)
    harness.process({"k": "b", "n": 2}, at=2)
    assert harness.advance_watermark(5) == [{"k": "a", "n": 1, "name": "one"}, {"k": "b", "n": 2, "name": None}]
    without = OperatorHarness(stream)
    without.process({"k": "a"}, at=1)
    with pytest.raises(DefinitionError, match=r"reads no database.*table=\[\{"):
        without.advance_watermark(5)
    with pytest.raises(DefinitionError, match="reads no table"):
        OperatorHarness(elements(schema=SCHEMA).key_by("k").deduplicate(within="1 hour").uid("d"), table=[])
