"""YAML is read as `kubectl` reads it, and what cannot be read is explained."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from manifest_cases import GRPO, PPO, edited

from rlhf_api.document import parse
from rlhf_api.errors import InvalidManifestError
from rlhf_api.validation import load_job, load_jobs

EXAMPLE = (Path(__file__).parents[2] / "examples" / "ppo-spelling.yaml").read_text(encoding="utf-8")


def value_of(text: str) -> Any:
    (document,) = parse(f"x: {text}")
    return document.value.get("x")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1e-4", 0.0001),
        ("2E3", 2000),
        ("1.0", 1),
        (".5", 0.5),
        ("-3", -3),
        ("0x1F", 31),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        ("1.2.3", "1.2.3"),
        ("yes", True),
        ('"1"', "1"),
        ("~", None),
        ("", None),
        ("{a: null, b: 1}", {"b": 1}),
        ("[null]", [None]),
    ],
)
def test_plain_values_mean_what_they_mean_to_kubernetes(text: str, want: Any) -> None:
    value = value_of(text)
    assert value == want
    assert type(value) is type(want)


def test_anchors_and_merge_keys_work() -> None:
    (document,) = parse("base: &base {cpu: 1, memory: 2}\nrole: {<<: *base, memory: 3}")
    assert document.value["role"] == {"cpu": 1, "memory": 3}


def test_json_is_read_too() -> None:
    assert load_job('{"apiVersion": "rlhf.dev/v1alpha1"' + yaml_as_json(), source="job.json").name == "job"


def yaml_as_json() -> str:
    import json

    return "," + json.dumps({key: value for key, value in PPO.items() if key != "apiVersion"})[1:]


def test_every_document_is_read() -> None:
    text = "---\n" + yaml.safe_dump_all([PPO, GRPO]) + "---\n# nothing here\n"
    assert [job.spec.algorithm.name for job in load_jobs(text, source="two.yaml")] == ["PPO", "GRPO"]


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    id: str
    text: str
    want: str


UNREADABLE = (
    Unreadable(id="an empty file", text="", want="job.yaml: must hold an RLHFJob, but is empty"),
    Unreadable(id="nothing but a comment", text="# later\n---\n", want="job.yaml: must hold an RLHFJob, but is empty"),
    Unreadable(id="a list", text="- 1", want="job.yaml:1: must be a mapping with `apiVersion`"),
    Unreadable(id="a sentence", text="train my model", want="job.yaml:1: must be a mapping with `apiVersion`"),
    Unreadable(
        id="a bracket that is never closed",
        text=EXAMPLE.replace("maxNewTokens: 7}", "maxNewTokens: 7"),
        want="job.yaml:12: must be valid YAML: expected ',' or '}', but got ':' at column 15",
    ),
    Unreadable(id="a tab for indentation", text="spec:\n\talgorithm: 1", want="job.yaml:2: must be valid YAML"),
    Unreadable(
        id="a key given twice",
        text=EXAMPLE.replace("    seed: 0", "    seed: 0\n    seed: 1"),
        want="job.yaml:11: spec.algorithm.seed: must be given only once; line 10 has it too",
    ),
    Unreadable(id="a control character", text="a: 1\nb: \x07", want="job.yaml:2: must be plain text"),
    Unreadable(id="a lone surrogate", text=f'{{"kind": "\\ud800", {EXAMPLE!r}: 1}}', want="job.yaml:1: "),
    Unreadable(id="a Python object", text="a: !!python/object:os.system {}", want='YAML tag "tag:yaml.org,2002:python'),
    Unreadable(id="a tag that does not fit", text="a: !!int x", want="job.yaml:1: a: must fit its YAML tag"),
    Unreadable(id="a mapping as a key", text="{a: 1}: 2", want="job.yaml:1: must have plain names as keys"),
    Unreadable(id="an unknown anchor", text="a: *b", want="job.yaml:1: must be valid YAML: found undefined alias"),
    Unreadable(id="an anchor within itself", text="a: &a [*a]", want="nested too deeply"),
    Unreadable(
        id="aliases that multiply",
        text="a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)),
        want="too large for a manifest",
    ),
    Unreadable(id="a thousand brackets", text="a: " + "[" * 1000, want="nested too deeply"),
    Unreadable(id="two megabytes", text="a: " + "x" * 2_000_000, want="must be at most 1,500,000 characters long"),
    Unreadable(
        id="another kind",
        text=EXAMPLE.replace("kind: RLHFJob", "kind: RayJob"),
        want='job.yaml:3: kind: must be "RLHFJob", got "RayJob"',
    ),
    Unreadable(
        id="another version",
        text=EXAMPLE.replace("rlhf.dev/v1alpha1", "rlhf.dev/v1"),
        want='job.yaml:2: apiVersion: must be "rlhf.dev/v1alpha1", got "rlhf.dev/v1"',
    ),
    Unreadable(id="no kind", text="apiVersion: rlhf.dev/v1alpha1", want='kind: must be set to "RLHFJob"'),
    Unreadable(
        id="two jobs where one is wanted",
        text=yaml.safe_dump_all([PPO, PPO]),
        want='job.yaml: must hold one RLHFJob, has 2: "job", "job"',
    ),
)


@pytest.mark.parametrize("case", UNREADABLE, ids=lambda case: case.id)
def test_refuses(case: Unreadable) -> None:
    with pytest.raises(InvalidManifestError) as caught:
        load_job(case.text, source="job.yaml")
    assert case.want in str(caught.value)


def test_errors_of_all_documents_are_told_in_order_with_lines() -> None:
    bad = EXAMPLE.replace("totalSteps: 40", "totalSteps: 0")
    bad = bad.replace("type: Critic", "type: Critics").replace("seed: 0", "sed: 0")
    with pytest.raises(InvalidManifestError) as caught:
        load_jobs(bad + "---\n" + EXAMPLE.replace("RLHFJob", "Pod"), source="job.yaml")
    critic = 1 + next(n for n, line in enumerate(bad.splitlines()) if "Critics" in line)
    assert [(error.line, error.field) for error in caught.value.errors] == [
        (9, "spec.algorithm.totalSteps"),
        (10, "spec.algorithm.sed"),
        (critic, "spec.roles[1].type"),
        (len(bad.splitlines()) + 1 + 3, "kind"),
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PLACES = (
    "metadata", "metadata.name", "spec", "spec.algorithm", "spec.algorithm.seed", "spec.algorithm.ppo", "spec.model",
    "spec.data.procedural.parameters", "spec.roles", "spec.roles[1]", "spec.roles[1].resources", "spec.env", "spec.x",
    "spec.roles[1].restartPolicy.rules", "status",
)  # fmt: skip


@given(place=st.sampled_from(PLACES), value=JSON)
@settings(max_examples=100, deadline=None)
def test_anything_anywhere_is_accepted_or_explained(place: str, value: Any) -> None:
    text = yaml.safe_dump(edited(PPO, {place: value}), allow_unicode=True)
    try:
        load_job(text, source="job.yaml")
    except InvalidManifestError as error:
        assert all("must" in line or "unknown field" in line for line in str(error).splitlines()), str(error)


@given(text=st.text())
@settings(max_examples=100, deadline=None)
def test_any_text_is_explained(text: str) -> None:
    with pytest.raises(InvalidManifestError):
        load_job(text, source="job.yaml")
