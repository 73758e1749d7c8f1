"""A plain script is one iteration, finished when the interpreter exits; its exit code tells of a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# Imports once, then forks a child for every script; the child goes on here, so that it ends as any interpreter does.
SERVER = """
import os, sys
import toy_workers
from rlhf_runtime.api import Controller, Role

children = {}
for folder in sys.argv[1:]:
    if (child := os.fork()) == 0:
        os.chdir(folder)
        os.dup2(os.open("stdout", os.O_CREAT | os.O_WRONLY), 1)
        os.dup2(os.open("stderr", os.O_CREAT | os.O_WRONLY), 2)
        break
    children[child] = folder
else:
    for child, folder in children.items():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        open(os.path.join(folder, "code"), "w").write(str(code))
    os._exit(0)
exec(compile(open("script.py").read(), "script.py", "exec"))
"""

START = """
from toy_workers import Counter, Echo
from rlhf_runtime.api import Controller, Role

controller = Controller(backend="in-process")
actor = controller.register_role(Role(name="actor", worker_class=Counter))
reward = controller.register_role(Role(name="reward", worker_class=Echo))
"""

CASES = {
    "a last update that nobody reads is still made": (
        'class Writes(Counter):\n    def update(self):\n        print("end")\n'
        'writer = controller.register_role(Role(name="writer", worker_class=Writes))\n'
        'controller.step(role=writer, method="update", outputs=[])\nprint("script ends")',
        0,
        "",
    ),
    "a last update that fails makes the exit code 1": (
        'controller.step(role=reward, method="bad_update", outputs=[])\nprint("end")',
        1,
        "StepError: step 0.0 reward.bad_update failed on reward-worker-000: RuntimeError: half of the weights",
    ),
    "a step that failed unread makes the exit code 1": (
        'controller.step(role=reward, method="fail", outputs=[])\n'
        'controller.step(role=actor, method="update", outputs=[]).wait()\nprint("end")',
        1,
        "StepError: step 0.0 reward.fail failed on reward-worker-000: ValueError: this is wrong",
    ),
    "a failure that the script dealt with does not": (
        'try:\n    controller.step(role=reward, method="fail", outputs=[]).wait()\n'
        'except Exception as error:\n    print("seen")\nprint("end")',
        0,
        "",
    ),
    "the script's own exit code stays": (
        'controller.step(role=actor, method="update", outputs=[])\nprint("end")\nraise SystemExit(3)',
        3,
        "",
    ),
    "a script that crashed does not run what was left": (
        'controller.step(role=reward, method="bad_update", outputs=[])\nprint("end", flush=True)\n1 / 0',
        1,
        "ZeroDivisionError",
    ),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each case, with what its script printed and its exit code."""
    made = {}
    for name, (script, _, _) in CASES.items():
        made[name] = tmp_path_factory.mktemp("script")
        (made[name] / "script.py").write_text(START + script)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    command = [sys.executable, "-c", SERVER, *map(str, made.values())]
    subprocess.run(command, env=env, timeout=200, check=True)
    return made


@pytest.mark.parametrize("name", CASES)
def test_exit_code(folders: dict[str, Path], name: str) -> None:
    _, want_code, want_error = CASES[name]
    code, out, error = (folders[name].joinpath(f).read_text() for f in ("code", "stdout", "stderr"))
    assert (int(code), out.splitlines()[-1:]) == (want_code, ["end"]), error
    if want_error:
        assert want_error in error
    else:
        assert error == ""
