"""Drivers by ``spark-submit``: on a standalone cluster, YARN or Kubernetes, with its usual options.

In *client* mode the driver is a process of this machine, as a local one is, and Spark's executors are elsewhere. In *cluster* mode
(``spark.submit.deployMode=cluster``; YARN and Kubernetes have it for Python) it runs there too: then only its heartbeat shows whether it
is alive, it ends by reading its spec, and one that cannot be reached is fenced by the next.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tidemark.control.launch.code_packaging import package_code
from tidemark.control.launch.local_launcher import LocalLauncher, driver_arguments, resolve_code_paths
from tidemark.control.launch.processes import session_members
from tidemark.control.launch.run_folder import RunFolder
from tidemark.control.model.dynamic_allocation import dynamic_allocation_settings
from tidemark.control.model.records import Attempt, ProcessHandle
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.errors import LaunchError, LaunchRefusedError

NAME: Final = "spark-submit"
_DRIVER: Final = "tidemark.control.driver.driver"
DEPLOY_MODE: Final = "spark.submit.deployMode"

_WAIT_SETTINGS: Final = {"yarn": "spark.yarn.submit.waitAppCompletion", "k8s": "spark.kubernetes.submission.waitAppCompletion"}
"""Settings that make ``spark-submit`` end when a driver on the cluster has started."""

_DRIVER_VARIABLES: Final = {"yarn": "spark.yarn.appMasterEnv", "k8s": "spark.kubernetes.driverEnv"}


class SparkSubmitLauncher(LocalLauncher):
    """Starts drivers with ``spark-submit``; a ``launcher.Launcher``.

    Args:
        logs: where logs are kept; else ``$TIDEMARK_LOGS``, or the user's folder for state.
        program: the program; else that of ``$SPARK_HOME``, of the installed PySpark, or on ``PATH``.
    """

    def __init__(self, logs: Path | None = None, *, program: str | None = None) -> None:
        super().__init__(logs, name=NAME)
        self._program = program

    def launch(self, spec: SpecGeneration, attempt: Attempt, store_uri: str) -> ProcessHandle:
        """Start the driver of an attempt and return at once.

        Raises:
            LaunchError: no process was started.
            LaunchRefusedError: the cluster does not run drivers in Python, or cannot read the store.
        """
        if not on_cluster(spec.spec):
            return super().launch(spec, attempt, store_uri)
        if _scheduler(spec.spec) not in _WAIT_SETTINGS:
            raise LaunchRefusedError(
                f"master {spec.spec.master!r} does not run drivers in Python",
                fix=f"leave {DEPLOY_MODE} out, so that the driver runs on this machine and the executors on the cluster",
            )
        if store_uri.startswith("file:"):
            raise LaunchRefusedError(
                f"a driver on a cluster cannot read the job store {store_uri}",
                fix="use a job store that all machines can reach, such as s3://bucket/jobs",
            )
        super().launch(spec, attempt, store_uri)
        # The local process only submits.
        return ProcessHandle(NAME, "", application=f"{spec.spec.job} {attempt.run_id}")

    def command(self, spec: SpecGeneration, attempt: Attempt, store_uri: str, files: RunFolder) -> Sequence[str]:
        """Return ``spark-submit`` with its options, the driver's program and its arguments."""
        job, clustered = spec.spec, on_cluster(spec.spec)
        archives = package_code(resolve_code_paths(job), files.scratch / "code")
        options = ["--master", job.master, "--name", job.app_name]
        for key, value in self.conf(job).items():
            options += ["--conf", f"{key}={value}"]
        if archives:
            options += ["--py-files", ",".join(map(str, archives))]
        log = None if clustered else files.log
        return (self._find_program(), *options, _driver_file(), *driver_arguments(job.job, attempt, store_uri, launcher=NAME, log=log))

    def conf(self, job: JobSpec) -> Mapping[str, str]:
        """Return the Spark settings needed before the JVM starts: the job's, which override those of a session on one machine."""
        from tidemark.spark.env.start.session_settings import local_settings

        local = local_settings() if job.master.startswith("local") else {}
        leaves = {_WAIT_SETTINGS[_scheduler(job)]: "false"} if on_cluster(job) else {}
        # Executors import the job's module, too, and need the same variables.
        readers = ("spark.executorEnv", *((_DRIVER_VARIABLES[_scheduler(job)],) if on_cluster(job) else ()))
        variables = {f"{reader}.{key}": value for reader in readers for key, value in job.variables.items()}
        return {**local, **leaves, **variables, **dynamic_allocation_settings(job), **job.conf}

    def session(self, job: JobSpec, files: RunFolder) -> Mapping[str, str]:
        """Return nothing: ``spark-submit`` starts the JVM."""
        del job, files
        return {}

    def environment(self, job: JobSpec, scratch: Path) -> dict[str, str]:
        """Return the environment of ``spark-submit``, which the driver inherits."""
        found = {"PYSPARK_PYTHON": sys.executable, **super().environment(job, scratch)}
        return {"PYSPARK_DRIVER_PYTHON": sys.executable, **found}

    def driver_pid(self, handle: ProcessHandle) -> int | None:
        """Return the pid of the driver's Python, a child of the JVM that leads the session; None if it is not alive."""
        leader = super().driver_pid(handle)
        if leader is None:
            return None
        ours = (member.pid for member in session_members(leader) if _runs_driver(member.pid))
        return next(ours, None)

    def _find_program(self) -> str:
        home = os.environ.get("SPARK_HOME")
        spec = None if self._program or home else find_spec("pyspark")
        package = [str(Path(place, "bin", NAME)) for place in (spec.submodule_search_locations or ())] if spec is not None else []
        places = [self._program or "", str(Path(home, "bin", NAME)) if home else "", *package]
        found = next((place for place in map(shutil.which, filter(None, places)) if place is not None), None) or shutil.which(NAME)
        if found is None:
            raise LaunchError("spark-submit was not found", fix="set SPARK_HOME, or install pyspark")
        return str(Path(found).absolute())


def on_cluster(job: JobSpec) -> bool:
    """Return whether a job's driver runs on the cluster."""
    return job.conf.get(DEPLOY_MODE) == "cluster"


def _scheduler(job: JobSpec) -> str:
    return job.master.partition(":")[0]


def _driver_file() -> str:
    spec = find_spec(_DRIVER)
    if spec is None or spec.origin is None:
        raise LaunchRefusedError(f"{_DRIVER} is not a file that spark-submit can run", fix="install Tidemark from a folder or a wheel")
    return spec.origin


def _runs_driver(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    # The JVM has the driver's file in its arguments, too.
    return Path(words[0]).name.startswith("python") and any(word.endswith("driver.py") for word in words)
