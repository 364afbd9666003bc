"""Environment variables that a job needs are missed before Spark starts, and no value of one is shown."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

import tidemark as tm
from tidemark.cli.program.main import main
from tidemark.errors import DefinitionError
from tidemark.graph.job.environment import needed_variables, require_environment, unset_variables

SECRET = "marker-4711"  # noqa: S105
NEEDED = ["ZONES_PASSWORD", "RIDES_KEY", "REGISTRY", "CHANGES_DSN", "OUT_PASSWORD", "SHOP_DSN"]

CODE = """
    import tidemark as tm

    zones = tm.jdbc_table("jdbc:postgresql://db/shop", "zones", schema="id INT, zone STRING", password_env="ZONES_PASSWORD")
    rides = tm.source(
        "rides",
        tm.kafka_source(
            servers="b:9092", topics="rides", format="avro", schema="id INT", registry="https://r", registry_env="REGISTRY",
            options_env={"ssl.key.password": "RIDES_KEY"},
        ),
        watermarks=tm.ascending(timestamp="timestamp"),
    )
    shop = tm.postgres_changes(
        "shop", dsn_env="CHANGES_DSN", tables={"public.orders": tm.postgres_table("order_id INT, paid INT", key=["order_id"])}
    )
    zoned = rides.select("value.id", "timestamp").lookup(zones, on="id")
    job = tm.Job(
        "paying",
        {
            "zoned": tm.kafka_sink(zoned, servers="b:9092", topic="zoned", options_env={"sasl.password": "OUT_PASSWORD"}),
            "orders": tm.postgres(shop.table("public.orders"), table="shop.orders", dsn_env="SHOP_DSN", mode="upsert"),
        },
    )
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tm.Job:
    for variable in NEEDED:
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "paying_code.py").write_text(textwrap.dedent(CODE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "paying_code", raising=False)
    import paying_code  # type: ignore[import-not-found]

    found: tm.Job = paying_code.job
    return found


def test_all_of_a_job_are_known_and_no_value_is_shown(job: tm.Job) -> None:
    found = list(needed_variables(job))
    assert sorted({needed.name for needed in found}) == sorted(NEEDED)
    assert all("paying_code.py:" in needed.place for needed in found)
    assert "the password for the table zones of jdbc:postgresql://db/shop" in {needed.holds for needed in found}
    all_set = dict.fromkeys(NEEDED, SECRET)
    require_environment(job, all_set)
    assert SECRET not in repr(found)
    for variable in NEEDED:
        with pytest.raises(DefinitionError, match=f"environment variable {variable}, which holds .*, is not set") as raised:
            require_environment(job, {**all_set, variable: " "})
        assert f"Fix: set {variable} where this process runs" in str(raised.value)
        assert raised.value.job == "paying"
        assert SECRET not in str(raised.value)
        assert [needed.name for needed in unset_variables(job, {**all_set, variable: ""})] == [variable]


def test_a_run_ends_before_spark_starts(job: tm.Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("tidemark.spark.env.session.build_session", start)
    for variable in NEEDED[:-1]:
        monkeypatch.setenv(variable, SECRET)
    message = "SHOP_DSN, which holds the connection string of output 'orders', is not set (job 'paying', 'orders', at "
    with pytest.raises(DefinitionError) as raised:
        tm.run(job, store="jobs")
    assert message in str(raised.value)
    done = CliRunner().invoke(main, ["run", "paying_code:job", "--store", "jobs"])
    assert done.exit_code != 0
    assert message in done.stderr
    assert SECRET not in done.output
    assert not Path("jobs", "paying").exists()
