import multiprocessing
import os
import time
from pathlib import Path

import pytest

from rlhf_runtime.models.content_cache import cache_root, cached_folder, content_hash


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RLHF_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("environment", "want"),
    [
        ({"RLHF_CACHE_DIR": "/own", "XDG_CACHE_HOME": "/shared"}, "/own"),
        ({"XDG_CACHE_HOME": "/shared"}, "/shared/rlhf"),
        ({"HOME": "/home/someone"}, "/home/someone/.cache/rlhf"),
    ],
)
def test_where_the_cache_lies(environment, want, monkeypatch):
    for name in ("RLHF_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_root() == Path(want)


def test_the_hash_depends_on_content_not_on_order():
    assert content_hash({"a": 1, "b": [2, "ü"]}) == content_hash({"b": [2, "ü"], "a": 1})
    assert content_hash({"a": 1}) != content_hash({"a": 2})


def test_a_folder_is_made_once_and_again_for_other_content():
    made = []

    def build(folder):
        made.append(folder)
        (folder / "file").write_text("whole")

    first = cached_folder("thing", content={"seed": 0}, build=build)
    assert cached_folder("thing", content={"seed": 0}, build=build) == first
    assert len(made) == 1
    assert (first / "file").read_text() == "whole"
    assert cached_folder("thing", content={"seed": 1}, build=build) != first
    assert len(made) == 2


def test_a_failed_build_leaves_nothing_and_can_be_repeated(own_cache):
    def fail(folder):
        (folder / "half").write_text("")
        raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        cached_folder("thing", content={}, build=fail)
    assert [path.name for path in own_cache.iterdir() if path.is_dir()] == []
    folder = cached_folder("thing", content={}, build=lambda draft: (draft / "file").touch())
    assert [path.name for path in folder.iterdir()] == ["file"]


def _build_slowly(folder: Path) -> None:
    with (folder.parent / "builds").open("a") as log:
        log.write(f"{os.getpid()}\n")
    time.sleep(0.3)
    (folder / "file").touch()


def _find(_: int) -> str:
    folder = cached_folder("thing", content={}, build=_build_slowly)
    assert (folder / "file").exists()
    return str(folder)


def test_processes_that_want_the_same_thing_at_once_make_it_once(own_cache):
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        folders = pool.map(_find, range(3), chunksize=1)
    assert len(set(folders)) == 1
    assert len((own_cache / "builds").read_text().splitlines()) == 1
