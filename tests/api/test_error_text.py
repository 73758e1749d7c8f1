import math

import pytest

from rlhf_api.errors import FieldError, InvalidManifestError, format_path


@pytest.mark.parametrize(
    ("path", "want"),
    [
        (("spec", "roles", 2, "restartPolicy", "maxRestarts"), "spec.roles[2].restartPolicy.maxRestarts"),
        (("metadata", "labels", "rlhf.dev/x"), 'metadata.labels["rlhf.dev/x"]'),
        (("spec", "\x1b[31m"), 'spec["\\u001b[31m"]'),
        (("spec", ""), 'spec[""]'),
    ],
)
def test_paths_look_as_they_do_in_kubernetes(path: tuple[str | int, ...], want: str) -> None:
    assert format_path(path) == want


@pytest.mark.parametrize(
    ("error", "want"),
    [
        (FieldError(path=(), message="must be text"), "must be text"),
        (FieldError(path=("a",), message="must be 1", value="x"), 'a: must be 1, got "x"'),
        (FieldError(path=("a",), message="must be 1", value=False), "a: must be 1, got false"),
        (FieldError(path=("a",), message="must be 1", value=math.nan), "a: must be 1, got NaN"),
        (FieldError(path=("a",), message="must be 1", value={"b": 1}), "a: must be 1"),
        (FieldError(path=("a",), message="must be 1", value="\x1b[2J"), 'a: must be 1, got "\\u001b[2J"'),
        (FieldError(path=("a",), message="must be 1", hint="did you mean it?"), "a: must be 1; did you mean it?"),
        (FieldError(path=("a",), message="must be 1", role="critic"), 'a: must be 1 (role "critic")'),
    ],
)
def test_an_error_reads_as_one_line(error: FieldError, want: str) -> None:
    assert str(error) == want


def test_a_long_value_is_cut() -> None:
    assert len(str(FieldError(path=("a",), message="must be short", value="x" * 5000))) < 120


def test_each_line_begins_with_file_and_line() -> None:
    error = InvalidManifestError(
        [FieldError(path=("a",), message="must be 1", line=7), FieldError(path=("b",), message="must be 2")],
        source="job.yaml",
    )
    assert str(error) == "job.yaml:7: a: must be 1\njob.yaml: b: must be 2"
