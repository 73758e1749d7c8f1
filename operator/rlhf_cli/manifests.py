"""Manifests as a command reads them: from a file or standard input, with one exception for all that can be wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

STDIN = "-"

_Parsed = TypeVar("_Parsed")


class ManifestError(Exception):
    """The message is what the user should see, one line for each thing wrong."""


class UnreadableError(ManifestError):
    """The file is not there or cannot be read."""


def read_manifest(file: str, parse: Callable[[str, str], _Parsed]) -> _Parsed:
    """Give a file's text and name to `parse`; `-` is standard input.

    Raises:
        UnreadableError: There is no such file, or it cannot be read.
        ManifestError: It is not valid.
    """
    from rlhf_api.errors import InvalidManifestError

    source = source_name(file)
    try:
        content = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UnreadableError(f"{source}: cannot be read: {reason}") from error
    try:
        return parse(content.decode("utf-8-sig"), source)
    except UnicodeDecodeError as error:
        raise ManifestError(f"{source}: must be text in UTF-8, byte {error.start + 1} is not") from error
    except InvalidManifestError as error:
        raise ManifestError(str(error)) from error


def source_name(file: str) -> str:
    """What messages call the file."""
    return "<stdin>" if file == STDIN else file
