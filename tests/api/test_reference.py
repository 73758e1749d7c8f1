"""docs/api.md: up to date, every link leads somewhere, and every field of the schema is in it."""

import re
from pathlib import Path

import pytest
from test_crd_lint import NODES, last

from rlhf_api import reference

FILE = Path(__file__).parents[2] / "docs" / "api.md"
TEXT = reference.render()


def section(heading: str) -> str:
    return TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def row(heading: str, field: str) -> str:
    (found,) = [line for line in section(heading).splitlines() if line.startswith(f"| `{field}` |")]
    return found


def test_the_file_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == TEXT, "renew it with `make golden`"


def test_every_link_leads_to_a_section() -> None:
    headings = re.findall(r"^## (.*)$", TEXT, re.M)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert len(anchors) == len(headings)
    assert set(re.findall(r"\(#([^)]*)\)", TEXT)) == anchors


def test_every_field_of_the_schema_is_described() -> None:
    described = set(re.findall(r"^\| `(\w+)` \|", TEXT, re.M))
    assert {last(path) for path, _ in NODES if path.split(".")[1:] and path[-1].isalnum()} <= described


@pytest.mark.parametrize(
    ("heading", "field", "want"),
    [
        ("spec", "roles", ("list of [objects](#specroles)", "**required**", "1 to 16 items", "immutable")),
        ("spec", "suspend", ("boolean", "`false`")),
        ("spec.algorithm.ppo", "clipRange", ("number", "`0.2`", "Above 0, at most 10")),
        ("spec.algorithm", "name", ("**required**", "One of `Custom`, `GRPO`, `PPO`")),
        ("spec.roles[].resources", "memory", ("quantity",)),
        ("spec.roles[].worker", "arguments", ("map to number, string or boolean", "At most 64 keys")),
        ("spec.roles[]", "engine", ("[object](#specrolesengine)", "Immutable")),
        ("spec.head", "pod", ("[object](#specrolespod)",)),
    ],
)
def test_a_field_is_told_with_type_default_and_limits(heading: str, field: str, want: tuple[str, ...]) -> None:
    assert [part for part in want if part not in row(heading, field)] == []


def test_rules_between_fields_are_there() -> None:
    assert "`roles`: must have exactly one role of type Critic for PPO" in section("spec")
    assert "`name`: must not be one of RLHF_JOB" in section("spec.env[]")


def test_an_object_of_several_places_is_told_once() -> None:
    assert "The same at `spec.head.pod`, `spec.controller.pod`." in section("spec.roles[].pod")
