"""What the pages about clusters point to is there: fields, settings, pages and their headings."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs"
PAGES = ("running-on-a-cluster.md", "troubleshooting.md")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"[a-z]\w*(?:\[\w*\])?(?:\.[a-z]\w*(?:\[\w*\])?)+")
FILES = (".md", ".yaml", ".jsonl", ".png", ".json", ".log")


def prose(page: str) -> str:
    return re.sub(r"^```.*?^```$", "", (DOCS / page).read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub makes links of them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def properties(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The paths of all fields, lists as `name[]`."""
    for name, inner in schema.get("properties", {}).items():
        is_list = inner.get("type") == "array"
        here = f"{path}.{name}".lstrip(".")
        yield here
        if is_list:
            yield f"{here}[]"
        yield from properties(inner.get("items", inner), f"{here}[]" if is_list else here)


def settings(values: dict[str, Any], path: str = "") -> Iterator[str]:
    """The paths of the chart's settings."""
    for name, inner in values.items():
        yield f"{path}.{name}".lstrip(".")
        if isinstance(inner, dict):
            yield from settings(inner, f"{path}.{name}")


def known_paths() -> set[str]:
    (crd,) = (PROJECT / "crds").glob("*.yaml")
    schema = yaml.safe_load(crd.read_text(encoding="utf-8"))["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields = set(properties(schema))
    shorter = {field.removeprefix("spec.") for field in fields}
    shorter |= {field.removeprefix("spec.roles[].") for field in fields}
    values = yaml.safe_load((PROJECT / "charts/rlhf-operator/values.yaml").read_text(encoding="utf-8"))
    return fields | shorter | set(settings(values))


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_pages_and_headings(page: str) -> None:
    for link in LINK.findall(prose(page)):
        name, _, anchor = link.partition("#")
        target = (DOCS / name) if name else DOCS / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES)
def test_fields_and_settings_that_a_page_names_exist(page: str) -> None:
    named = {text for text in re.findall(r"`([^`]+)`", prose(page)) if PATH.fullmatch(text)}
    named = {re.sub(r"\[\d+\]", "[]", name) for name in named if not name.endswith(FILES)}
    assert len(named) > 10, "the page must name fields for this test to mean anything"
    assert named - known_paths() - {"limits.cpu"} == set()
