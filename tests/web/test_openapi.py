"""The OpenAPI document: it has every route, and requests that are generated from it are answered as it describes."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import Phase, settings
from jsonschema_rs import meta
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from starlette.routing import Route

from tests.web.served import FARES, OTHER, TAXI, Served
from tidemark.web.api.openapi import openapi_document
from tidemark.web.api.reads import LimitForm, list_jobs
from tidemark.web.api.routes import PREFIX, NoForm, route
from tidemark.web.api.schemas import Schemas
from tidemark.web.api.table import ROUTES

SERVED = Served(works=True)
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", SERVED.app)
AS_ADMIN = {"Authorization": f"Bearer {SERVED.secrets['admin']}"}
NAMES = {"savepoint": "before", "other": "before", "operation": "none", "check": "rows", "silence": "quiet"}
WRITES_TO_GENERATED_PLACES = ["export_savepoint", "import_savepoint"]

CONFORMANCE = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Generated places are relative paths, too."""
    monkeypatch.chdir(tmp_path)


@SCHEMA.parametrize()
@settings(max_examples=10)
def test_generated_requests_are_answered_as_described(case: Any) -> None:
    """Valid requests may be refused, as jobs and savepoints have rules of their own, and invalid ones must be."""
    case.call_and_validate(headers=AS_ADMIN, excluded_checks=[positive_data_acceptance, unsupported_method])


@SCHEMA.exclude(operation_id=WRITES_TO_GENERATED_PLACES).parametrize()
@settings(max_examples=8, phases=[Phase.generate])
def test_requests_for_jobs_that_exist_are_answered_as_described(case: Any) -> None:
    if "before" not in SERVED.stored.savepoints.pins.names():
        SERVED.stored.savepoints.take("before")
    # Other tests of this process may have left pools behind whose threads wait for ever.
    earlier = threading.enumerate()
    for job in (FARES, TAXI):
        known = {"job": job, **NAMES}
        case.path_parameters = {name: known[name] for name in case.path_parameters or {}}
        response = case.call(headers=AS_ADMIN)
        case.validate_response(response, checks=CONFORMANCE)
    for thread in threading.enumerate():
        if thread.name.startswith("tidemark-") and thread not in earlier:
            thread.join(60)


def test_requests_of_a_viewer_change_nothing() -> None:
    """The token of every generated request above is an admin's; here the same forms are sent with a viewer's."""
    for found in ROUTES:
        if found.role == "viewer":
            continue
        path = f"{PREFIX}{found.path.format(job=OTHER, **NAMES)}"
        answer = SERVED.client("viewer").request(found.method, path)
        assert answer.status_code == 403, found.name


def test_every_route_is_in_the_document_and_every_path_is_served() -> None:
    document = SERVED.client(None).get("/openapi.json").json()
    served = {
        (method, served.path)
        for served in SERVED.app.routes
        if isinstance(served, Route) and served.path.startswith(PREFIX)
        for method in (served.methods or set()) - {"HEAD"}
    }
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert served == described == {(found.method, f"{PREFIX}{found.path}") for found in ROUTES}
    assert len(described) == len(ROUTES) > 35
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)


def test_every_reference_and_schema_of_the_document_is_valid() -> None:
    document = SERVED.client(None).get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
        assert schema["description"], f"{name} has no docstring"
    text = json.dumps(document)
    referred = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert referred <= schemas.keys()
    assert {operation["summary"] for methods in document["paths"].values() for operation in methods.values()}.isdisjoint({"", "."})


def test_what_needs_a_token_is_said() -> None:
    assert openapi_document(ROUTES, with_tokens=True)["security"] == [{"token": []}]
    assert openapi_document(ROUTES, with_tokens=False)["security"] == []


def test_a_query_has_parameters_and_their_bounds() -> None:
    made = route("GET", "/some", list_jobs, NoForm, role="viewer", answer=LimitForm)
    assert openapi_document([made], with_tokens=True)["paths"][f"{PREFIX}/some"]["get"]["parameters"] == []
    history = openapi_document(ROUTES, with_tokens=True)["paths"][f"{PREFIX}/jobs/{{job}}/history"]["get"]["parameters"]
    assert [parameter["name"] for parameter in history] == ["job", "limit"]
    assert (history[1]["schema"]["minimum"], history[1]["schema"]["default"], history[1]["required"]) == (1, 20, False)


def test_two_types_of_one_name_are_refused() -> None:
    schemas = Schemas()
    schemas.of(LimitForm)
    twin = type("LimitForm", (LimitForm,), {"__doc__": "Another one."})
    with pytest.raises(ValueError, match="have the same name 'LimitForm'"):
        schemas.of(twin)
