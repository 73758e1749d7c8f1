"""Makes the chart's template of the CustomResourceDefinition, or checks that it is up to date (`--check`).

A template and not a file of Helm's `crds/` folder, since Helm never upgrades what is there. It is the text of
`crds/` with two switches around it.
"""

import sys
from pathlib import Path

from rlhf_api import GROUP
from rlhf_api.crd import PLURAL, render

TEMPLATE = Path(__file__).parents[2] / "charts/rlhf-operator/templates/crd.yaml"
START = "{{- if .Values.crds.enabled }}\n"
METADATA = """  labels: {{- include "rlhf-operator.labels" . | nindent 4 }}
  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
"""
END = "{{- end }}\n"


def template() -> str:
    """The template's text; the same bytes each time."""
    name = f"  name: {PLURAL}.{GROUP}\n"
    before, found, after = render().replace("{{", '{{ "{{" }}').partition(f"metadata:\n{name}")
    assert found, f'the CustomResourceDefinition must begin its metadata with "{name.strip()}"'
    return f"{START}{before}{found}{METADATA}{after}{END}"


def main() -> int:
    text = template()
    if "--check" not in sys.argv:
        TEMPLATE.write_text(text)
    elif not TEMPLATE.exists() or TEMPLATE.read_text() != text:
        print(f"out of date, run `make golden`: {TEMPLATE}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
