"""Tidemark's classes in Java, by their sources: kept with the class archive, or compiled in the JVM.

Spark has a compiler of its own for generated code, Janino, which compiles such a class in 50 milliseconds, once it is loaded; to load it,
and to compile for the first time, takes a new JVM half a second. So the classes that a driver's start needs are compiled when the
archive is made, and kept beside it with a checksum of their sources.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zipfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject, JVMView
    from pyspark.sql import SparkSession

_log = logging.getLogger("tidemark")

_JAR: Final = "tidemark.classes"
"""The property of Java that names the jar of classes that are kept, as of ``class_archive.archive_options``."""

_SOURCES: Final = "META-INF/sources.json"
"""The checksums of the sources of the classes in the jar, by their names."""


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
    made: JavaObject = _class(session, package, name).getConstructors()[0].newInstance(array)
    return made


def shared_object(session: SparkSession, package: str, name: str) -> JavaObject:
    """Return the one object without state of a class, made at the first call; arguments and errors as of ``new_object``."""
    key = (session.sparkContext.applicationId, package, name)
    if key not in _objects:
        _objects[key] = new_object(session, package, name)
    return _objects[key]


def java_source(package: str, name: str) -> str:
    """Return the source of a class; arguments as of ``new_object``."""
    return files(package).joinpath(f"{name}.java").read_text(encoding="utf-8")


def _class(session: SparkSession, package: str, name: str) -> JavaObject:
    key = (session.sparkContext.applicationId, package, name)
    if key not in _classes:
        _classes[key] = java_class(session.sparkContext._jvm, name, java_source(package, name))  # noqa: SLF001
    return _classes[key]


def java_class(jvm: JVMView, name: str, source: str) -> JavaObject:
    """Return a class.

    Args:
        jvm: of a session, or one in which none is yet.
        name: the class's, with its package.
        source: its source. Janino takes no type parameters and no lambdas.

    Raises:
        py4j.protocol.Py4JError: it cannot be compiled, or the JVM has ended.
    """
    return _kept(jvm, name, source) or _compiled(jvm, name, source)[0]


def keep_classes(jvm: JVMView, sources: Mapping[str, str], jar: Path) -> None:
    """Compile classes and write them into a jar.

    Args:
        jvm: of a session.
        sources: by the names of the classes.
        jar: the file, which is replaced.

    Raises:
        OSError: it cannot be written.
    """
    with zipfile.ZipFile(jar, "w") as file:
        for name, source in sources.items():
            for inner, code in _compiled(jvm, name, source)[1].items():
                file.writestr(f"{inner.replace('.', '/')}.class", code)
        file.writestr(_SOURCES, json.dumps({name: _checksum(source) for name, source in sources.items()}))


def _kept(jvm: JVMView, name: str, source: str) -> JavaObject | None:
    """Return the class as it is kept; None where it is not, or was made of another source."""
    try:
        jar = jvm.java.lang.System.getProperty(_JAR)
        if jar is None:
            return None
        with zipfile.ZipFile(jar) as file:
            checksums = json.loads(file.read(_SOURCES))
        if not isinstance(checksums, dict) or checksums.get(name) != _checksum(source):
            return None
        urls = jvm.java.lang.reflect.Array.newInstance(jvm.java.lang.Class.forName("java.net.URL"), 1)
        urls[0] = jvm.java.io.File(jar).toURI().toURL()
        loader = jvm.java.net.URLClassLoader(urls, jvm.java.lang.Thread.currentThread().getContextClassLoader())
        found: JavaObject = loader.loadClass(name)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, Py4JError):
        _log.debug("%s is compiled", name, exc_info=True)
        return None
    return found


def _compiled(jvm: JVMView, name: str, source: str) -> tuple[JavaObject, Mapping[str, bytes]]:
    """Return a class, and the code of it and its inner classes by their names."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    return compiler.getClassLoader().loadClass(name), compiler.getBytecodes()


def _checksum(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


_classes: dict[tuple[str, str, str], JavaObject] = {}
_objects: dict[tuple[str, str, str], JavaObject] = {}
"""By application, since a class lives as long as its JVM; not by session, of which a query has a new one in each batch."""
