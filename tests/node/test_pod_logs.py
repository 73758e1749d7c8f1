"""What role processes append to their log files comes out of the pod: every line whole, once, and in order."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlhf_runtime.pod_logs import LogCopier


@pytest.fixture
def writer() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a role's."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


class Pod:
    """A folder of links, and what the copier made of it."""

    def __init__(self, folder: Path) -> None:
        self.links, self.volume = folder / "links", folder / "volume"
        self.links.mkdir()
        self.volume.mkdir()
        self._output = io.BytesIO()
        self.copier = LogCopier(str(self.links), self._output)

    def link(self, name: str, pid: int, *, to: str, offset: int | None = None) -> None:
        file = self.volume / to
        offset = (file.stat().st_size if file.exists() else 0) if offset is None else offset
        (self.links / f"{name}.{pid}@{offset}").symlink_to(file)

    def append(self, name: str, text: str) -> None:
        with (self.volume / name).open("a") as file:
            file.write(text)

    def copied(self, *, last: bool = False) -> str:
        self.copier.copy(last=last)
        text = self._output.getvalue().decode()
        self._output.seek(0)
        self._output.truncate()
        return text


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    pod = Pod(tmp_path)
    yield pod
    pod.copier.copy(last=True)


def test_only_what_this_pods_process_appends_is_copied(pod: Pod) -> None:
    pod.append("critic.log", "an attempt in another pod\n")
    pod.link("critic", os.getpid(), to="critic.log")
    pod.append("critic.log", "mine\n")
    assert pod.copied() == "mine\n"
    assert pod.copied() == ""


def test_a_line_is_copied_when_it_is_whole(pod: Pod) -> None:
    pod.link("critic", os.getpid(), to="critic.log")
    pod.append("critic.log", "one\nhalf of ")
    assert pod.copied() == "one\n"
    pod.append("critic.log", "a line\n")
    assert pod.copied() == "half of a line\n"


def test_half_a_line_is_copied_at_the_end(pod: Pod) -> None:
    pod.link("critic", os.getpid(), to="critic.log")
    pod.append("critic.log", "cut off")
    assert pod.copied(last=True) == "cut off\n"


def test_the_last_words_of_a_process_that_died_before_it_was_seen_are_copied(
    pod: Pod, writer: subprocess.Popen[bytes]
) -> None:
    pod.link("critic", writer.pid, to="critic.log")
    pod.append("critic.log", "Fatal Python error")
    writer.kill()
    writer.wait()
    assert pod.copied() == "Fatal Python error\n"
    assert list(pod.links.iterdir()) == []


def test_a_successor_in_another_pod_is_not_copied(pod: Pod, writer: subprocess.Popen[bytes]) -> None:
    pod.link("critic", writer.pid, to="critic.log")
    pod.append("critic.log", "mine\n")
    assert pod.copied() == "mine\n"
    writer.kill()
    writer.wait()
    assert pod.copied() == ""
    pod.append("critic.log", "of the next attempt, in another pod\n")
    assert pod.copied() == ""


def test_a_successor_in_the_same_pod_goes_on_without_loss_or_repetition(
    pod: Pod, writer: subprocess.Popen[bytes]
) -> None:
    pod.link("critic", writer.pid, to="critic.log")
    pod.append("critic.log", "first\n")
    writer.kill()
    writer.wait()
    pod.link("critic", os.getpid(), to="critic.log")  # before anybody has seen that the first is gone
    pod.append("critic.log", "second\n")
    assert pod.copied() == "first\nsecond\n"
    pod.append("critic.log", "third\n")
    assert pod.copied() == "third\n"


def test_a_successor_that_is_found_after_the_end_was_copied_repeats_nothing(
    pod: Pod, writer: subprocess.Popen[bytes]
) -> None:
    pod.link("critic", writer.pid, to="critic.log")
    pod.append("critic.log", "first\n")
    writer.kill()
    writer.wait()
    offset = len("first\n")
    pod.append("critic.log", "second\n")  # copied with the first one's, whose end it cannot be told from
    assert pod.copied() == "first\nsecond\n"
    pod.link("critic", os.getpid(), to="critic.log", offset=offset)
    pod.append("critic.log", "third\n")
    assert pod.copied() == "third\n"


def test_a_truncated_file_is_copied_from_its_new_beginning(pod: Pod) -> None:
    pod.link("critic", os.getpid(), to="critic.log")
    pod.append("critic.log", "a long first line\n")
    pod.copied()
    (pod.volume / "critic.log").write_text("new\n")
    assert pod.copied() == "new\n"


def test_files_without_a_signature_are_copied_from_their_beginning(pod: Pod) -> None:
    (pod.links / "plain.log").write_text("a file\n")
    (pod.links / "later").symlink_to(pod.volume / "later.log")
    (pod.links / "folder").mkdir()
    assert pod.copied() == "a file\n"
    pod.append("later.log", "its target came later\n")
    assert pod.copied() == "its target came later\n"


def test_a_line_without_end_does_not_fill_the_memory(pod: Pod) -> None:
    pod.link("critic", os.getpid(), to="critic.log")
    pod.append("critic.log", "x" * (3 << 20))
    assert len(pod.copied()) >= 2 << 20
