"""The offline side of the tables that a real API server judges too."""

import pytest
from bad_manifests import BAD
from good_manifests import GOOD
from manifest_cases import Case, UpdateCase, edited
from manifest_updates import UPDATES

from rlhf_api.errors import InvalidManifestError
from rlhf_api.rules import check_update
from rlhf_api.types import RLHFJob
from rlhf_api.validation import load_job


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.id)
def test_accepts(case: Case) -> None:
    load_job(case.text, source="job.yaml")


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.id)
def test_a_job_survives_being_written_out(case: Case) -> None:
    job = load_job(case.text, source="job.yaml")
    assert load_job(edited_text(job), source="again.yaml") == job


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.id)
def test_refuses(case: Case) -> None:
    with pytest.raises(InvalidManifestError) as caught:
        load_job(case.text, source="job.yaml")
    found = [error for error in caught.value.errors if error.field == case.want_field]
    assert found, f"want {case.want_field}, got:\n{caught.value}"
    assert case.want_message in str(found[0])


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.id)
def test_one_mistake_gives_one_message(case: Case) -> None:
    with pytest.raises(InvalidManifestError) as caught:
        load_job(case.text, source="job.yaml")
    assert len(caught.value.errors) == 1, str(caught.value)


@pytest.mark.parametrize("case", UPDATES, ids=lambda case: case.id)
def test_judges_a_change(case: UpdateCase) -> None:
    old = load_job(Case(id="before", base=case.base).text, source="old.yaml")
    new = load_job(Case(id="after", base=case.base, set=case.set).text, source="new.yaml")
    want = [case.want_field, *case.want_too] if case.want_field else []
    assert [error.field for error in check_update(old, new)] == want


@pytest.mark.parametrize("case", [case for case in UPDATES if case.want_field], ids=lambda case: case.id)
def test_a_refused_change_is_told_what_to_do_instead(case: UpdateCase) -> None:
    old = load_job(Case(id="before", base=case.base).text, source="old.yaml")
    new = load_job(Case(id="after", base=case.base, set=case.set).text, source="new.yaml")
    assert all("immutable" in str(error) and "make another job" in str(error) for error in check_update(old, new))


def test_case_ids_are_unique() -> None:
    ids = [case.id for case in (*GOOD, *BAD, *UPDATES)]
    assert len(ids) == len(set(ids))


def test_every_rule_is_broken_by_some_bad_manifest() -> None:
    """A rule that no case breaks is a rule that nobody has seen at work."""
    seen: set[str] = set()
    for case in BAD:
        with pytest.raises(InvalidManifestError) as caught:
            load_job(case.text, source="job.yaml")
        seen |= {error.message for error in caught.value.errors}
    job = RLHFJob.model_json_schema()
    models = [job, *job["$defs"].values()]
    rules = {rule["message"] for model in models for rule in model.get("x-kubernetes-validations", ())}
    assert {rule for rule in rules if "immutable" not in rule} - seen == set()


def edited_text(job: RLHFJob) -> str:
    return Case(id="written out", base=edited(job.to_manifest(), {})).text
