"""The limit of a container's memory, read from files as Linux has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidemark.spark.resources.container_memory import container_memory
from tidemark.state.status.resources import ContainerMemory


def machine(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_version_2_takes_the_tightest_limit_above_the_process(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/pod/driver\n",
        "sys/fs/cgroup/pod/memory.max": "4000\n",
        "sys/fs/cgroup/pod/memory.current": "3000\n",
        "sys/fs/cgroup/pod/memory.stat": "anon 2500\ninactive_file 400\n",
        "sys/fs/cgroup/pod/driver/memory.max": "max\n",
        "sys/fs/cgroup/pod/driver/memory.current": "2900\n",
        "sys/fs/cgroup/pod/driver/memory.stat": "anon 2500\ninactive_file 400\n",
    }
    assert container_memory(machine(tmp_path, files)) == ContainerMemory(4000, 2600)


def test_a_path_of_the_host_leads_to_the_container_s_own_mount(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/kubepods/burstable/pod1/c1\n",
        "sys/fs/cgroup/memory.max": "1000\n",
        "sys/fs/cgroup/memory.current": "900\n",
        "sys/fs/cgroup/memory.stat": "inactive_file 1000\n",
    }
    assert container_memory(machine(tmp_path, files)) == ContainerMemory(1000, 0)


def test_version_1(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:cpu:/job\n4:memory:/job\n0::/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "80000\n",
        "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 10\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "5000\n",
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "4000\n",
        "sys/fs/cgroup/memory/job/memory.stat": "inactive_file 1\ntotal_inactive_file 100\n",
    }
    assert container_memory(machine(tmp_path, files)) == ContainerMemory(5000, 3900)


def test_no_limit_is_none(tmp_path: Path) -> None:
    assert container_memory(tmp_path) is None
    unlimited = {
        "proc/self/cgroup": "4:memory:/\n0::/\n\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "80000\n",
        "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 10\n",
        "sys/fs/cgroup/memory.max": "max\n",
        "sys/fs/cgroup/memory.current": "5\n",
        "sys/fs/cgroup/memory.stat": "broken line here\n",
    }
    assert container_memory(machine(tmp_path, unlimited)) is None
