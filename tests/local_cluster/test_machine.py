import os
import platform
import shutil
from types import SimpleNamespace

import pytest

from e2e.cluster import builds
from e2e.cluster.errors import CannotRunHereError
from e2e.cluster.up import need_space, need_this_machine


def test_without_root_one_line_says_so(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(
        CannotRunHereError, match=r"^the cluster needs root, for namespaces and cgroups: run it with sudo$"
    ):
        need_this_machine()


def test_elsewhere_than_on_linux_one_line_says_so(monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(CannotRunHereError, match=r"^the cluster needs Linux, not Darwin$"):
        need_this_machine()


def test_without_go_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("RLHF_CACHE_DIR", str(tmp_path))
    with pytest.raises(CannotRunHereError, match=r"^Go is needed .*: install Go 1\.26 or newer"):
        builds.build(builds.PAUSE)


def test_too_little_disk_for_the_first_build_is_said_at_once(monkeypatch, tmp_path):
    monkeypatch.setenv("RLHF_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3e9))
    with pytest.raises(
        CannotRunHereError, match=r"^the first build needs 25 GB of free disk in .*, and 3 GB are: set RLHF"
    ):
        need_space()


def test_with_images_on_the_disk_no_more_of_it_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("RLHF_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3e9))
    (tmp_path / "cluster/images").mkdir(parents=True)
    (tmp_path / "cluster/images/seed.json").write_text("{}")
    need_space()


def test_a_build_is_named_by_all_that_it_is_made_from(monkeypatch, tmp_path):
    monkeypatch.setattr(builds, "PROGRAMS", tmp_path)
    (tmp_path / "pause").mkdir()
    (tmp_path / "pause/go.mod").write_text("module a")
    first = builds.find(builds.PAUSE)
    assert builds.find(builds.PAUSE) == first
    (tmp_path / "pause/go.mod").write_text("module b")
    assert builds.find(builds.PAUSE) != first
