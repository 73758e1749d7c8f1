"""The body of a server-side apply, which Kubernetes reads as YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

CONTENT_TYPE = "application/apply-patch+yaml; charset=utf-8"
"""With the parameter the client library takes the body as it is; without it, it would write JSON of its own."""
_ESCAPE = re.compile(r"\\\\|\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|\\ud[89a-f][0-9a-f]{2}")


def apply_body(manifest: Mapping[str, Any]) -> str:
    """JSON that is YAML too: JSON's escape of a character beyond 16 bits, two surrogates, is none in YAML.

    A surrogate that stands alone, which no text may have, becomes U+FFFD.
    """
    return _ESCAPE.sub(_in_yaml, json.dumps(manifest))


def _in_yaml(found: re.Match[str]) -> str:
    if found[1]:
        high, low = int(found[1], 16), int(found[2], 16)
        return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"
    return found[0] if found[0] == "\\\\" else "\\ufffd"
