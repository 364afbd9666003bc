"""A project that Dagster's own ``create-dagster`` and ``dg`` made: it loads, is materialized, and shows both components' jobs.

With ``HYPOTHESIS_PROFILE=long`` and ``TIDEMARK_PICTURES=docs/pictures`` in the environment it takes the picture of the docs again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from dagster_dg_cli.cli import cli
from deltalake import DeltaTable

from tests.dagster.browser import open_browser, require_chromium
from tests.dagster.web_server import CHECKOUT, web_server
from tests.seeds import only_long
from tidemark.clock import SYSTEM_CLOCK

pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.spark]

PROGRAMS = Path(sys.executable).parent
JOB = """
import tidemark as tm

rides = tm.source(
    "rides",
    tm.files("landing", format="json", schema="zone INT, fare DOUBLE, at TIMESTAMP"),
    watermarks=tm.bounded_out_of_orderness("5 minutes", timestamp="at"),
)
by_zone = rides.key_by("zone").window(tm.tumbling("1 hour")).aggregate(fares=tm.sum("fare")).uid("by-zone")
job = tm.Job("fares", outputs={"by_zone": tm.delta(by_zone, "warehouse/by_zone", description="Fares by zone and hour.")})
"""
ROWS = (
    {"zone": 1, "fare": 5.0, "at": "2026-11-01T10:05:00Z"},
    {"zone": 1, "fare": 7.0, "at": "2026-11-01T10:45:00Z"},
    {"zone": 2, "fare": -1.0, "at": "2026-11-01T10:50:00Z"},
    {"zone": 2, "fare": 3.0, "at": "2026-11-01T11:20:00Z"},
)
MADE = ("rides/hourly", "rides/late", "rides/malformed", "fares/by_zone")
LOAD = """
import json, sys
from project_of_rides.definitions import defs
specs = defs().resolve_all_asset_specs()
print(json.dumps({
    "keys": sorted(spec.key.to_user_string() for spec in specs),
    "imported": sorted({"pyspark", "py4j", "project_of_rides.job"} & set(sys.modules)),
}))
"""


@dataclass(frozen=True)
class DgProject:
    """The project's folder, and the environment of its commands."""

    root: Path
    environment: dict[str, str]
    described: list[str] = field(default_factory=list)

    def run(self, *command: str) -> str:
        """Run a command in the project, and return what it prints; fails with its messages."""
        done = subprocess.run(
            command, cwd=self.root, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def dg(self, *arguments: str) -> str:
        """Run ``dg`` in this process, which has imported all that it needs."""
        with pytest.MonkeyPatch.context() as patch, chdir(self.root), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, value in self.environment.items():
                patch.setenv(name, value)
            patch.syspath_prepend(str(self.root / "src"))
            try:
                done = CliRunner().invoke(cli, arguments)
            finally:
                for name in [name for name in sys.modules if name.partition(".")[0] == self.root.name]:
                    del sys.modules[name]
        assert done.exit_code == 0, (arguments, done.output, done.exception)
        return done.stdout

    def describe(self) -> None:
        """Have Dagster describe the job, once."""
        if not self.described:
            self.described.append(self.dg("utils", "refresh-defs-state"))

    def configure(self, name: str, **attributes: object) -> None:
        """Change a component's YAML."""
        path = self.root / "src/project_of_rides/defs" / name / "defs.yaml"
        document = yaml.safe_load(path.read_text())
        document["attributes"] |= attributes
        path.write_text(yaml.safe_dump(document, sort_keys=False))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> DgProject:
    folder = tmp_path_factory.mktemp("dg")
    root = folder / "project_of_rides"
    # Otherwise create-dagster asks the index of packages for a newer release.
    (folder / "config").mkdir()
    (folder / "config" / "dg.toml").write_text('[cli]\nsuppress_warnings = ["create_dagster_outdated"]\n')
    (folder / "dagster").mkdir()
    (folder / "dagster" / "dagster.yaml").write_text((CHECKOUT / "examples/dagster.yaml").read_text())
    environment = {
        **os.environ,
        "XDG_CONFIG_HOME": str(folder / "config"),
        "DAGSTER_HOME": str(folder / "dagster"),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(root / "src"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONWARNINGS": "ignore",
    }
    made = DgProject(root, environment)
    subprocess.run(
        [str(PROGRAMS / "create-dagster"), "project", str(root), "--no-uv-sync"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=300,
    )
    (root / "src/project_of_rides/job.py").write_text(JOB)
    (root / "landing").mkdir()
    (root / "landing" / "0.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    made.dg(
        *[
            "scaffold",
            "defs",
            "tidemark.TidemarkJobComponent",
            "fares",
            "--job",
            "project_of_rides.job:job",
            "--store",
            "jobs",
            "--continuous",
            "false",
        ]
    )
    made.dg("scaffold", "defs", "tidemark.TidemarkStreamComponent", "rides")
    made.configure("fares", source_assets=False, translation={"group_name": "rides"})
    made.configure("rides", description="Rides by zone and hour, declared in YAML alone.")
    return made


def loaded(project: DgProject) -> dict[str, list[str]]:
    """Load the project's definitions in a process of its own."""
    found: dict[str, list[str]] = json.loads(project.run(sys.executable, "-c", LOAD).splitlines()[-1])
    return found


def test_the_project_loads_before_and_after_its_job_was_described(project: DgProject) -> None:
    streams = ["rides", "rides/hourly", "rides/late", "rides/malformed"]
    assert loaded(project) == {"keys": ["broken/project_of_rides_job_job", *streams], "imported": []}
    project.describe()
    assert loaded(project) == {"keys": ["fares/by_zone", *streams], "imported": []}


@only_long
def test_dagster_checks_the_definitions(project: DgProject) -> None:
    """It loads them as ``dg launch`` does below."""
    project.describe()
    assert "All definitions loaded successfully" in project.dg("check", "defs")


@pytest.fixture(scope="module")
def materialized(project: DgProject) -> DgProject:
    project.describe()
    # Both in one process; tests/dagster/test_web_ui.py has a process for each step.
    in_process = json.dumps({"execution": {"config": {"in_process": {}}}})
    project.run(str(PROGRAMS / "dg"), "launch", "--assets", " or ".join(f'key:"{key}"' for key in MADE), "--config-json", in_process)
    return project


def test_both_jobs_run(materialized: DgProject) -> None:
    project = materialized
    rows = DeltaTable(project.root / "warehouse/hourly").to_pyarrow_table(columns=["zone", "rides", "fares"]).to_pylist()
    assert rows == [{"zone": 1, "rides": 2, "fares": 12.0}]
    by_zone = DeltaTable(project.root / "warehouse/by_zone").to_pyarrow_table(columns=["zone", "fares"]).to_pylist()
    assert sorted(by_zone, key=lambda row: row["zone"]) == [{"zone": 1, "fares": 12.0}, {"zone": 2, "fares": -1.0}]


@only_long
def test_both_jobs_show_in_the_browser(materialized: DgProject, tmp_path: Path) -> None:
    """The pages of the example are in ``test_web_ui.py``."""
    project = materialized
    workspace = tmp_path / "workspace.yaml"
    workspace.write_text(
        "load_from:\n  - python_module: {module_name: project_of_rides.definitions, "
        f"working_directory: {project.root}, location_name: project_of_rides}}\n"
    )
    pictures = Path(os.environ.get("TIDEMARK_PICTURES", str(tmp_path)))
    home = Path(project.environment["DAGSTER_HOME"])
    with web_server(home, workspace, project.environment, daemon=False) as server, open_browser(require_chromium(), tmp_path / "p") as page:
        page.command("Emulation.setDeviceMetricsOverride", width=1200, height=1080, deviceScaleFactor=1, mobile=False)
        page.open(f"{server.url}/locations/project_of_rides/asset-groups/rides/lineage")
        page.wait_for_text("hourly", "by_zone", "malformed", "Materialize all (4)", seconds=120)
        assert "Never materialized" not in page.text()
        # Pages move what they show into its place.
        SYSTEM_CLOCK.sleep(3)
        path = pictures / "components.png"
        page.screenshot(path)
        assert 5_000 < path.stat().st_size < 80_000, path.stat().st_size
