"""YAML text to plain values with line numbers, read the way `kubectl` reads it.

PyYAML follows YAML 1.1: `1e-4` is a string there and `12:30` a number. Kubernetes disagrees in both,
refuses a key given twice, and takes a field that is `null` as absent. This loader does what Kubernetes
does.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from rlhf_api.errors import UNSET, FieldError, Path

MAX_CHARACTERS = 1_500_000
MAX_NODES = 20_000
MAX_DEPTH = 64
_TAG = "tag:yaml.org,2002:"
_TAGS: dict[type[yaml.Node], tuple[str, ...]] = {
    yaml.ScalarNode: tuple(_TAG + name for name in ("str", "int", "float", "bool", "null")),
    yaml.SequenceNode: (_TAG + "seq",),
    yaml.MappingNode: (_TAG + "map",),
}
_WHOLE = 2**53


class DocumentError(Exception):
    """Text that is not YAML, or YAML that no manifest needs."""

    def __init__(self, message: str, *, line: int | None = None, path: Path = ()) -> None:
        super().__init__(message)
        self.error = FieldError(path=path, message=message, line=line)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own name and form
        first: [(tag, expression) for tag, expression in resolvers if tag[len(_TAG) :] in ("bool", "null", "merge")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(
    _TAG + "int",
    re.compile(r"^[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    _TAG + "float",
    re.compile(r"^([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"),
    list("-+.0123456789"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One YAML document.

    Attributes:
        value: Dictionaries, lists, strings, numbers and booleans.
        lines: The line of each path, counted from 1.
    """

    value: Any
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int | None:
        """The line of a path, or of the nearest part of the document around it."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None

    def get(self, path: Path) -> Any:
        """The value at a path, `UNSET` where there is none."""
        value = self.value
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return UNSET
        return value


class _Builder:
    """Turns one document's nodes into values, counting them: aliases can make a small file huge."""

    def __init__(self, loader: _Loader) -> None:
        self.loader = loader
        self.lines: dict[Path, int] = {}
        self.nodes = 0

    def build(self, node: yaml.Node, path: Path = ()) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self.nodes += 1
        if self.nodes > MAX_NODES or len(path) > MAX_DEPTH:
            raise DocumentError("is nested too deeply or too large for a manifest", line=line)
        if node.tag not in _TAGS[type(node)]:
            raise DocumentError(f'must not use the YAML tag "{node.tag}"', line=line, path=path)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        try:
            value = self.loader.construct_object(node)
        except (ValueError, KeyError) as error:  # an explicit tag that does not fit, `!!int x`
            raise DocumentError(f'must fit its YAML tag "{node.tag}"', line=line, path=path) from error
        whole = isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE
        return int(value) if whole else value

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise DocumentError("must have plain names as keys", line=line, path=path)
            if key.value in seen:
                where = (*path, key.value)
                raise DocumentError(
                    f"must be given only once; line {seen[key.value]} has it too", line=line, path=where
                )
            seen[key.value] = line
        self.loader.flatten_mapping(node)
        result: dict[str, Any] = {}
        for key, child in node.value:
            where = (*path, key.value)
            self.lines[where] = key.start_mark.line + 1
            value = self.build(child, where)
            if value is None:
                result.pop(key.value, None)
            else:
                result[key.value] = value
        return result


def parse(text: str) -> Iterator[Document]:
    """Read YAML text, one document after the other; empty documents are left out.

    Raises:
        DocumentError: The text is not YAML, or no manifest could be like this.
    """
    if len(text) > MAX_CHARACTERS:
        raise DocumentError(f"must be at most {MAX_CHARACTERS:,} characters long, has {len(text):,}")
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            builder = _Builder(loader)
            value = builder.build(node) if node else None
            if value is not None:
                yield Document(value=value, lines=builder.lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        column = f" at column {mark.column + 1}" if mark else ""
        problem = error.problem or error.context or "cannot be read"
        raise DocumentError(f"must be valid YAML: {problem}{column}", line=mark.line + 1 if mark else None) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise DocumentError("must be plain text: YAML allows no control characters", line=line) from error
    except RecursionError as error:
        raise DocumentError("is nested too deeply for a manifest") from error
