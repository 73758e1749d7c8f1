"""The troubleshooting page has every word that a user may see, and quotes what the programs really say."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlhf_api.enums import FailureReason
from rlhf_api.reasons import ConditionReason
from rlhf_operator.planning import events, status

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
SPEAKERS = (
    *(PROJECT / "operator/rlhf_operator").glob("planning/*.py"),
    *(PROJECT / "operator/rlhf_operator").glob("*.py"),
    PROJECT / "operator/rlhf_operator/kube/errors.py",
    PROJECT / "operator/rlhf_operator/manifests/state.py",
    *(PROJECT / "runtime/rlhf_runtime/service").glob("*.py"),
    *(PROJECT / "runtime/rlhf_runtime/control").glob("*.py"),
    PROJECT / "runtime/rlhf_runtime/executor.py",
    PROJECT / "runtime/rlhf_runtime/job/run_folder.py",
)
LEAST_LETTERS = 20
"""A pattern with fewer letters of its own would match anything."""


def section(heading: str) -> str:
    """A part of the page, up to the next heading of its level."""
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def words_of_a_table(text: str) -> list[str]:
    """The words in the first column."""
    first_cells = re.findall(r"^\| (`[^|]+?) \|", text, re.M)
    return [word for cell in first_cells for word in re.findall(r"`(\w+)`", cell)]


def test_every_reason_of_a_condition_has_one_entry_and_no_other_word_has() -> None:
    entries = re.findall(r"^### ([A-Z]\w+)$", PAGE, re.M)
    entries += words_of_a_table(section("Suspended, and other reasons that need nobody"))
    assert sorted(entries) == sorted(ConditionReason)


def test_every_kind_of_failure_of_a_role_is_explained() -> None:
    assert sorted(words_of_a_table(section("LAST FAILURE: why a role was restarted"))) == sorted(FailureReason)


def test_every_word_of_the_summary_is_explained() -> None:
    source = ast.parse(Path(status.__file__).read_text(encoding="utf-8"))
    function = next(
        node for node in source.body if isinstance(node, ast.FunctionDef) and node.name == status.summary.__name__
    )
    told = {node.value for node in ast.walk(function) if isinstance(node, ast.Constant) and node.value}
    want = {"Complete", "Failed", *status._WORDS.values(), *told} - {ast.get_docstring(function)}
    assert set(words_of_a_table(section("SUMMARY: the word in `kubectl get`"))) == want


def test_every_event_that_is_no_condition_is_explained() -> None:
    told = set(events._NEWS.values()) | {"Resumed"}
    for module in ("planning/events.py", "planning/reconcile.py", "planning/rollout.py"):
        text = (PROJECT / "operator/rlhf_operator" / module).read_text(encoding="utf-8")
        told |= set(re.findall(r'reason="(\w+)"', text))
    assert set(words_of_a_table(section("Events"))) == told


def quotations() -> list[str]:
    """The page's quotations, each on one line."""
    found = []
    for block in re.findall(r"(?:^>.*\n)+", PAGE, re.M):
        text = re.sub(r"^> ?", "", block, flags=re.M)
        found += [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    return found


def sayings() -> Iterator[str]:
    """What the programs can say, as patterns: each text in their sources, with anything in place of values.

    A value called `hint` is not anything, but one of the texts that the sources call so.
    """
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in SPEAKERS]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    hints = [
        pattern(node.value, hint=".*")
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "hint"
    ]
    some_hint = f"(?:{'|'.join(hints)})"
    for node in nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp) and letters(node) >= LEAST_LETTERS:
            yield pattern(node, hint=some_hint).removesuffix(r"\s+")


def letters(node: ast.expr) -> int:
    """How much of a text is not values."""
    return sum(len(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant) and type(part.value) is str)


def pattern(node: ast.expr, *, hint: str) -> str:
    """What a text can become."""
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"(?:\\?\s)+", r"\\s+", re.escape(text))
        case ast.JoinedStr(values=parts):
            return "".join(pattern(part, hint=hint) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return pattern(left, hint=hint) + pattern(right, hint=hint)
        case ast.IfExp(body=body, orelse=otherwise):
            return f"(?:{pattern(body, hint=hint)}|{pattern(otherwise, hint=hint)})"
        case ast.FormattedValue(value=ast.Name(id="hint")):
            return hint
        case _:
            return ".*"


PATTERNS = [re.compile(text) for text in sayings()]


@pytest.mark.parametrize("quoted", quotations(), ids=lambda text: text[:60])
def test_a_quotation_is_what_the_programs_say(quoted: str) -> None:
    assert any(known.fullmatch(quoted) for known in PATTERNS)


def test_a_message_that_nobody_says_would_be_noticed() -> None:
    assert not any(known.fullmatch('role "critic": it is on holiday. Make a claim.') for known in PATTERNS)
    changed = 'role "critic": its pods are refused: no. The ResourceQuota "small" of the namespace may allow more.'
    assert not any(known.fullmatch(changed) for known in PATTERNS)
