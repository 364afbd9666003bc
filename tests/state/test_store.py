from __future__ import annotations

import os
import threading
import traceback
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from tidemark.errors import CorruptStoreError, InvalidNameError, LinkedPathError, StoreError
from tidemark.locations import Location
from tidemark.state.store import layout
from tidemark.state.store.store import JobStore


def test_reads_what_it_wrote(root: JobStore) -> None:
    root.put("a/b.json", b"one")
    root.put("a/b.json", b"two")
    assert root.get("a/b.json") == b"two"
    assert root.exists("a/b.json")
    assert not root.exists("a/c.json")
    with pytest.raises(FileNotFoundError):
        root.get("a/c.json")


def test_create_succeeds_once_and_leaves_the_first(root: JobStore) -> None:
    root.create("a", b"first")
    with pytest.raises(FileExistsError):
        root.create("a", b"second")
    assert root.get("a") == b"first"


def test_of_racing_creators_exactly_one_wins(root: JobStore) -> None:
    barrier, won = threading.Barrier(8), []

    def race(number: int) -> None:
        barrier.wait()
        try:
            root.create("slot", str(number).encode())
        except FileExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert root.get("slot") == str(won[0]).encode()


def test_scoped_views_see_their_folder_only(root: JobStore) -> None:
    job = root.at("taxi")
    job.put("log/1", b"x")
    job.at("log").put("2", b"yy")
    root.put("other", b"")
    assert [(item.path, item.size) for item in job.list()] == [("log/1", 1), ("log/2", 2)]
    assert [item.path for item in job.at("log").list()] == ["1", "2"]
    assert [item.path for item in root.list()] == ["other", "taxi/log/1", "taxi/log/2"]
    assert root.folders() == ("taxi",)
    assert job.folders() == ("log",)
    assert job.list("none") == ()


def test_a_view_does_not_see_a_folder_whose_name_begins_alike(root: JobStore) -> None:
    root.put("taxi2/a", b"")
    assert root.at("taxi").list() == ()


def test_addresses_follow_the_view(root: JobStore, tmp_path: Path) -> None:
    job = root.at("taxi")
    assert job.uri == f"file://{tmp_path}/store/taxi"
    assert job.spark_uri("state/x") == f"file://{tmp_path}/store/taxi/state/x"


def test_deletes_all_even_when_one_is_gone(root: JobStore) -> None:
    for name in "abc":
        root.put(name, b"")
    root.delete(["a", "gone", "b", "c"])
    assert root.list() == ()
    root.delete([])


def test_move_replaces_and_leaves_nothing_behind(root: JobStore) -> None:
    root.put("a", b"new")
    root.put("b/c", b"old")
    root.move("a", "b/c")
    assert [(item.path, item.size) for item in root.list()] == [("b/c", 3)]
    assert root.get("b/c") == b"new"
    with pytest.raises(FileNotFoundError):
        root.move("a", "d")


def test_tail_of_short_and_long_objects(root: JobStore) -> None:
    root.put("a", b"0123456789")
    root.put("empty", b"")
    assert root.tail("a", 4) == (b"6789", 10)
    assert root.tail("a", 400) == (b"0123456789", 10)
    assert root.tail("empty", 4) == (b"", 0)


@pytest.mark.parametrize("path", ["../a", "a/../../b"])
def test_paths_cannot_leave_the_store(root: JobStore, path: str) -> None:
    with pytest.raises(StoreError):
        root.put(path, b"")


def test_a_root_that_is_a_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="file/jobs") as caught:
        JobStore.open(str(tmp_path / "file" / "jobs"))
    assert caught.value.__cause__ is not None
    assert "Fix: " in str(caught.value)


def test_trouble_names_path_and_verb_and_hides_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise GenericError('GET https://acme.blob.core.windows.net/x?sig=hunter2&se=1 failed\nsecret_access_key: "hunter2"')

    monkeypatch.setattr("obstore.get", fail)
    store = JobStore(Location.parse("s3://lake/jobs"), MemoryStore())
    with pytest.raises(StoreError, match="cannot read s3://lake/jobs/log/1") as caught:
        store.get("log/1")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.transient


def test_layout_paths_are_read_back() -> None:
    assert layout.record_path(7) == "log/000000000007.json"
    assert layout.record_slot(layout.record_path(7)) == 7
    assert layout.floor_slot(layout.floor_path(7)) == 7
    assert layout.record_slot(layout.floor_path(7)) is None
    assert layout.record_slot("log/7.json") is None


@pytest.mark.parametrize("name", ["../x", "..", "a..b", "", ".hidden", "a/b", "a\\b", "a b", "x" * 101, "é", "a\n"])
def test_names_that_could_lead_elsewhere_are_refused(name: str) -> None:
    for make in (layout.job_folder, layout.state_folder, layout.source_folder, layout.pin_path):
        with pytest.raises(InvalidNameError, match="Fix: "):
            make(name)


def test_source_names_are_what_spark_takes() -> None:
    assert layout.source_folder("trips_1") == "sources/trips_1"
    with pytest.raises(InvalidNameError):
        layout.source_folder("trips-1")


ODD_NAMES = ("a b/c%20d", "ü/x+=:y", "p=1%3A2/z", "a~b#c", ".hidden/.x.crc", "st*r")


def test_a_local_listing_is_as_obstore_s(tmp_path: Path) -> None:
    store = JobStore.open(str(tmp_path))
    for name in ODD_NAMES:
        store.put(name, name.encode())
    (tmp_path / "half#3").write_text("what obstore is writing")
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe")
    listed = obstore.list(store.objects).collect()
    assert [(file.path, file.size) for file in store.list()] == sorted((item["path"], item["size"]) for item in listed)
    assert store.folders() == tuple(sorted(obstore.list_with_delimiter(store.objects)["common_prefixes"]))
    assert [store.get(name) for name in ODD_NAMES] == [name.encode() for name in ODD_NAMES]
    assert store.delete([*ODD_NAMES, "not there", "not/there"]) == ()
    assert (store.list(), store.folders()) == ((), ("empty",))


@pytest.mark.parametrize("path", ["../outside/x", "a/../../outside/x", "/etc/passwd", "", "a//b", "./a", "a/.."])
def test_no_path_leads_out_of_a_store(tmp_path: Path, root: JobStore, path: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_text("theirs")
    for store in (JobStore.open(str(tmp_path / "inside")), root.at("job")):
        store.put("a", b"x")
        with pytest.raises(CorruptStoreError, match="leads out of"):
            store.delete(["a", path])
        with pytest.raises(CorruptStoreError, match="leads out of"):
            store.move(path, "b")
        if path:
            with pytest.raises(CorruptStoreError, match="leads out of"):
                store.remove_folder(path)
        assert store.exists("a"), "nothing was deleted"
    assert (tmp_path / "outside" / "x").read_text() == "theirs"


def test_links_are_read_and_written_through_and_never_deleted_through(tmp_path: Path) -> None:
    outside, store = tmp_path / "outside", JobStore.open(str(tmp_path / "store"))
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "x").write_text("theirs")
    store.put("own/file", b"")
    inside = tmp_path / "store"
    (inside / "folder").symlink_to(outside)
    (inside / "own" / "link").symlink_to(outside / "deep" / "x")
    (inside / "own" / "nowhere").symlink_to(tmp_path / "not-there")
    (inside / "own" / "loop").symlink_to(inside)
    (inside / "own" / "itself").symlink_to(inside / "own" / "itself")
    assert [file.path for file in store.list()] == ["folder/deep/x", "own/file", "own/link"]
    assert [file.path for file in store.list(follow_links=False)] == ["own/file"]
    assert store.list("folder/deep", follow_links=False) == ()
    assert store.folders("own") == ("loop",)
    assert [Path(link).relative_to(inside).as_posix() for link in store.links()] == [
        "folder", "own/itself", "own/link", "own/loop", "own/nowhere",
    ]  # fmt: skip
    assert store.links("folder/deep") == (str(inside / "folder"),)
    store.put("folder/deep/y", b"ours, behind the link")
    paths = ("folder/deep/x", "folder/deep/y", "own/link", "own/nowhere", "own/loop", "own/file", "own/file/not-a-folder")
    assert store.delete(paths) == paths[:5]
    for path in ("folder/deep/x", "own/link"):
        with pytest.raises(LinkedPathError, match=r"\[TM405\] .* is a symbolic link, and what lies behind it is not deleted"):
            store.require_no_link(path)
        with pytest.raises(LinkedPathError):
            store.move(path, "moved")
    store.remove_folder("folder")
    store.remove_folder("own")
    store.remove_folder("")
    store.prune("folder")
    assert sorted(path.name for path in outside.rglob("*")) == ["deep", "x", "y"]
    assert len(store.links()) == 5
    # A link that is written over is replaced, not followed.
    store.put("own/link", b"ours")
    assert (outside / "deep" / "x").read_text() == "theirs"


def test_a_folder_that_becomes_a_link_since_it_was_listed_is_not_followed(tmp_path: Path) -> None:
    outside, store = tmp_path / "outside", JobStore.open(str(tmp_path / "store"))
    outside.mkdir()
    (outside / "x").write_text("theirs")
    store.put("a/b/x", b"")
    listed = store.list(follow_links=False)
    (tmp_path / "store" / "a" / "b").rename(tmp_path / "store" / "a" / "c")
    (tmp_path / "store" / "a" / "b").symlink_to(outside)
    assert store.delete(file.path for file in listed) == ("a/b/x",)
    assert (outside / "x").exists()
