from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rlhf_cli.main import main


def crd(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["crd", *arguments])


@pytest.fixture(scope="module")
def printed() -> str:
    result = crd()
    assert result.exit_code == 0
    return result.stdout


def test_prints_the_crd(printed: str) -> None:
    assert "kind: CustomResourceDefinition" in printed


def test_writes_the_same_bytes_that_it_prints_and_finds_them_up_to_date(printed: str, tmp_path: Path) -> None:
    file = tmp_path / "crd.yaml"
    assert crd("--output", str(file)).output == ""
    assert file.read_text(encoding="utf-8") == printed
    checked = crd("--check", str(file))
    assert (checked.exit_code, checked.output) == (0, "")


def test_a_file_that_differs_is_refused_with_the_way_to_renew_it(printed: str, tmp_path: Path) -> None:
    file = tmp_path / "crd.yaml"
    file.write_text(printed + "\n", encoding="utf-8")
    result = crd("--check", str(file))
    assert result.exit_code == 1
    assert result.stderr == f"{file} is out of date with the API types: renew it with `make golden`\n"


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (("--check", "missing.yaml"), "'missing.yaml' does not exist"),
        (("--output", "missing/crd.yaml"), "missing/crd.yaml: cannot be written: No such file or directory"),
        (("--output", "a", "--check", "/dev/null"), "must not be given together"),
    ],
    ids=["a missing file to check", "a missing folder to write to", "both at once"],
)
def test_wrong_use_ends_with_2(
    arguments: tuple[str, ...], want: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = crd(*arguments)
    assert result.exit_code == 2
    assert want in result.stderr
