"""The RLHFJob API: its types, the rules they obey, and the CRD made from them.

The package does no I/O and imports nothing else of this project, so that the command line, the operator and
the runtime can all build on it. `types` holds the models that a user edits, `validation` turns YAML text
into an `RLHFJob` or a list of errors, and `crd` renders the CustomResourceDefinition from the same models.
"""

GROUP = "rlhf.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "RLHFJob"
