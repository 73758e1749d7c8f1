"""The worker image's `ray`: a quick answer to KubeRay's question, and Ray's own command for everything else."""

import socket
import subprocess
import time
from pathlib import Path

COMMAND = Path(__file__).parents[2] / "worker_images/worker/ray"


def health_check(address: str) -> tuple[int, float]:
    began = time.monotonic()
    done = subprocess.run([COMMAND, "health-check", "--address", address], capture_output=True, timeout=30)
    return done.returncode, time.monotonic() - began


def test_a_head_that_listens_is_healthy_without_an_import_of_ray():
    with socket.create_server(("127.0.0.1", 0)) as head:
        code, seconds = health_check(f"127.0.0.1:{head.getsockname()[1]}")
    assert code == 0
    assert seconds < 2


def test_a_head_that_does_not_listen_is_not():
    with socket.create_server(("127.0.0.1", 0)) as head:
        port = head.getsockname()[1]
    assert health_check(f"127.0.0.1:{port}")[0] != 0
    assert health_check(f"none.invalid:{port}")[0] != 0


def test_other_questions_are_rays_own(tmp_path: Path):
    text = COMMAND.read_text().replace("/opt/rlhf/bin/python", str(tmp_path / "python"))
    (tmp_path / "ray").write_text(text)
    (tmp_path / "python").write_text('#!/bin/bash\necho "${@:3}"\n')
    for name in ("ray", "python"):
        (tmp_path / name).chmod(0o755)
    for words in (["start", "--head"], ["health-check", "--address", "a:1", "--component", "serve"], ["health-check"]):
        done = subprocess.run([tmp_path / "ray", *words], capture_output=True, text=True, check=True)
        assert done.stdout.split() == words
