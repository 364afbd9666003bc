"""Checks whether a spec's code is compatible with stored state, in a separate process with the paths and variables of its driver.

This process may have older code of the same name loaded, and importing the job's module runs user code. No JVM is started.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidemark.control.desired.job_import import is_job_file, load_job
from tidemark.control.launch.local_launcher import resolve_code_paths
from tidemark.control.model.spec import JobSpec
from tidemark.errors import DefinitionError, TidemarkError, UpgradeError
from tidemark.savepoints.compatibility.checking import HEAD, stored_epoch
from tidemark.savepoints.compatibility.state_check import check_compatibility
from tidemark.savepoints.delta.result_tables import check_outputs
from tidemark.savepoints.model.isolation import redirect_outputs
from tidemark.savepoints.model.verdict import Verdict
from tidemark.state.encoding.codec import from_jsonable, to_jsonable
from tidemark.state.encoding.redaction import redacted
from tidemark.state.log.joblog import newest_epoch
from tidemark.state.store.store import JobStore

_PROGRAM: Final = "tidemark.control.upgrade.code_check"
_MARK: Final = "tidemark-verdict:"
_SECONDS: Final = 300.0
_REFUSED: Final = 3


@dataclass(frozen=True)
class Maps:
    """Renames that only the user can know: new uids by stored ones, new column names by uid; and whether state may be dropped."""

    uids: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    allow_non_restored_state: bool = False

    @property
    def empty(self) -> bool:
        """Whether it has no rename and drops no state."""
        return not (self.uids or self.columns or self.allow_non_restored_state)


Judge = Callable[[JobStore, JobSpec, Maps, str, str], Verdict]
"""Checks a spec's code against stored state: store, spec, renames, ``head`` or a savepoint, and the job whose state it is."""


def judge_code(store: JobStore, spec: JobSpec, maps: Maps, against: str = HEAD, of: str = "") -> Verdict:
    """Return the verdict on a spec's code if it resumed from a job's stored state.

    Args:
        store: the root store.
        spec: the spec with the code, its paths and variables, and for a fork the root of its outputs.
        maps: renames, and whether state may be dropped.
        against: ``head``, or a savepoint.
        of: the job whose state it is; the spec's own by default.

    Raises:
        UpgradeError: the code cannot be loaded, is another job's, or the maps do not match it.
        LaunchError: a code path does not exist.
    """
    if is_job_file(spec.code) and not spec.definition:
        raise _not_judged(spec, "it is a file, and what it says is not given")
    folder = str(Path(spec.folder).expanduser()) if spec.folder is not None else None
    paths = [str(path) for path in resolve_code_paths(spec)] + [path for path in (os.environ.get("PYTHONPATH"),) if path]
    asked = (spec.job, spec.code, against, of or spec.job, spec.outputs_root or "", json.dumps(to_jsonable(maps)))
    command = [sys.executable, "-m", _PROGRAM, store.uri, *asked]
    environment = {**os.environ, **spec.variables, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}
    try:
        done = subprocess.run(
            command, env=environment, cwd=folder, input=spec.definition or "", capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    # A text that the system rejects, such as one with a null character, is a ValueError.
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise _not_judged(spec, str(error)) from error
    said = next((line.removeprefix(_MARK) for line in reversed(done.stdout.splitlines()) if line.startswith(_MARK)), None)
    if done.returncode == _REFUSED and said is not None:
        raise _not_judged(spec, str(json.loads(said)))
    if done.returncode or said is None:
        raise _not_judged(spec, redacted(done.stderr.strip().rpartition("\n")[2]) or f"exit code {done.returncode}")
    return from_jsonable(Verdict, json.loads(said), path=f"the verdict on {spec.code}")


def _not_judged(spec: JobSpec, why: str) -> UpgradeError:
    return UpgradeError(
        f"the code {spec.code} cannot be checked against the stored state: {why}",
        fix="correct it; `tidemark check MODULE:JOB` runs the same check",
        job=spec.job,
    )


def main(arguments: list[str]) -> int:
    """Check the code that the arguments name, of a job in YAML that of the standard input, and print the verdict; returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {_PROGRAM}", description="Check code against a job's stored state.")
    for name in ("store", "job", "code", "against", "of", "outputs", "maps"):
        parser.add_argument(name)
    given = parser.parse_args(arguments)
    try:
        maps = from_jsonable(Maps, json.loads(given.maps), path="the arguments")
        job = load_job(given.code, sys.stdin.read() or None)
        if given.outputs:
            job = redirect_outputs(job, name=given.job, root=given.outputs)
        if job.name != given.job:
            raise DefinitionError(
                f"{given.code} is job {job.name!r}, not {given.job!r}",
                fix="give the job its old name; it is part of its state's path",
                job=given.job,
            )
        root = JobStore.open(given.store)
        record = stored_epoch(root, given.of, given.against)
        # An upgrade that goes back reverts the places first; after a restore, which does not, the start compares with the newest epoch.
        outputs = check_outputs(job, record, newest_epoch(root, given.job), reverted=given.against != HEAD)
        found = check_compatibility(
            record,
            job,
            uids=maps.uids,
            columns=maps.columns,
            allow_non_restored_state=maps.allow_non_restored_state,
            outputs=outputs,
        )
    except TidemarkError as error:
        sys.stdout.write(f"{_MARK}{json.dumps(redacted(str(error)))}\n")
        return _REFUSED
    sys.stdout.write(f"{_MARK}{json.dumps(to_jsonable(found))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
