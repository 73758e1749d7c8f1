import threading
import time

import pytest

from e2e.cluster import shell
from e2e.cluster.errors import ClusterError, CommandError


def test_output_is_returned_and_input_is_passed():
    assert shell.run(["cat"], stdin="hello") == "hello"


def test_a_failure_shows_the_command_its_exit_code_and_what_it_said():
    with pytest.raises(CommandError, match=r"^no such thing\n\(`sh -c .*` ended with exit code 3\)$"):
        shell.run(["sh", "-c", "echo no such thing >&2; exit 3"])


def test_a_program_that_is_not_installed_is_named():
    with pytest.raises(ClusterError, match="`no-such-program` is not installed"):
        shell.run(["no-such-program"])


def test_a_program_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path):
    started = time.monotonic()
    with pytest.raises(ClusterError, match="took longer than 0 s"):
        shell.run(["sh", "-c", "sleep 30 & sleep 30"], timeout=0.2)
    assert time.monotonic() - started < 10, "the first sleep holds the output open until it is ended too"


def test_an_interrupted_command_ends_what_its_threads_are_running():
    errors = []

    def work():
        try:
            shell.run(["sleep", "30"])
        except CommandError as error:
            errors.append(error.code)

    thread = threading.Thread(target=work)
    thread.start()
    while not shell._running and thread.is_alive():
        time.sleep(0.01)
    shell.end_all()
    thread.join(10)
    assert errors == [-15]
