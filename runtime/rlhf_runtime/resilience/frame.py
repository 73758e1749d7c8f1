"""The frame around everything that is stored in pieces: it shows whether an object is whole and ours.

8 bytes   magic, "RLHFOBJ1"
4 bytes   length of the header, little endian
header    JSON: {"kind": ..., "nbytes": length of the body, ...}
body      raw bytes
4 bytes   CRC-32 of all that comes before, little endian
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rlhf_runtime.errors import StateCorruptError, WireFormatError
from rlhf_runtime.resilience.state_store import Chunk
from rlhf_runtime.wire import Packed, aligned_buffer
from rlhf_runtime.wire_spec import ColumnSpec

_MAGIC = b"RLHFOBJ1"
_LENGTH = struct.Struct("<I")
_START = len(_MAGIC) + _LENGTH.size


def frame_chunks(kind: str, header: Mapping[str, Any], body: Sequence[Chunk]) -> Iterator[Chunk]:
    """The pieces of an object, ready for `StateStore.write`."""
    nbytes = sum(memoryview(chunk).nbytes for chunk in body)
    text = json.dumps({**header, "kind": kind, "nbytes": nbytes}, separators=(",", ":")).encode()
    crc = 0
    pieces: Iterable[Chunk] = (_MAGIC + _LENGTH.pack(len(text)) + text, *body)
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
        yield piece
    yield _LENGTH.pack(crc)


def read_frame(data: bytes, kind: str, *, where: str) -> tuple[dict[str, Any], memoryview]:
    """The header and the body of an object.

    Raises:
        StateCorruptError: The object is torn, altered, foreign or of another kind; the message says `where`.
    """
    if data[: len(_MAGIC)] != _MAGIC:
        raise StateCorruptError(f'"{where}" was not written by this program: it lacks the mark "{_MAGIC.decode()}"')
    view = memoryview(data)
    try:
        (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
        (crc,) = _LENGTH.unpack(view[-_LENGTH.size :])
        if len(data) < _START + length + _LENGTH.size or zlib.crc32(view[: -_LENGTH.size]) != crc:
            raise StateCorruptError(f'"{where}" is torn or altered: its checksum does not match its {len(data)} bytes')
        header = json.loads(data[_START : _START + length])
        body = view[_START + length : -_LENGTH.size]
        if header["kind"] != kind or header["nbytes"] != body.nbytes:
            raise StateCorruptError(f'"{where}" is of kind "{header["kind"]}", not "{kind}"')
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise StateCorruptError(f'"{where}" is torn or foreign: {error}') from error
    return header, body


def packed_chunks(packed: Packed, *, kind: str = "packed", header: Mapping[str, Any] | None = None) -> Iterator[Chunk]:
    """The pieces of a stored object that holds encoded values."""
    columns = {name: spec.to_json() for name, spec in packed.columns.items()}
    return frame_chunks(kind, {**(header or {}), "columns": columns}, [packed.buffer.data])


def read_packed(data: bytes, *, where: str, kind: str = "packed") -> tuple[dict[str, Any], Packed]:
    """The header, and the encoded values in memory that is aligned as it was.

    Raises:
        StateCorruptError: As `read_frame`.
    """
    header, body = read_frame(data, kind, where=where)
    buffer = aligned_buffer(body.nbytes)
    buffer.data[:] = body
    try:
        columns = {name: ColumnSpec.from_json(spec) for name, spec in header["columns"].items()}
    except (WireFormatError, KeyError, AttributeError) as error:
        raise StateCorruptError(f'"{where}" describes its content wrongly: {error}') from error
    return header, Packed(columns=columns, buffer=buffer)


def unpack_bytes(data: bytes, *, where: str = "stored outputs") -> Packed:
    """The encoded values in an object of `packed_chunks`; raises `StateCorruptError` as `read_frame`."""
    return read_packed(data, where=where)[1]
