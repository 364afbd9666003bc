"""Local files of a session have the modes that Hadoop asks for, though no program is run to set them."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidemark.spark.env.local_files import set_modes_by_call

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def hadoop(spark: SparkSession) -> Any:
    """Return Hadoop's package of file systems."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    return jvm.org.apache.hadoop.fs


def local_file_system(spark: SparkSession) -> Any:
    """Return Hadoop's file system of local files, which keeps checksums beside them."""
    return hadoop(spark).FileSystem.getLocal(spark.sparkContext._jsc.hadoopConfiguration())  # noqa: SLF001


def set_mode(spark: SparkSession, path: Path, mode: int) -> None:
    local_file_system(spark).getRaw().setPermission(hadoop(spark).Path(str(path)), hadoop(spark).permission.FsPermission(f"{mode:o}"))


def test_the_file_system_is_replaced_once(spark: SparkSession) -> None:
    replaced = local_file_system(spark).getRaw()
    assert replaced.getClass().getName() == "tidemark.ModesByCallFileSystem"
    set_modes_by_call(spark)
    assert local_file_system(spark).getRaw().equals(replaced)


def test_files_have_their_modes_and_checksums(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).coalesce(1).write.parquet(str(tmp_path / "table"))
    (data,) = (tmp_path / "table").glob("part-*")
    assert stat.S_IMODE(data.stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "table").stat().st_mode) == 0o755
    assert (data.parent / f".{data.name}.crc").is_file()
    assert spark.read.parquet(str(tmp_path / "table")).count() == 3


@pytest.mark.parametrize("mode", [0o600, 0o750, 0o1777])
def test_any_mode_can_be_set(spark: SparkSession, tmp_path: Path, mode: int) -> None:
    set_mode(spark, tmp_path, mode)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == mode


def test_what_is_not_there_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="NoSuchFile"):
        set_mode(spark, tmp_path / "none", 0o600)
