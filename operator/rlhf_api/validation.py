"""Offline validation: YAML text to an `RLHFJob`, or to errors that name field, line and what would be right.

The order is the API server's: first the shape of the document (types, bounds, unknown fields), then, when
that is sound, the rules between fields.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace

from pydantic import ValidationError

from rlhf_api import API_VERSION, KIND
from rlhf_api.document import Document, DocumentError, parse
from rlhf_api.errors import FieldError, InvalidManifestError, Path
from rlhf_api.messages import explain
from rlhf_api.rules import broken_rules
from rlhf_api.types import RLHFJob


def load_job(text: str, *, source: str) -> RLHFJob:
    """Read the one job of a manifest.

    Args:
        text: YAML or JSON.
        source: What to call the text in messages, usually the file's name.

    Raises:
        InvalidManifestError: The text holds no valid RLHFJob, or more than one.
    """
    jobs = load_jobs(text, source=source)
    if len(jobs) > 1:
        names = ", ".join(f'"{job.name}"' for job in jobs)
        message = f"must hold one {KIND}, has {len(jobs)}: {names}"
        raise InvalidManifestError([FieldError(path=(), message=message)], source=source)
    return jobs[0]


def load_jobs(text: str, *, source: str) -> list[RLHFJob]:
    """Read every job of a manifest, which has at least one.

    Args:
        text: YAML or JSON, one document or several.
        source: What to call the text in messages, usually the file's name.

    Raises:
        InvalidManifestError: A document is no valid RLHFJob; it tells of the errors of all documents.
    """
    jobs: list[RLHFJob] = []
    errors: list[FieldError] = []
    try:
        for document in parse(text):
            job, found = _check(document)
            errors += found
            if job is not None:
                jobs.append(job)
    except DocumentError as error:
        errors.append(error.error)
    if not jobs and not errors:
        errors.append(FieldError(path=(), message=f"must hold an {KIND}, but is empty"))
    if errors:
        raise InvalidManifestError(errors, source=source)
    return jobs


def _check(document: Document) -> tuple[RLHFJob | None, list[FieldError]]:
    wrong = list(_wrong_kind(document))
    if wrong:
        return None, _placed(wrong, document)
    try:
        # Strict JSON is how the API server reads: no number for a string, no 1 for true.
        job = RLHFJob.model_validate_json(json.dumps(document.value), strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        return None, _placed(explain(error, document), document)
    broken = (replace(error, value=document.get(error.path)) for error in broken_rules(job))
    return job, _placed(broken, document)


def _wrong_kind(document: Document) -> Iterator[FieldError]:
    if not isinstance(document.value, dict):
        yield FieldError(
            path=(), message=f"must be a mapping with `apiVersion`, `kind`, `metadata`, `spec` of an {KIND}"
        )
        return
    for field, want in (("apiVersion", API_VERSION), ("kind", KIND)):
        found = document.value.get(field)
        if found is None:
            yield FieldError(path=(field,), message=f'must be set to "{want}"')
        elif found != want:
            yield FieldError(path=(field,), message=f'must be "{want}"', value=found)


def _placed(errors: Iterable[FieldError], document: Document) -> list[FieldError]:
    placed = [replace(error, line=document.line(error.path), role=_role_name(document, error.path)) for error in errors]
    return sorted(placed, key=lambda error: error.line or 0)


def _role_name(document: Document, path: Path) -> str | None:
    if path[:2] != ("spec", "roles") or len(path) < 4 or path[3] == "name":
        return None
    name = document.get((*path[:3], "name"))
    return name if isinstance(name, str) else None
