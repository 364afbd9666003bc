"""Object stores under a job store: how one is opened, its timeouts, and its errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from obstore.store import ObjectStore, from_url

from tidemark.locations import Location
from tidemark.state.encoding.redaction import redacted
from tidemark.state.encoding.system_errors import system_cause

if TYPE_CHECKING:
    from obstore.store import RetryConfig

# A lease and a heartbeat last half a minute, a tick of Dagster's a minute: a process that waits longer is considered dead.
# Transient errors are retried until then, at first after 0.1 s, later every 2 s or so.
RETRY_CONFIG: Final[RetryConfig] = {
    "max_retries": 100,
    "retry_timeout": timedelta(seconds=15),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=3), "base": 2},
}
_ANSWER: Final = re.compile(r"<Code>(?P<code>[^<]{1,100})</Code>\s*(?:<Message>(?P<message>[^<]{0,1000})</Message>)?")
_UNUSABLE: Final = re.compile(r"os error (?:1|2|13|17|20)\b")
"""Not permitted, no parent folder, permission denied, a file in its place, or a file as a parent."""

_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound")
_NO_PERMISSION: Final = (
    "AccessDenied",
    "AuthenticationFailed",
    "AuthorizationFailure",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
)
_NO_TIME: Final = ("InternalError", "ServerBusy", "ServiceUnavailable", "SlowDown")
_CHECK: Final = "check {credentials} in the environment, and what they allow: to list, read, write and delete objects there"
_ANYTHING: Final = "check that the place exists and may be read and written from this machine, and the credentials in the environment"
_BY_CODE: Final[Mapping[tuple[str, ...], str]] = {
    _NO_BUCKET: "make the bucket, or correct its name; or the service that is asked ({address})",
    _NO_PERMISSION: _CHECK,
    _NO_TIME: "wait; it was retried for a quarter of a minute, and a running driver retries later",
}
_NO_CREDENTIALS: Final = "no credentials were found in the environment, and this machine has none from its cloud: set {credentials}"
# Messages of obstore itself, the first that fits: a request for the cloud's own credentials may fail like any other.
_BY_WORDS: Final[Mapping[str, str]] = {
    "Missing AccessKeyId": _CHECK,
    "Missing SecretAccessKey": _CHECK,
    "Account must be specified": "set AZURE_STORAGE_ACCOUNT_NAME",
    "HTTP error: builder error": "an endpoint without TLS has to be allowed: set AWS_ALLOW_HTTP=true; otherwise correct AWS_ENDPOINT_URL",
    "/latest/api/token": _NO_CREDENTIALS,
    "/latest/meta-data": _NO_CREDENTIALS,
    "error sending request": "the service does not answer: wait until it does, or correct its address ({address})",
}
_VARIABLES: Final = {
    "s3": ("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL and AWS_REGION"),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_APPLICATION_CREDENTIALS"),
    "az": ("AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCOUNT_NAME"),
}


def open_remote(root: Location) -> ObjectStore:
    """Return the obstore store of a location that is not on a local disk; credentials and endpoint are those of the environment."""
    if root.account is not None:
        return from_url(root.uri, account_name=root.account, retry_config=RETRY_CONFIG)
    return from_url(root.uri, retry_config=RETRY_CONFIG)


def lacks_bucket(error: BaseException) -> bool:
    """Return whether an error is of a missing bucket, which obstore does not distinguish from a missing object."""
    return _code(str(error)) in _NO_BUCKET


def is_unusable(error: BaseException) -> bool:
    """Return whether a folder cannot be made because of its place: a file, another user's folder, or one that is not writable."""
    return _UNUSABLE.search(str(error)) is not None


def error_line(error: BaseException) -> str:
    """Return an error in one line and without credentials; if the store responded, its own code for it."""
    text = str(error)
    if found := _ANSWER.search(text):
        message = " ".join((found["message"] or "no more is said").split()).rstrip(".")
        return redacted(f"{message} ({found['code']})")
    lines = redacted(text).splitlines()
    first = lines[0] if lines else type(error).__name__
    cause = system_cause(text)
    return f"{cause.what} ({first})" if cause is not None else first


def remedy(error: BaseException, scheme: str) -> str:
    """Return the fix of a backend's error; ``scheme`` is its location's."""
    if scheme not in _VARIABLES:
        cause = system_cause(str(error))
        return cause.fix if cause is not None else _ANYTHING
    text, (credentials, address) = str(error), _VARIABLES[scheme]
    for found, fix in _BY_CODE.items():
        if _code(text) in found:
            return fix.format(credentials=credentials, address=address)
    found_in = (fix for words, fix in _BY_WORDS.items() if words in text)
    return next(found_in, _ANYTHING).format(credentials=credentials, address=address)


def _code(text: str) -> str:
    found = _ANSWER.search(text)
    return found["code"] if found else ""
