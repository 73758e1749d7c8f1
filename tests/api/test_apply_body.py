"""Bodies of server-side applies: JSON that a YAML reader takes as the same."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rlhf_api.apply_body import apply_body

TEXT = st.characters(exclude_categories=["Cs"])


# YAML has no keys of more than 1,024 characters, as they are written.
@given(st.text(TEXT), st.text(TEXT, max_size=100))
def test_any_text_is_read_as_it_was(text: str, key: str) -> None:
    assert yaml.safe_load(apply_body({"values": [text], "keys": {key: 1}})) == {"values": [text], "keys": {key: 1}}


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("broken 😀", r'"broken \U0001f600"'),
        (r"\ud83d\ude00 written out", r'"\\ud83d\\ude00 written out"'),
        ("\\😀", r'"\\\U0001f600"'),
        ("half \ud83d a character", r'"half \ufffd a character"'),
    ],
)
def test_no_surrogate_is_left(text: str, body: str) -> None:
    assert apply_body({"text": text}) == f'{{"text": {body}}}'


def test_what_has_none_is_plain_json() -> None:
    manifest = {"kind": "ConfigMap", "data": {"a": "ключ\n", "b": None, "c": [1.5, True]}}
    assert apply_body(manifest) == json.dumps(manifest)
