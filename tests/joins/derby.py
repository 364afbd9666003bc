"""Databases in the memory of Spark's JVM: Derby, which comes with PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USER, PASSWORD = "reader", "hunter2-of-derby"


class Database:
    """A database that only one user may read, with a password.

    Args:
        spark: the session in whose JVM it is.
        name: of the database, unique in that JVM.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
        self._jvm = jvm
        jvm.java.lang.System.setProperty("derby.stream.error.file", "/dev/null")
        # Spark says for all databases of Derby that they ask for no password.
        jvm.java.lang.System.clearProperty("derby.connection.requireAuthentication")
        self.url = f"jdbc:derby:memory:{name}"
        for key, value in {
            "derby.user.reader": PASSWORD,
            "derby.authentication.provider": "BUILTIN",
            "derby.connection.requireAuthentication": "true",
        }.items():
            self._execute(f"{self.url};create=true", f"CALL SYSCS_UTIL.SYSCS_SET_DATABASE_PROPERTY('{key}', '{value}')")
        # Only a restart has the database ask for the password.
        with pytest.raises(Py4JJavaError, match="shutdown"):
            self._execute(f"{self.url};shutdown=true;user={USER};password={PASSWORD}")

    def execute(self, *statements: str) -> None:
        """Run statements."""
        self._execute(f"{self.url};user={USER};password={PASSWORD}", *statements)

    def replace_names(self, *rows: tuple[str, str]) -> None:
        """Replace the rows of the table of names."""
        values = ", ".join(f"('{key}', '{name}')" for key, name in rows)
        self.execute("DELETE FROM APP.NAMES", f"INSERT INTO APP.NAMES (K, NAME) VALUES {values}")

    def _execute(self, url: str, *statements: str) -> None:
        connection = self._jvm.java.sql.DriverManager.getConnection(url)
        try:
            for statement in statements:
                connection.createStatement().execute(statement)
        finally:
            connection.close()
