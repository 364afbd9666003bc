"""Every error Tidemark raises: what, where, why, and how to fix it.

One base class; each subclass has a stable ``code`` for scripts and alerts and says whether trying again can help
(``transient``) or not. Messages name the job, the operator's uid, the epoch and the place, and end with ``Fix:``.
"""

from __future__ import annotations

from typing import ClassVar


class TidemarkError(Exception):
    """Base of all errors.

    Args:
        what: what is wrong, one sentence without a trailing full stop.
        fix: the exact setting, argument or command that resolves it.
        job: name of the job, where known.
        uid: uid (or name) of the operator, source or output concerned.
        epoch: the current epoch.
        place: file and line of the definition, or path of the stored object.
    """

    code: ClassVar[str] = "TM000"
    transient: ClassVar[bool] = False

    def __init__(
        self,
        what: str,
        *,
        fix: str,
        job: str | None = None,
        uid: str | None = None,
        epoch: int | None = None,
        place: str | None = None,
    ) -> None:
        self.what = what
        self.fix = fix
        self.job = job
        self.uid = uid
        self.epoch = epoch
        self.place = place
        super().__init__(self._message())

    def _message(self) -> str:
        where = [
            text
            for text in (
                f"job {self.job!r}" if self.job else "",
                f"{self.uid!r}" if self.uid else "",
                f"epoch {self.epoch}" if self.epoch is not None else "",
                f"at {self.place}" if self.place else "",
            )
            if text
        ]
        located = f" ({', '.join(where)})" if where else ""
        return f"[{self.code}] {self.what}{located}. Fix: {self.fix}"

    def with_job(self, job: str) -> TidemarkError:
        """Name the job on an error raised where it was not known; returns self."""
        if self.job is None:
            self.job = job
            self.args = (self._message(),)
        return self

    def __str__(self) -> str:
        return self._message()


class DefinitionError(TidemarkError):
    """A job, stream, source or sink is defined incorrectly; raised before anything runs."""

    code = "TM100"


class UnknownMemberError(DefinitionError, AttributeError):
    """A stream, a job or the package has no method or attribute of that name; the fix says what to write instead.

    It is an AttributeError, too, so that ``hasattr``, ``copy`` and ``pickle`` find what they expect.
    """


class DescriptionError(DefinitionError):
    """A job cannot be described, or its description cannot be read; the message has the reason."""


class ColumnError(DefinitionError):
    """An expression names a column that the stream does not have."""

    code = "TM101"


class ExpressionError(DefinitionError):
    """An SQL expression cannot be parsed or is of a kind not allowed here."""

    code = "TM102"


class DurationError(DefinitionError):
    """A duration cannot be read or is out of range."""

    code = "TM103"


class InvalidNameError(DefinitionError):
    """A job, uid, tag or output name is not allowed; names become paths."""

    code = "TM104"


class TakenNameError(InvalidNameError):
    """A job, savepoint or silence of that name exists already."""


class SourceError(TidemarkError):
    """A source is missing, unreadable, or not of the declared shape."""

    code = "TM200"


class SourceUnavailableError(SourceError):
    """What a source needs, such as a schema registry, does not answer."""

    code = "TM201"
    transient = True


class SinkError(TidemarkError):
    """A sink rejects the rows: the schema differs, permission is missing, or the table belongs to another job."""

    code = "TM300"


class PublishError(TidemarkError):
    """A committed epoch could not be published yet; the next start publishes it."""

    code = "TM301"
    transient = True


class MissingEpochsError(SinkError):
    """A sink's location no longer holds epochs that were published to it; nothing was changed."""

    code = "TM302"


class StoreError(TidemarkError):
    """The job store cannot be reached, read or written."""

    code = "TM400"
    transient = True


class UnusablePlaceError(StoreError):
    """A location cannot be a job store: a file is in its place, the bucket does not exist, or the user may not create a folder there."""

    transient = False


class CorruptStoreError(TidemarkError):
    """A stored record, segment or state file is damaged or missing."""

    code = "TM401"


class NotRetainedError(CorruptStoreError):
    """An epoch was requested that the job's log no longer has, or never had."""


class UnknownStoreError(CorruptStoreError):
    """No job store, or no export, exists at the location that was to be read."""

    code = "TM404"


class LinkedPathError(TidemarkError):
    """The path to delete is a symbolic link in a store, or lies behind one; nothing was deleted."""

    code = "TM405"


class FormatError(TidemarkError):
    """A stored record has a format version this release cannot read."""

    code = "TM402"


class RecordTooLargeError(TidemarkError):
    """An epoch's record would exceed what one commit may hold; nothing was committed."""

    code = "TM403"


class JobRunningError(TidemarkError):
    """Another driver of the same job is alive."""

    code = "TM410"
    transient = True


class FencedError(TidemarkError):
    """A newer driver took the job over; this one may no longer commit."""

    code = "TM411"


class OffsetMismatchError(TidemarkError):
    """An epoch was replayed with source offsets that differ from those committed."""

    code = "TM412"


class StateMismatchError(TidemarkError):
    """Stored state does not fit the job: an operator, key or aggregate changed."""

    code = "TM413"


class UnknownJobError(TidemarkError):
    """The job store has no job of that name."""

    code = "TM414"


class SpecConflictError(TidemarkError):
    """A job's spec was changed concurrently."""

    code = "TM415"
    transient = True


class NotReachedError(TidemarkError):
    """A job did not reach the requested state within the timeout; it may still do so."""

    code = "TM416"
    transient = True


class UnknownSavepointError(TidemarkError):
    """The job has no savepoint of that name."""

    code = "TM420"


class SavepointInUseError(TidemarkError):
    """A savepoint is in use by an operation that is under way, or is about to be disposed of."""

    code = "TM421"


class RewindError(TidemarkError):
    """A job cannot be rewound to a savepoint, or a rewind of it is incomplete."""

    code = "TM422"


class UpgradeError(TidemarkError):
    """A job cannot be upgraded, another upgrade of it is under way, or a request would be overwritten by one."""

    code = "TM423"


class OvertakenError(TidemarkError):
    """Another process has continued the upgrade; nothing was done."""

    code = "TM424"
    transient = True


class ConservationError(TidemarkError):
    """Rows in and rows out of an operator do not balance; the epoch was not committed."""

    code = "TM500"


class UserCodeError(TidemarkError):
    """A user's function or expression failed on the data."""

    code = "TM501"


class UnknownContextNameError(UserCodeError, AttributeError):
    """A user's function asks a context or a state for a name that it does not have; an AttributeError, too, as ``hasattr`` expects."""


class EngineError(TidemarkError):
    """Spark failed to run an epoch; nothing of it was committed."""

    code = "TM502"
    transient = True


class DriverLostError(TidemarkError):
    """A driver ended or hung without reporting an error; the control plane records it under this code in the job's failures."""

    code = "TM503"
    transient = True


class SetupError(TidemarkError):
    """The environment lacks Java, PySpark or a package, or Spark does not start with its settings."""

    code = "TM600"


class LaunchError(TidemarkError):
    """A driver's process could not be started."""

    code = "TM601"
    transient = True


class LaunchRefusedError(LaunchError):
    """A driver cannot be started with the job's spec; trying again does not help."""

    transient = False


class ProfileError(TidemarkError):
    """A job's driver cannot be profiled from here: it does not run, runs elsewhere or as another user, or ended meanwhile."""

    code = "TM602"


class AlertError(TidemarkError):
    """An alert could not be delivered; the message says which."""

    code = "TM610"
    transient = True


class CrashTestError(TidemarkError):
    """A process that should have been killed at a point ended in another way."""

    code = "TM620"


class AccessDeniedError(TidemarkError):
    """A request to the REST API is not allowed for its token, or for a request without one."""

    code = "TM700"


class UnauthenticatedError(AccessDeniedError):
    """A request to the REST API has no token, or one that is not known."""

    code = "TM701"


class ForeignRequestError(AccessDeniedError):
    """A request names a host that the server does not have, or was sent by a page of another server."""

    code = "TM702"


class RequestFormError(TidemarkError):
    """A request to the REST API has a body or parameters that cannot be read."""

    code = "TM710"


class LargeBodyError(RequestFormError):
    """The body of a request is larger than the REST API reads."""


class UnsupportedBodyError(RequestFormError):
    """The body of a request is of another type than JSON."""


class UnknownAddressError(TidemarkError):
    """The server has nothing at the address of a request."""

    code = "TM712"


class ServerBusyError(TidemarkError):
    """The server carries out as many operations as it may; the request was not begun."""

    code = "TM711"
    transient = True
