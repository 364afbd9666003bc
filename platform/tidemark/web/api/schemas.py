"""JSON Schemas of the types that the codec reads and writes, and the strict reading of requests by the same type hints.

A form is a frozen dataclass, as everything that is stored: one set of hints says what is read, what is refused, and what the OpenAPI
document shows. ``Annotated[int, Value(minimum=1)]`` adds what a hint cannot say.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from tidemark.errors import RequestFormError
from tidemark.state.encoding.codec import is_added, to_jsonable
from tidemark.state.encoding.json_decoding import UnreadableError, reader_of
from tidemark.web.access.tokens import Role

T = TypeVar("T")
Schema = dict[str, Any]

REFERENCE: Final = "#/components/schemas/"
_SCALARS: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}
_NUMBER: Final = re.compile(r"-?[0-9]{1,15}")


@dataclass(frozen=True)
class Value:
    """What a hint does not say of a value: its meaning, bounds (both allowed), pattern (of all of it), greatest length, and an example.

    ``role`` is what a caller needs who gives another value than the field's default, if that is more than the route's role.
    """

    text: str = ""
    minimum: int | None = None
    maximum: int | None = None
    pattern: str | None = None
    longest: int | None = None
    example: object = None
    role: Role | None = None

    def schema(self) -> Schema:
        """Return its keywords of JSON Schema."""
        found = {
            "description": self.text + (f" Needs the role {self.role}." if self.role else "") or None,
            "minimum": self.minimum,
            "maximum": self.maximum,
            "pattern": f"^(?:{self.pattern})$" if self.pattern else None,
            "maxLength": self.longest,
            "examples": [self.example] if self.example is not None else None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def wrong(self, value: object) -> str:
        """Return what is wrong with a value of the hint's type, as text; empty for nothing."""
        if isinstance(value, int) and self.minimum is not None and value < self.minimum:
            return f"is {value}, and at least {self.minimum} is allowed"
        if isinstance(value, int) and self.maximum is not None and value > self.maximum:
            return f"is {value}, and at most {self.maximum} is allowed"
        if isinstance(value, str) and self.longest is not None and len(value) > self.longest:
            return f"has {len(value)} characters, and at most {self.longest} are allowed"
        if isinstance(value, str) and self.pattern is not None and not re.fullmatch(self.pattern, value):
            return f"is {value[:40]!r}, which is not of the form {self.pattern}"
        return ""


class Schemas:
    """Collects the schemas of dataclasses under their names; ``of`` refers to them."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self._kinds: dict[str, object] = {}

    def of(self, kind: Any, *, strict: bool = False) -> Schema:  # noqa: ANN401 - a type hint has no type of its own
        """Return the schema of a type.

        Args:
            kind: one of the codec's types.
            strict: whether it is read: unknown fields are then refused, and fields with a default may be left out.
        """
        if get_origin(kind) is Annotated:
            inner, *notes = get_args(kind)
            added = {name: value for note in notes if isinstance(note, Value) for name, value in note.schema().items()}
            return _with_keywords(self.of(inner, strict=strict), added)
        if is_dataclass(kind) or is_typeddict(kind):
            return self._named(kind, strict=strict)
        origin, parts = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(part, strict=strict) for part in parts]}
        if origin is Literal:
            return {"enum": list(parts)}
        if origin is tuple:
            return self._tuple(parts, strict=strict)
        if origin in (Mapping, dict):
            return {"type": "object", "additionalProperties": self.of(parts[1], strict=strict)}
        if kind is type(None):
            return {"type": "null"}
        return {"type": _SCALARS[kind]} if kind in _SCALARS else {}

    def _tuple(self, parts: tuple[Any, ...], *, strict: bool) -> Schema:
        if len(parts) == 2 and parts[1] is Ellipsis:
            return {"type": "array", "items": self.of(parts[0], strict=strict)}
        items = [self.of(part, strict=strict) for part in parts]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}

    def _named(self, kind: Any, *, strict: bool) -> Schema:  # noqa: ANN401
        # What is read has other required fields than what is answered.
        name = f"{kind.__name__}Input" if strict and not kind.__name__.endswith("Form") else kind.__name__
        if self._kinds.setdefault(name, kind) is not kind:
            raise ValueError(f"{kind} and {self._kinds[name]} have the same name {name!r} in the document")
        if name not in self.components:
            self.components[name] = {}  # a type may contain itself
            hints = get_type_hints(kind, include_extras=True)
            self.components[name] |= {
                "type": "object",
                "description": (kind.__doc__ or "").partition("\n\n")[0].replace("``", "`"),
                "properties": {field: self.of(hint, strict=strict) for field, hint in hints.items()},
                "required": sorted(_required(kind, hints, strict=strict)),
                **({"additionalProperties": False} if strict else {}),
            }
            for field, default in _defaults(kind).items() if strict else ():
                properties = self.components[name]["properties"]
                properties[field] = _with_keywords(properties[field], {"default": default})
        return {"$ref": f"{REFERENCE}{name}"}


def read_form(kind: type[T], plain: object, *, what: str) -> T:
    """Return the form from a body's plain JSON.

    Args:
        kind: its dataclass.
        plain: the JSON.
        what: what is read, for the error.

    Raises:
        RequestFormError: a field is missing, unknown, of another type or out of bounds; the message says which.
    """
    hint: Any = kind
    try:
        form: T = reader_of(hint)(plain)
    except UnreadableError as error:
        raise _wrong(what, "".join(reversed(error.where)), error.what) from None
    for name, note in notes_of(kind).items():
        said = note.wrong(getattr(form, name))
        if said:
            raise _wrong(what, f".{name}", said)
    return form


def read_query(kind: type[T], given: Mapping[str, str]) -> T:
    """Return the form from a query's texts.

    Raises:
        RequestFormError: as ``read_form``.
    """
    hints = get_type_hints(kind)
    plain: dict[str, object] = dict(given)
    for name, text in given.items():
        if int in (hints.get(name), *get_args(hints.get(name))) and _NUMBER.fullmatch(text):
            plain[name] = int(text)
    return read_form(kind, plain, what="the query")


def notes_of(kind: Any) -> dict[str, Value]:  # noqa: ANN401
    """Return the notes on a form's fields by name, also those on a part of an optional one."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: note for name, hint in hints.items() for note in _notes_in(hint)}


def required_roles(form: Any) -> list[Role]:  # noqa: ANN401 - a form of any route
    """Return the roles that the values of a form need, besides its route's."""
    defaults = {item.name: item.default for item in fields(form)}
    noted = ((name, note.role) for name, note in notes_of(type(form)).items())
    return [role for name, role in noted if role is not None and getattr(form, name) != defaults[name]]


def _notes_in(hint: Any) -> list[Value]:  # noqa: ANN401
    if get_origin(hint) is Annotated:
        return [note for note in get_args(hint)[1:] if isinstance(note, Value)]
    union = get_origin(hint) in (Union, types.UnionType)
    return [note for part in get_args(hint) if union for note in _notes_in(part)]


def _required(kind: Any, hints: Mapping[str, object], *, strict: bool) -> set[str]:  # noqa: ANN401
    if is_typeddict(kind):
        return set(kind.__required_keys__)
    if strict:
        return set(hints) - set(_defaults(kind))
    return {item.name for item in fields(kind) if not is_added(item)}


def _defaults(kind: Any) -> dict[str, object]:  # noqa: ANN401
    """Return the defaults of a dataclass's fields, as plain JSON."""
    if is_typeddict(kind):
        return {}
    given = {item.name: item.default for item in fields(kind) if item.default is not MISSING}
    made = {item.name: item.default_factory() for item in fields(kind) if item.default_factory is not MISSING}
    return {name: to_jsonable(value) for name, value in {**given, **made}.items()}


def _with_keywords(schema: Schema, added: Schema) -> Schema:
    """Return a schema with further keywords; those on a value go to the part of an optional one that is not null."""
    if "anyOf" not in schema:
        return {**schema, **added}
    outer = {name: value for name, value in added.items() if name in {"description", "examples", "default"}}
    inner = {name: value for name, value in added.items() if name not in outer}
    parts = [part if part == {"type": "null"} else {**part, **inner} for part in schema["anyOf"]]
    return {"anyOf": parts, **{name: value for name, value in schema.items() if name != "anyOf"}, **outer}


def _wrong(what: str, where: str, said: str) -> RequestFormError:
    return RequestFormError(f"{what}{where} {said}", fix="send what the OpenAPI document (/openapi.json) describes")
