"""Java classes of this package, compiled in a session's JVM by Spark's own compiler for generated code, in about 50 milliseconds."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession


def new_object(session: SparkSession, package: str, name: str, *arguments: JavaObject) -> JavaObject:
    """Return a new object of a class, from its only constructor.

    Args:
        session: in whose JVM.
        package: the Python package with the class's source, ``<name>.java``.
        name: the class's, which is in no package of Java.
        arguments: of the constructor.

    Raises:
        py4j.protocol.Py4JError: the constructor raised an exception, or the JVM has ended.
    """
    gateway = session.sparkContext._gateway  # noqa: SLF001
    array = gateway.new_array(gateway.jvm.java.lang.Object, len(arguments))  # type: ignore[union-attr]
    for number, argument in enumerate(arguments):
        array[number] = argument
    made: JavaObject = _compiled(session, package, name).getConstructors()[0].newInstance(array)
    return made


def shared_object(session: SparkSession, package: str, name: str) -> JavaObject:
    """Return the one object without state of a class, made at the first call; arguments and errors as of ``new_object``."""
    key = (session.sparkContext.applicationId, package, name)
    if key not in _objects:
        _objects[key] = new_object(session, package, name)
    return _objects[key]


def _compiled(session: SparkSession, package: str, name: str) -> JavaObject:
    key = (session.sparkContext.applicationId, package, name)
    if key not in _classes:
        jvm = session.sparkContext._jvm  # noqa: SLF001
        compiler = jvm.org.codehaus.janino.SimpleCompiler()  # type: ignore[union-attr]
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())  # type: ignore[union-attr]
        compiler.cook(files(package).joinpath(f"{name}.java").read_text(encoding="utf-8"))
        _classes[key] = compiler.getClassLoader().loadClass(name)
    return _classes[key]


_classes: dict[tuple[str, str, str], JavaObject] = {}
_objects: dict[tuple[str, str, str], JavaObject] = {}
"""By application, since a class lives as long as its JVM; not by session, of which a query has a new one in each batch."""
