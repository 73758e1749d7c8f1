"""What goes wrong with a manifest, said so that the reader knows where to look and what to write instead."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]


class _Unset:
    """Marks an error that has no offending value to show."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Any = _Unset()
_LONGEST_VALUE = 60
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


def format_path(path: Path) -> str:
    """Render a path the way Kubernetes does, `spec.roles[2].name`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not _PLAIN_KEY.fullmatch(part):
            text += f"[{json.dumps(part)}]"
        else:
            text += f".{part}" if text else part
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One thing wrong in one manifest.

    Attributes:
        path: Where in the manifest, `("spec", "roles", 2, "name")`; empty when the whole document is meant.
        message: What would be right.
        value: The value found there, or `UNSET`.
        hint: What was probably meant.
        line: The line in the source, counted from 1, where known.
        role: The name of the role that the path passes through, where there is one.
    """

    path: Path
    message: str
    value: Any = UNSET
    hint: str | None = None
    line: int | None = None
    role: str | None = None

    @property
    def field(self) -> str:
        """The path as text, `spec.roles[2].name`."""
        return format_path(self.path)

    def __str__(self) -> str:
        text = f"{self.field}: {self.message}" if self.path else self.message
        if self.value is not UNSET and not isinstance(self.value, dict | list):
            shown = json.dumps(self.value)
            text += f", got {shown if len(shown) <= _LONGEST_VALUE else shown[:_LONGEST_VALUE] + '...'}"
        if self.hint:
            text += f"; {self.hint}"
        return f'{text} (role "{self.role}")' if self.role else text


class InvalidManifestError(ValueError):
    """A manifest is not a valid RLHFJob.

    Attributes:
        source: The name of the file, or `<stdin>`.
        errors: Everything found wrong, in the order of the manifest.
    """

    def __init__(self, errors: Sequence[FieldError], *, source: str) -> None:
        self.source = source
        self.errors = tuple(errors)
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """One line of text per error, each beginning with file and line."""
        return [
            f"{self.source}:{error.line}: {error}" if error.line else f"{self.source}: {error}" for error in self.errors
        ]
