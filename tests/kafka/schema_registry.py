"""A schema registry on loopback, as far as sources ask it, and records in Avro as its clients write them."""

from __future__ import annotations

import base64
import json
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class Registry:
    """Subjects with the schemas of their versions; the same schema has one id, whatever its subjects."""

    url: str = ""
    subjects: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    credentials: str | None = None
    failures: int = 0
    asked: list[str] = field(default_factory=list)
    _ids: dict[str, int] = field(default_factory=dict)

    def register(self, subject: str, schema: object, *, kind: str = "AVRO", references: Mapping[str, str] | None = None) -> int:
        """Register a version of a subject, and return the schema's id; ``references`` are subjects by the name of their type."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        id_ = self._ids.setdefault(text, 100_001 + len(self._ids))
        versions = self.subjects.setdefault(subject, [])
        named = [{"name": name, "subject": other, "version": len(self.subjects[other])} for name, other in (references or {}).items()]
        more: dict[str, Any] = ({"references": named} if named else {}) | ({} if kind == "AVRO" else {"schemaType": kind})
        versions.append({"subject": subject, "version": len(versions) + 1, "id": id_, "schema": text, **more})
        return id_

    def answer(self, path: str, authorization: str | None) -> tuple[int, object]:
        """Return the status and the answer to a request."""
        self.asked.append(path)
        if self.failures > 0:
            self.failures -= 1
            return 503, {"error_code": 50302, "message": "leader not known"}
        if self.credentials is not None and authorization != self.credentials:
            return 401, {"error_code": 40101, "message": f"unknown user in {authorization}"}
        match [unquote(part) for part in urlsplit(path).path.split("/")[1:]]:
            case ["subjects", subject, "versions"] if subject in self.subjects:
                return 200, [each["version"] for each in self.subjects[subject]]
            case ["subjects", subject, "versions", number] if subject in self.subjects:
                return 200, self.subjects[subject][int(number) - 1]
            case ["subjects", *_]:
                return 404, {"error_code": 40401, "message": "Subject not found."}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


@contextmanager
def schema_registry(*, user: str | None = None) -> Iterator[Registry]:
    """Run a registry, which asks for a user and password if these are given."""
    found = Registry(credentials=None if user is None else f"Basic {base64.b64encode(user.encode()).decode()}")

    class Here(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, answer = found.answer(self.path, self.headers.get("Authorization"))
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Here) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


def wire(id_: int, schema: Any, value: Any) -> bytes:
    """Return a value in the wire format of the registry's clients."""
    return b"\0" + struct.pack(">I", id_) + encoded(schema, value)


def encoded(schema: Any, value: Any) -> bytes:  # noqa: C901, PLR0911 - one case per type
    """Return a value in Avro, by the specification; named types have to be spelled out."""
    match schema:
        case ["null", other] | [other, "null"]:
            null = schema.index("null")
            return _long(null) if value is None else _long(1 - null) + encoded(other, value)
        case {"type": "record", "fields": fields}:
            return b"".join(encoded(each["type"], value[each["name"]]) for each in fields)
        case {"type": "enum", "symbols": symbols}:
            return _long(symbols.index(value))
        case {"type": "array", "items": items}:
            return (_long(len(value)) + b"".join(encoded(items, each) for each in value) if value else b"") + _long(0)
        case {"type": "map", "values": values}:
            entries = b"".join(encoded("string", key) + encoded(values, each) for key, each in value.items())
            return (_long(len(value)) + entries if value else b"") + _long(0)
        case {"type": "bytes"} | "bytes":
            return _long(len(value)) + bytes(value)
        case {"type": ("int" | "long")} | "int" | "long":
            return _long(value)
        case "string":
            return encoded("bytes", value.encode())
        case "double":
            return struct.pack("<d", value)
        case "float":
            return struct.pack("<f", value)
        case "boolean":
            return bytes([value])
    raise TypeError(schema)


def _long(value: int) -> bytes:
    rest, found = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])
