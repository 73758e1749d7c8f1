"""The CustomResourceDefinition, rendered from the models so that the two cannot disagree.

Pydantic's JSON schema holds all that is needed, in a form that Kubernetes does not take: references, `anyOf` with
null, titles, closed objects. `structural` turns it into a structural schema; the rest is the CRD around it.
"""

from typing import Any

import yaml

from rlhf_api import GROUP, KIND, VERSION
from rlhf_api.names import DNS_1035_PATTERN, MAX_JOB_NAME_LENGTH
from rlhf_api.types import RLHFJob

PLURAL = "rlhfjobs"
FILE_NAME = f"{GROUP}_{PLURAL}.yaml"

Schema = dict[str, Any]

_DROPPED = {"title", "additionalProperties", "$defs"}
COLUMNS = (
    ("Algorithm", "string", ".spec.algorithm.name", "The control flow that runs."),
    ("Summary", "string", ".status.summary", "The state in one word."),
    ("Step", "integer", ".status.progress.step", "Steps that are done."),
    ("Reward", "string", ".status.progress.reward", "Mean reward of the last step."),
    ("Ready", "string", ".status.rolesReady", "Roles that are ready of all roles."),
    ("Restarts", "integer", ".status.restarts", "Counted restarts of all roles together."),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the job was created."),
)
"""The columns of `kubectl get`: name, type, path, description."""
WIDE_COLUMNS = (
    ("Steps", "integer", ".spec.algorithm.totalSteps", "Steps after which the job is complete."),
    ("Evaluation", "string", ".status.progress.evaluation", "Accuracy on the held-out problems."),
    ("Snapshot", "integer", ".status.progress.snapshotStep", "The step of the newest snapshot."),
    ("Failure", "string", '.status.conditions[?(@.type=="Failed")].reason', "Why the job failed."),
)
"""These are there with `kubectl get --output=wide`."""


def crd() -> Schema:
    """The CustomResourceDefinition as plain values."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["rlhf"],
                "categories": ["all", "rlhf"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [
                        *(_column(*column) for column in COLUMNS),
                        *(_column(*column) | {"priority": 1} for column in WIDE_COLUMNS),
                    ],
                    "schema": {"openAPIV3Schema": root_schema()},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def _column(name: str, kind: str, path: str, description: str) -> Schema:
    return {"name": name, "type": kind, "jsonPath": path, "description": description}


def render() -> str:
    """The CustomResourceDefinition as YAML; the same bytes each time."""
    header = "# Generated from operator/rlhf_api by `make golden`; edit the models, not this file.\n"
    return header + yaml.dump(crd(), Dumper=_Dumper, sort_keys=True, width=110, allow_unicode=True)


def root_schema() -> Schema:
    """The structural schema of an RLHFJob."""
    raw = RLHFJob.model_json_schema(by_alias=True, mode="validation")
    schema = structural(raw, definitions=raw["$defs"])
    # Kubernetes owns these three: it takes no bounds for them but those of the name.
    properties = schema["properties"]
    for name in ("apiVersion", "kind"):
        properties[name] = {"type": "string", "description": properties[name]["description"]}
    name_schema = {"type": "string", "maxLength": MAX_JOB_NAME_LENGTH, "pattern": DNS_1035_PATTERN}
    properties["metadata"] = {"type": "object", "properties": {"name": name_schema}}
    schema["required"] = ["spec"]
    return schema


def structural(raw: Schema, *, definitions: dict[str, Schema]) -> Schema:
    """Turn a part of pydantic's JSON schema into a structural schema.

    References are put in place, `X | None` becomes `X`, and an object with a default of its own gets `{}`, which
    the API server then fills from the defaults of its fields.
    """
    raw, _ = _resolved(raw, definitions)
    schema: Schema = {key: value for key, value in raw.items() if key not in _DROPPED | {"properties", "items"}}
    if raw.get("x-kubernetes-int-or-string"):
        del schema["type"]
        schema["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if "enum" in schema or "const" in schema:
        schema["enum"] = sorted(schema.get("enum") or [schema.pop("const")])
    if "exclusiveMinimum" in schema:
        schema["minimum"], schema["exclusiveMinimum"] = schema["exclusiveMinimum"], True
    if "exclusiveMaximum" in schema:
        schema["maximum"], schema["exclusiveMaximum"] = schema["exclusiveMaximum"], True
    if schema.get("type") == "integer":
        schema["format"] = "int32" if schema.get("maximum", 2**31) < 2**31 else "int64"
    if "items" in raw:
        schema["items"] = structural(raw["items"], definitions=definitions)
    if isinstance(raw.get("additionalProperties"), dict):
        values = raw["additionalProperties"]
        free = "x-kubernetes-preserve-unknown-fields" in values
        schema["additionalProperties"] = values if free else structural(values, definitions=definitions)
    if "properties" in raw:
        required = raw.get("required", [])
        schema["properties"] = {
            name: _property(field, definitions, optional=name not in required)
            for name, field in raw["properties"].items()
        }
    return schema


def _property(raw: Schema, definitions: dict[str, Schema], *, optional: bool) -> Schema:
    schema = structural(raw, definitions=definitions)
    _, nullable = _resolved(raw, definitions)
    if schema.get("default") in ([], {}, None, ""):
        schema.pop("default", None)
    if optional and not nullable and "properties" in schema:
        schema["default"] = {}
    return schema


def _resolved(raw: Schema, definitions: dict[str, Schema]) -> tuple[Schema, bool]:
    """Follow references and `anyOf` with null; what stands beside them wins. Tells whether null was there."""
    nullable = False
    while "$ref" in raw or "anyOf" in raw:
        beside = {key: value for key, value in raw.items() if key not in ("$ref", "anyOf")}
        if "$ref" in raw:
            inner = definitions[raw["$ref"].rsplit("/", 1)[-1]]
        else:
            choices = [choice for choice in raw["anyOf"] if choice != {"type": "null"}]
            nullable = len(choices) < len(raw["anyOf"])
            assert len(choices) == 1, f"a structural schema has one type, not {choices}"
            inner = choices[0]
        raw = inner | beside
    return raw, nullable


class _Dumper(yaml.SafeDumper):
    """Writes equal values out each time: Kubernetes' YAML files have no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never write an alias."""
        return True
