from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.control.worlds import World
from tests.object_store.s3_server import S3Server, server
from tests.state.conftest import clock, elsewhere, log, make_file, make_progress, make_record, owner
from tidemark.state.store import object_stores
from tidemark.state.store.store import JobStore

__all__ = ["clock", "elsewhere", "log", "make_file", "make_progress", "make_record", "owner"]


@pytest.fixture(scope="session")
def _server() -> Iterator[None]:
    pytest.importorskip("moto.moto_server.werkzeug_app", reason="the package moto, an S3 server for tests, is not installed")
    server()
    yield
    server().close()


@pytest.fixture(scope="module", autouse=True)
def _environment(_server: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server().variables.items():
            patch.setenv(name, value)
        # A machine that has much else to do may let a request wait; the faults of tests pass after so many requests.
        patch.setitem(object_stores.RETRY_CONFIG, "retry_timeout", timedelta(minutes=5))
        yield


@pytest.fixture
def s3() -> S3Server:
    return server()


@pytest.fixture
def root() -> JobStore:
    """The root of a store on S3, where tests of ``tests.state`` have one on disk."""
    return server().new_store()


@pytest.fixture
def world(root: JobStore) -> World:
    return World(store=root)
