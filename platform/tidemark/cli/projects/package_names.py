"""Which names a project may have: it is a Python package, a job and a folder of that name."""

from __future__ import annotations

import keyword
import re
import sys
import sysconfig
import unicodedata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tidemark.errors import InvalidNameError

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,59}")
_OTHER: Final = re.compile(r"[^a-z0-9]+")
_RESERVED: Final = frozenset({"tidemark", "dagster", "pyspark", "test", "tests", "data", "history", "logs", "schedules", "storage"})
"""Names that mean something else in the project, or that it imports; four are folders of Dagster's, which its ``.gitignore`` has."""


def require_package_name(name: str) -> str:
    """Return the name if a project may have it.

    Raises:
        InvalidNameError: it is no name of a Python package, or hides one; the fix proposes another.
    """
    problem = name_problem(name)
    if problem:
        raise InvalidNameError(
            f"a project cannot be called {name!r}: {problem}", fix=f"take another name: tidemark new {proposed_name(name)}"
        )
    return name


def name_problem(name: str) -> str:
    """Return what is wrong with a name, empty for nothing.

    >>> name_problem("fares"), name_problem("2-fares")
    ('', 'use up to 60 lower-case letters, digits and _, beginning with a letter')
    """
    if not _NAME.fullmatch(name):
        return "use up to 60 lower-case letters, digits and _, beginning with a letter"
    if keyword.iskeyword(name):
        return "it is a word of Python's own"
    if name in sys.stdlib_module_names:
        return "it would hide a module of Python's standard library"
    if name in _RESERVED or _is_installed(name):
        return "it would hide an installed package, or a folder of the project"
    return ""


def proposed_name(name: str) -> str:
    """Return a name like the given one that a project may have.

    >>> [proposed_name(name) for name in ("Rides-2026", "2 fast", "class", "Übersicht", "...")]
    ['rides_2026', 'job_2_fast', 'class_job', 'ubersicht', 'rides']
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    found = _OTHER.sub("_", plain).strip("_")[:50].strip("_") or "rides"
    if found[0].isdigit():
        found = f"job_{found}"
    return f"{found}_job" if name_problem(found) else found


def _is_installed(name: str) -> bool:
    """Return whether the environment has a package of that name; it is searched for, not imported.

    Also one without an ``__init__``, one whose folder is elsewhere (``pip install -e``), and Python's own ``test``, which is not among the
    names of its standard library. A folder of the current one is another project.
    """
    spec = find_spec(name)
    if spec is None:
        return False
    places = [Path(place).resolve() for place in (spec.origin, *(spec.submodule_search_locations or ())) if place is not None]
    folders = [Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib", "stdlib")]
    here = Path.cwd()
    return any(not place.is_relative_to(here) or any(map(place.is_relative_to, folders)) for place in places)
