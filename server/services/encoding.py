"""Answers joined from messages that are already encoded.

A stored memory keeps its encoded message; an answer of ten hits is a join of ten byte strings, some
hundred times cheaper than building it from values. The fields written here by hand are checked against
the descriptors when this module is imported.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from google.protobuf.descriptor import Descriptor

from scrubjay import v1

_DOUBLE = struct.Struct("<d")
_LENGTH_DELIMITED = 2
_FIXED64 = 1


def _tag(message: Descriptor, field: str, wire_type: int) -> bytes:
    number = message.fields_by_name[field].number
    if number > 15:
        raise ValueError(f"{message.full_name}.{field} needs a tag of one byte")
    return bytes([number << 3 | wire_type])


_HITS = _tag(v1.SearchResponse.DESCRIPTOR, "hits", _LENGTH_DELIMITED)
_HIT_MEMORY = _tag(v1.SearchHit.DESCRIPTOR, "memory", _LENGTH_DELIMITED)
_HIT_SCORE = _tag(v1.SearchHit.DESCRIPTOR, "score", _FIXED64)
_HIT_BEFORE = _tag(v1.SearchHit.DESCRIPTOR, "before", _LENGTH_DELIMITED)
_HIT_AFTER = _tag(v1.SearchHit.DESCRIPTOR, "after", _LENGTH_DELIMITED)
_LISTED = _tag(v1.ListResponse.DESCRIPTOR, "memories", _LENGTH_DELIMITED)
_GOT = _tag(v1.GetResponse.DESCRIPTOR, "memory", _LENGTH_DELIMITED)
_BATCH_GOT = _tag(v1.BatchGetResponse.DESCRIPTOR, "memories", _LENGTH_DELIMITED)


def search_response(hits: Iterable[tuple[bytes, float, bytes]], rest: v1.SearchResponse) -> bytes:
    """Hits as (memory, score, the hit's other fields), then the response's."""
    return b"".join(_delimited(_HITS, _hit(*hit)) for hit in hits) + rest.SerializeToString()


def _hit(memory: bytes, score: float, rest: bytes) -> bytes:
    return _delimited(_HIT_MEMORY, memory) + _HIT_SCORE + _DOUBLE.pack(score) + rest


def neighbours(before: Iterable[bytes], after: Iterable[bytes]) -> bytes:
    """A hit's neighbours, as a part of its other fields."""
    earlier = b"".join(_delimited(_HIT_BEFORE, memory) for memory in before)
    return earlier + b"".join(_delimited(_HIT_AFTER, memory) for memory in after)


def list_response(memories: Iterable[bytes], rest: v1.ListResponse) -> bytes:
    """Encoded memories, then the other fields."""
    return b"".join(_delimited(_LISTED, memory) for memory in memories) + rest.SerializeToString()


def get_response(memory: bytes, rest: v1.GetResponse) -> bytes:
    """One encoded memory, then the other fields."""
    return _delimited(_GOT, memory) + rest.SerializeToString()


def batch_get_response(memories: Iterable[bytes], rest: v1.BatchGetResponse) -> bytes:
    """Encoded memories, then the other fields."""
    return b"".join(_delimited(_BATCH_GOT, memory) for memory in memories) + rest.SerializeToString()


def _delimited(tag: bytes, body: bytes) -> bytes:
    length = len(body)
    if length < 0x80:
        return tag + bytes((length,)) + body
    size = bytearray()
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return tag + size + body
