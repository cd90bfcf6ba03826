"""What passed on the wire, made readable: HTTP/2 frames taken apart, gRPC messages whole, zlib streams open.

A text may be cut in two by a frame's header or hidden in a compressed page; here it is in one piece.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_HEADER, _MESSAGE_HEADER = 9, 5
_DATA, _PADDED = 0, 0x8
_MOST_INFLATED = 64 * 1024 * 1024
_ZLIB = re.compile(rb"\x78[\x01\x5e\x9c\xda]")


def readable(files: Iterable[Path]) -> Iterator[bytes]:
    """Every byte of these files as it passed, every message in one piece, and what its zlib streams hold."""
    for file in files:
        raw = file.read_bytes()
        yield raw
        for body in _bodies(raw):
            for message in _messages(body):
                yield message
                yield from inflated(message)


def inflated(data: bytes) -> Iterator[bytes]:
    """What the zlib streams hold that begin anywhere in ``data``, as far as they can be read."""
    for match in _ZLIB.finditer(data):
        try:
            opened = zlib.decompressobj().decompress(data[match.start() :], _MOST_INFLATED)
        except zlib.error:
            continue
        if opened:
            yield opened


def _bodies(raw: bytes) -> list[bytes]:
    """The payload of each HTTP/2 stream of a connection, as far as it came."""
    found: dict[int, bytearray] = defaultdict(bytearray)
    at = len(_PREFACE) if raw.startswith(_PREFACE) else 0
    while at + _FRAME_HEADER <= len(raw):
        size = int.from_bytes(raw[at : at + 3], "big")
        kind, flags = raw[at + 3], raw[at + 4]
        stream = int.from_bytes(raw[at + 5 : at + 9], "big") & 0x7FFFFFFF
        payload = raw[at + _FRAME_HEADER : at + _FRAME_HEADER + size]
        at += _FRAME_HEADER + size
        if kind == _DATA and payload:
            found[stream] += payload[1 : len(payload) - payload[0]] if flags & _PADDED else payload
    return [bytes(body) for body in found.values()]


def _messages(body: bytes) -> Iterator[bytes]:
    """The gRPC messages of a stream; the last one as far as it came."""
    at = 0
    while at + _MESSAGE_HEADER <= len(body):
        size = int.from_bytes(body[at + 1 : at + _MESSAGE_HEADER], "big")
        yield body[at + _MESSAGE_HEADER : at + _MESSAGE_HEADER + size]
        at += _MESSAGE_HEADER + size
