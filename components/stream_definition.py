"""The job of a ``TidemarkStreamComponent`` outside Dagster: from a file of YAML, or from what a spec holds of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import environ
from pathlib import Path
from typing import Final

import yaml
from dagster_shared.yaml_utils import parse_yamls_with_source_position
from dagster_shared.yaml_utils.source_position import SourcePositionTree, ValueAndSourcePositionTree

import tidemark as tm
from tidemark.components.stream_component import JOB_FIELDS, TidemarkStreamComponent
from tidemark.components.yaml_places import place_of
from tidemark.errors import DefinitionError

_TYPE: Final = re.compile(r"tidemark(\.components(\.stream_component)?)?\.TidemarkStreamComponent")
_VARIABLE: Final = re.compile(r"{{\s*env\.([A-Za-z_][A-Za-z0-9_]*)\s*}}")
_TEMPLATE: Final = re.compile(r"{{|{%|{#")


def definition_in_file(path: str, name: str) -> tuple[str, str]:
    """Return the name of the job in a file, and what the file says of it as JSON.

    Args:
        path: the file, whose documents are components.
        name: which job, if the file has several; else empty.

    Raises:
        DefinitionError: the file cannot be read or has no such job, or the job is wrong, with the place.
    """
    component = _component(path, name)
    component.job()
    return component.name, component.definition()


def job_in_file(path: str, name: str) -> tm.Job:
    """Return the job in a file. Nothing in the file is executed, and of templates only `{{ env.NAME }}` is filled in.

    Args:
        path: the file, whose documents are components.
        name: which job, if the file has several; else empty.

    Raises:
        DefinitionError: the file cannot be read or has no such job, or the job is wrong, with the place.
    """
    return _component(path, name).job()


def job_of_definition(reference: str, fields: Mapping[str, object]) -> tm.Job:
    """Return the job that a component's ``definition`` describes.

    Args:
        reference: ``path.yaml:name``, for errors.
        fields: the definition's fields.

    Raises:
        DefinitionError: it is none that this release can read.
    """
    try:
        made = TidemarkStreamComponent.of_fields(fields, None)
    except DefinitionError as error:
        raise DefinitionError(
            f"the job in YAML that was submitted cannot be read by this release: {error.what}",
            fix="submit its file again",
            place=f"{reference}, {error.place}" if error.place else reference,
        ) from None
    return made.job()


def _component(path: str, name: str) -> TidemarkStreamComponent:
    documents = [each for each in _documents(Path(path)) if _is_job(each)]
    named = [each for each in documents if not name or each.value["attributes"].get("name") == name]
    if len(named) != 1:
        names = ", ".join(str(each.value["attributes"].get("name")) for each in documents)
        if not documents:
            what, fix = "has no job in YAML", "name a file with `type: tidemark.TidemarkStreamComponent` and `attributes`"
        elif named:
            what, fix = "has several jobs", f"write {path}:NAME, with one of {names}"
        else:
            what, fix = f"has no job {name!r}", f"name one of {names}"
        raise DefinitionError(f"{path} {what}", fix=fix, place=path)
    return _resolved(named[0])


def _documents(path: Path) -> list[ValueAndSourcePositionTree]:
    try:
        return parse_yamls_with_source_position(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise DefinitionError(f"{path} cannot be read: {error.strerror}", fix="name an existing file of YAML", place=str(path)) from error
    except UnicodeDecodeError as error:
        raise DefinitionError(f"{path} is no text in UTF-8", fix="name a file of YAML", place=str(path)) from error
    except yaml.YAMLError as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        place = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        problem = error.problem if isinstance(error, yaml.MarkedYAMLError) else "a character that YAML does not have"
        raise DefinitionError(f"{path} is no YAML: {problem}", fix="correct it", place=place) from None
    except (TypeError, RecursionError):
        # PyYAML notices the first where a value can be hashed, which the reader's pairs of value and place always can.
        raise DefinitionError(
            f"{path} has a list or mapping as a key, or is nested too deeply", fix="correct it", place=str(path)
        ) from None


def _is_job(document: ValueAndSourcePositionTree) -> bool:
    value = document.value
    return isinstance(value, dict) and bool(_TYPE.fullmatch(str(value.get("type")))) and isinstance(value.get("attributes"), dict)


def _resolved(document: ValueAndSourcePositionTree) -> TidemarkStreamComponent:
    tree = document.source_position_tree
    # What Dagster has of the job may have any templates, and is not read here; a field of another name is a mistake.
    left_out = TidemarkStreamComponent.model_fields.keys() - {*JOB_FIELDS, "store"}
    given = {key: _filled(each, tree, (key,)) for key, each in document.value["attributes"].items() if key not in left_out}
    return TidemarkStreamComponent.of_fields(given, tree)


def _filled(value: object, tree: SourcePositionTree, path: tuple[str, ...]) -> object:
    """Return a value with variables of the environment in the place of their templates.

    Raises:
        DefinitionError: a variable is not set, or a template is another one: those are expressions, which are not evaluated here.
    """
    if isinstance(value, dict):
        return {key: _filled(each, tree, (*path, str(key))) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, tree, path) for each in value]
    if not isinstance(value, str):
        return value
    if _TEMPLATE.search(_VARIABLE.sub("", value)):
        raise DefinitionError(
            f"the template {value!r} is not of the form {{{{ env.NAME }}}}, the only one in a file that is read outside its project",
            fix="write such a one, or launch the operation `start` in Dagster, which fills in all templates",
            place=place_of(path, tree),
        )
    for variable in _VARIABLE.findall(value):
        if variable not in environ:
            raise DefinitionError(f"the environment variable {variable} is not set", fix=f"set {variable}", place=place_of(path, tree))
    return _VARIABLE.sub(lambda found: environ[found[1]], value)
