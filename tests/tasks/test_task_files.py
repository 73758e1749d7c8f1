import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlhf_api.types.model import FileData
from rlhf_runtime.errors import RlhfError
from rlhf_runtime.tasks.base import exact_match
from rlhf_runtime.tasks.files import load_task_files

GOOD = '{"prompt": "1+1=", "answer": "2"}\n'


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def data(folder: Path, *train: str, **fields: Any) -> FileData:
    return FileData(train=tuple(str(folder / f"{name}.jsonl") for name in train), **fields)


def test_several_files_are_read_in_order(tmp_path: Path) -> None:
    write(tmp_path, a=GOOD, b='\n{"prompt": "2+2=", "answer": "4", "level": 1}\n\n', c='{"prompt": "x", "answer": "y"}')
    task = load_task_files(data(tmp_path, "a", "b", held_out=(str(tmp_path / "c.jsonl"),)))
    assert task.train_prompts == ("1+1=", "2+2=")
    assert task.train_answers == ("2", "4")
    assert (task.heldout_prompts, task.heldout_answers) == (("x",), ("y",))
    assert task.scorer is exact_match
    assert task.name == "a"


def test_other_field_names(tmp_path: Path) -> None:
    write(tmp_path, a='{"q": "1+1=", "a": "2"}')
    task = load_task_files(data(tmp_path, "a", prompt_field="q", answer_field="a"))
    assert (task.train_prompts, task.train_answers) == (("1+1=",), ("2",))


def test_a_line_separator_inside_a_text_does_not_end_the_line(tmp_path: Path) -> None:
    write(tmp_path, a='{"prompt": "one\u2028two", "answer": "2"}\n')
    assert load_task_files(data(tmp_path, "a")).train_prompts == ("one\u2028two",)


def test_windows_line_ends_are_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"prompt": "a", "answer": "b"}\r\n\r\n{"prompt": "c", "answer": "d"}\r\n')
    assert load_task_files(data(tmp_path, "a")).train_prompts == ("a", "c")


REFUSED = {
    "a line that is no JSON": (GOOD + '{"prompt": \n', "a.jsonl:2: must be a JSON object: Expecting value"),
    "a line that is no object": (GOOD + "\n[1, 2]\n", "a.jsonl:3: must be a JSON object, not list"),
    "a line without the prompt": (
        '{"answer": "2", "question": "1+1"}',
        "a.jsonl:1: field `prompt` is missing; there is answer, question",
    ),
    "a line without the answer": (GOOD + '{"prompt": "1"}', "a.jsonl:2: field `answer` is missing; there is prompt"),
    "an answer that is a number": (
        '{"prompt": "1+1=", "answer": 2}',
        "a.jsonl:1: field `answer` must be text and not empty; got 2",
    ),
    "an empty prompt": ('{"prompt": "", "answer": "2"}', "a.jsonl:1: field `prompt` must be text and not empty"),
    "an empty file": ("\n", "a.jsonl: must have at least one problem"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_line_is_refused_with_file_line_and_field(case: str, tmp_path: Path) -> None:
    text, want_message = REFUSED[case]
    write(tmp_path, a=text)
    with pytest.raises(RlhfError) as caught:
        load_task_files(data(tmp_path, "a"))
    assert want_message in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RlhfError, match=r"none\.jsonl: cannot be read: .*No such file"):
        load_task_files(data(tmp_path, "none"))


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RlhfError, match=r"a\.jsonl: cannot be read"):
        load_task_files(data(tmp_path, "a"))


def test_a_prompt_that_is_trained_on_cannot_be_held_out(tmp_path: Path) -> None:
    write(tmp_path, a=GOOD, b=GOOD)
    with pytest.raises(RlhfError, match=r'`spec\.data\.files\.heldOut` must have no prompt .* such as "1\+1="'):
        load_task_files(data(tmp_path, "a", held_out=(str(tmp_path / "b.jsonl"),)))


def test_parquet_without_pyarrow_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RlhfError, match=r"`spec\.data\.files\.format` Parquet must have the package pyarrow"):
        load_task_files(data(tmp_path, "a", format="Parquet"))


@pytest.fixture
def stand_in_pyarrow(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Mapping[str, Any]]]:
    """pyarrow is no dependency: this has the four calls that are used, over rows by file name."""
    files: dict[str, list[Mapping[str, Any]]] = {}

    def read_schema(path: Path) -> Any:
        if path.name not in files:
            raise FileNotFoundError(f"No such file: {path}")
        return types.SimpleNamespace(names=list(files[path.name][0]))

    def read_table(path: Path, columns: list[str] | None) -> Any:
        rows = [{name: row[name] for name in columns or row} for row in files[path.name]]
        return types.SimpleNamespace(to_pylist=lambda: rows)

    parquet = types.ModuleType("pyarrow.parquet")
    parquet.__dict__.update(read_schema=read_schema, read_table=read_table)
    pyarrow = types.ModuleType("pyarrow")
    pyarrow.__dict__.update(ArrowException=type("ArrowException", (Exception,), {}), parquet=parquet)
    monkeypatch.setitem(sys.modules, "pyarrow", pyarrow)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    return files


def test_parquet(stand_in_pyarrow: dict[str, list[Mapping[str, Any]]]) -> None:
    stand_in_pyarrow["a.parquet"] = [{"prompt": "a", "answer": "b", "more": object()}]
    task = load_task_files(FileData(train=("a.parquet",), format="Parquet"))
    assert (task.train_prompts, task.train_answers) == (("a",), ("b",))


def test_parquet_errors_name_file_row_and_field(stand_in_pyarrow: dict[str, list[Mapping[str, Any]]]) -> None:
    stand_in_pyarrow["a.parquet"] = [{"prompt": "a", "answer": "b"}, {"prompt": "a", "answer": None}]
    stand_in_pyarrow["b.parquet"] = [{"prompt": "a", "label": "b"}]
    with pytest.raises(RlhfError, match=r"a\.parquet: row 2: field `answer` must be text and not empty; got None"):
        load_task_files(FileData(train=("a.parquet",), format="Parquet"))
    with pytest.raises(RlhfError, match=r"b\.parquet: row 1: field `answer` is missing"):
        load_task_files(FileData(train=("b.parquet",), format="Parquet"))
    with pytest.raises(RlhfError, match=r"c\.parquet: cannot be read as Parquet: No such file"):
        load_task_files(FileData(train=("c.parquet",), format="Parquet"))
