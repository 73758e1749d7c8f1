"""What every Dockerfile of ours keeps to."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from e2e.cluster import paths

OURS = {name: paths.PROJECT / "worker_images" / name / "Dockerfile" for name in ("worker", "operator")}
PROGRAM = paths.PROJECT / "e2e/cluster/images/program/Dockerfile"


def instructions(path: Path) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, continued lines joined and comments left out."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined)]


@pytest.mark.parametrize("path", OURS.values(), ids=OURS)
def test_the_base_can_be_chosen_and_is_a_public_one(path: Path) -> None:
    assert instructions(path)[:2] == [
        ("ARG", "BASE_IMAGE=python:3.11-slim-bookworm"),
        ("FROM", "${BASE_IMAGE}"),
    ]


@pytest.mark.parametrize(("path", "want"), [(OURS["worker"], "1000"), (OURS["operator"], "65532")], ids=OURS)
def test_it_ends_with_a_user_by_number_that_is_not_root(path: Path, want: str) -> None:
    assert [rest for word, rest in instructions(path) if word == "USER"] == [want]
    assert instructions(path)[-1] == ("USER", want)


@pytest.mark.parametrize("path", [*OURS.values(), PROGRAM], ids=[*OURS, "program"])
def test_nothing_is_added_from_a_url(path: Path) -> None:
    assert not [rest for word, rest in instructions(path) if word == "ADD"]
    assert not re.search(r"\b(curl|wget) (-\S+ )*http", path.read_text())


@pytest.mark.parametrize("path", OURS.values(), ids=OURS)
def test_a_changed_file_of_ours_leaves_the_layers_of_the_dependencies_as_they_are(path: Path) -> None:
    steps = [f"{word} {rest}" for word, rest in instructions(path)]
    ours = steps.index("COPY . /opt/rlhf/src")
    dependencies = next(i for i, step in enumerate(steps) if step.startswith("COPY requirements/"))

    assert dependencies < ours
    assert [step.split()[0] for step in steps[ours + 1 :]] == ["RUN", "USER"]


@pytest.mark.parametrize("path", OURS.values(), ids=OURS)
def test_all_python_code_is_compiled(path: Path) -> None:
    installs = [rest for word, rest in instructions(path) if word == "RUN" and "uv pip install" in rest]

    assert len(installs) == 2
    assert all("--compile-bytecode" in rest or "compileall" in rest for rest in installs)


@pytest.mark.parametrize("path", OURS.values(), ids=OURS)
def test_the_dependencies_are_installed_from_a_lock_file_by_hash(path: Path) -> None:
    lock_file = next(rest for word, rest in instructions(path) if rest.startswith("requirements/")).split()[1]

    assert any(f"--require-hashes -r {lock_file}" in rest for _, rest in instructions(path))


@pytest.mark.parametrize("path", OURS.values(), ids=OURS)
def test_its_tools_have_the_versions_of_the_project(path: Path) -> None:
    arguments = dict(rest.split("=", 1) for word, rest in instructions(path) if word == "ARG")
    makefile = (paths.PROJECT / "Makefile").read_text()
    project = tomllib.loads((paths.PROJECT / "pyproject.toml").read_text())

    assert f"UV_VERSION := {arguments['UV_VERSION']}\n" in makefile
    assert project["build-system"]["requires"] == ["hatchling>=1.27"]
    assert tuple(map(int, arguments["HATCHLING_VERSION"].split(".")[:2])) >= (1, 27)


def test_a_programs_image_holds_nothing_else_and_runs_it_without_root() -> None:
    found = instructions(PROGRAM)

    assert found[0] == ("FROM", "scratch")
    assert ("USER", "65532:65532") in found
    assert json.loads(dict(found)["ENTRYPOINT"]) == ["/program"]
