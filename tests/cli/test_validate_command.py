from pathlib import Path

import pytest
from click.testing import CliRunner

from rlhf_cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
GOOD = (EXAMPLES / "ppo-spelling.yaml").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(GOOD, encoding="utf-8")
    Path("bad.yaml").write_text(GOOD.replace("type: Critic", "type: Critic\n    replcas: 2"), encoding="utf-8")
    return tmp_path


@pytest.mark.usefixtures("folder")
class TestValidate:
    def test_says_that_a_manifest_is_valid(self) -> None:
        result = CliRunner().invoke(main, ["validate", "good.yaml"])
        assert (result.exit_code, result.output) == (0, "good.yaml: RLHFJob/ppo-spelling is valid\n")

    def test_lists_errors_on_stderr_with_file_line_and_role(self) -> None:
        result = CliRunner().invoke(main, ["validate", "bad.yaml"])
        line = 1 + GOOD.splitlines().index("    type: Critic") + 1
        want = f'bad.yaml:{line}: spec.roles[1].replcas: unknown field "replcas"; did you mean "replicas"?'
        assert (result.exit_code, result.stdout, result.stderr) == (1, "", f'{want} (role "critic")\n')

    def test_checks_every_file_and_ends_with_the_worst_code(self) -> None:
        result = CliRunner().invoke(main, ["validate", "missing.yaml", "bad.yaml", "good.yaml"])
        assert result.exit_code == 2
        assert result.stdout == "good.yaml: RLHFJob/ppo-spelling is valid\n"
        assert "missing.yaml: cannot be read: No such file or directory" in result.stderr
        assert "bad.yaml:" in result.stderr

    def test_reads_standard_input(self) -> None:
        result = CliRunner().invoke(main, ["validate", "-"], input=GOOD)
        assert (result.exit_code, result.output) == (0, "<stdin>: RLHFJob/ppo-spelling is valid\n")

    def test_names_every_job_of_a_file(self) -> None:
        Path("two.yaml").write_text(
            GOOD + "---\n" + (EXAMPLES / "grpo-spelling.yaml").read_text(encoding="utf-8"), encoding="utf-8"
        )
        result = CliRunner().invoke(main, ["validate", "two.yaml"])
        assert result.output.splitlines() == [
            "two.yaml: RLHFJob/ppo-spelling is valid",
            "two.yaml: RLHFJob/grpo-spelling is valid",
        ]

    def test_a_folder_cannot_be_read(self) -> None:
        result = CliRunner().invoke(main, ["validate", "."])
        assert (result.exit_code, result.stderr) == (2, ".: cannot be read: Is a directory\n")

    def test_a_byte_order_mark_is_no_error(self) -> None:
        Path("marked.yaml").write_text(GOOD, encoding="utf-8-sig")
        assert CliRunner().invoke(main, ["validate", "marked.yaml"]).exit_code == 0

    def test_another_encoding_is_named(self) -> None:
        Path("latin.yaml").write_bytes(b"# na\xefve\n" + GOOD.encode())
        result = CliRunner().invoke(main, ["validate", "latin.yaml"])
        assert (result.exit_code, result.stderr) == (1, "latin.yaml: must be text in UTF-8, byte 5 is not\n")

    def test_no_file_is_a_usage_error(self) -> None:
        result = CliRunner().invoke(main, ["validate"])
        assert result.exit_code == 2
        assert "Missing argument 'FILE...'" in result.stderr
