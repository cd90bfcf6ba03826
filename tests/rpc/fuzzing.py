"""Requests that no client sends: valid ones changed in a few places, and bytes that are none.

``Pools`` holds what a server gave out or takes, by the names of fields; what is put into a field comes from
there, from there and changed, or from nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import grpc
from google.protobuf import struct_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

from scrubjay import v1
from scrubjay.channel import from_rpc_error
from scrubjay.errors import ScrubjayError

PATIENCE = 30
"""Seconds for any answer: where none comes, that is the finding."""
DOCUMENTED = set(v1.ErrorReason.values()) - {v1.ERROR_REASON_UNSPECIFIED, v1.ERROR_REASON_INTERNAL}
MOST_BYTES = 1 << 20
"""To which a list is made long."""
MANY = 1001
"""One more than the largest count that any field takes."""

WORDS = [
    *(
        "",
        " ",
        "a",
        "alice",
        "bob",
        "*",
        "work",
        "work/alpha",
        "a//b",
        "/",
        "tea",
        "茶",
        "\0",
        "a\0b",
        "\uffff",
    ),
    *("e\u0301", "👩‍👩‍👧‍👦", "user_id", "-1", "NaN", "null", "0" * 32, "x" * 300, "記" * 6000),
    *("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
]
FIELDS = [
    *("id", "user_id", "scope", "category", "content", "tags", "confidence", "pinned", "privacy_level"),
    *("created_at", "updated_at", "valid_to", "expires_at", "superseded_by", "source", "source.role"),
    *("metadata", "metadata.", "metadata.a", "metadata.a.b", "metadata.\0", "tags.a", "tags.", "etag"),
    *("display_name", "forget_policy", "write_settings", "quotas", "forget_policy.rules", "*", "a.b.c"),
]
"""What a condition, a mask, a stamp or an operation may name."""
_EDGES = [
    0,
    1,
    2,
    9,
    12,
    99,
    200,
    201,
    1000,
    1001,
    *(2**n + off for n in (31, 32, 53, 62, 63, 64) for off in (-1, 0)),
]
_SECONDS = [-62135596801, -62135596800, -1, 253402300799, 253402300800]
_BOUNDS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
NUMBERS = {
    kind: st.sampled_from([n for edge in [*_EDGES, *_SECONDS] for n in {edge, -edge} if least <= n <= most])
    for kind, (least, most) in _BOUNDS.items()
}
DOUBLES = st.sampled_from(
    [0.0, -0.0, 0.5, 1.0, 1.5, -1.0, 5e-324, 1e308, float("nan"), float("inf"), -float("inf")]
)
ENUMS = st.integers(-1, 12) | st.sampled_from([99, 2**31 - 1, -(2**31)])


class Pools(dict[str, list[str | bytes]]):
    """What a field may be given, by its name."""

    def __repr__(self) -> str:
        return f"Pools of {len(self)} fields"  # all of it would hide what failed


@st.composite
def cut_or_changed(draw: st.DrawFn, pool: Sequence[str]) -> str:
    """A text of the pool with a letter changed, a part cut out or put in, or spliced with another of it."""
    text = draw(st.sampled_from(pool))
    at, to = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
    match draw(st.integers(0, 5)):
        case 0:
            return text[:at] + draw(st.sampled_from("0aZ_-.=é\0\n")) + text[at + 1 :]
        case 1:
            return text[:at] + text[to:]
        case 2:
            return text[:at] + text[at:to] * 2 + text[to:]
        case 3:
            return text[:at] + draw(st.sampled_from(pool))[at:]
        case 4:
            return text + draw(st.sampled_from([" ", "=", "\n", "\0", text, "A" * 20_000]))
    return text.swapcase()


def texts(pools: Pools, name: str) -> st.SearchStrategy[str]:
    """A text for a field of this name."""
    own = [one for one in pools.get(name, ()) if isinstance(one, str)] or WORDS
    given = [one for pool in pools.values() for one in pool if isinstance(one, str)]
    return st.one_of(
        st.sampled_from(own), st.sampled_from(WORDS), cut_or_changed(own), cut_or_changed(given), st.text()
    )


def blobs(pools: Pools, name: str) -> st.SearchStrategy[bytes]:
    """Bytes for a field of this name."""
    own = [one for one in pools.get(name, ()) if isinstance(one, bytes)]
    sized = st.sampled_from([0, 8, 15, 16, 17, 24]).flatmap(lambda n: st.binary(min_size=n, max_size=n))
    found = st.binary() | sized
    return found | st.sampled_from(own) | st.sampled_from(own).flatmap(damaged) if own else found


@st.composite
def damaged(draw: st.DrawFn, body: bytes) -> bytes:
    """Bytes with a few flipped, cut out or put in."""
    changed = bytearray(body)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(changed)))
        match draw(st.integers(0, 3)):
            case 0 if at < len(changed):
                changed[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                del changed[at : at + draw(st.integers(1, 8))]
            case 2:
                changed[at:at] = draw(st.binary(min_size=1, max_size=8))
            case _:
                del changed[at:]
    return bytes(changed)


@st.composite
def unknown_fields(draw: st.DrawFn) -> bytes:
    """An encoded field of any number and any wire type, maybe of the wrong one, maybe cut short."""
    number = draw(st.integers(1, 20) | st.sampled_from([100, 2**29 - 1]))
    tag = number << 3 | draw(st.integers(0, 7))
    return _varint(tag) + draw(st.binary(max_size=12))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


_leaves = st.one_of(
    DOUBLES.map(lambda number: struct_pb2.Value(number_value=number)),
    st.sampled_from(WORDS).map(lambda text: struct_pb2.Value(string_value=text)),
    st.sampled_from(["2026-11-30T08:00:00Z", "PRIVATE"]).map(
        lambda text: struct_pb2.Value(string_value=text)
    ),
    st.booleans().map(lambda truth: struct_pb2.Value(bool_value=truth)),
    st.just(struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)),
    st.just(struct_pb2.Value()),
)


json_messages: st.SearchStrategy[struct_pb2.Value] = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(
            lambda values: struct_pb2.Value(list_value=struct_pb2.ListValue(values=values))
        ),
        st.dictionaries(st.sampled_from([*WORDS, "a", "b"]), inner, max_size=3).map(
            lambda members: struct_pb2.Value(struct_value=struct_pb2.Struct(fields=members))
        ),
    ),
    max_leaves=4,
)
"""Values as they travel, some of them no JSON."""


many = _leaves.map(lambda value: struct_pb2.Value(list_value=struct_pb2.ListValue(values=[value] * MANY)))


def nested(depth: int) -> struct_pb2.Value:
    """A list in a list and so on; protobuf itself refuses messages that lie 100 deep, two for each list."""
    value = struct_pb2.Value(bool_value=True)
    for _ in range(depth):
        value = struct_pb2.Value(list_value=struct_pb2.ListValue(values=[value]))
    return value


def change(draw: st.DrawFn, message: Message, pools: Pools) -> None:
    """Change one field of the message, or of one that it holds."""
    if isinstance(message, struct_pb2.Value):
        message.CopyFrom(draw(json_messages | many | st.sampled_from([16, 17, 40]).map(nested)))
        return
    if isinstance(message, struct_pb2.Struct):
        change(draw, message.fields[draw(st.sampled_from(WORDS))], pools)
        return
    if not message.DESCRIPTOR.fields:
        return
    chosen = draw(st.sampled_from(list(message.DESCRIPTOR.fields)))
    how = draw(st.integers(0, 9))
    if how == 0:
        message.ClearField(chosen.name)
    elif chosen.is_repeated:
        _change_list(draw, getattr(message, chosen.name), chosen, pools, how)
    elif chosen.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        inner = getattr(message, chosen.name)
        inner.SetInParent()
        change(draw, inner, pools)
    else:
        setattr(message, chosen.name, draw(scalars(chosen, pools)))


def _change_list(draw: st.DrawFn, held: Any, chosen: FieldDescriptor, pools: Pools, how: int) -> None:
    if chosen.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        if not held or how == 1:
            held.add()
        change(draw, held[draw(st.integers(0, len(held) - 1))], pools)
    elif held and how > 5:
        held[draw(st.integers(0, len(held) - 1))] = draw(scalars(chosen, pools))
    else:
        held.append(draw(scalars(chosen, pools)))
    if how == 2 and _bytes_of(held) * MANY < MOST_BYTES:
        held.extend([held[0]] * MANY)


def _bytes_of(held: Any) -> int:
    """Of all that a list holds: lists in lists are not made long twice."""
    return sum(one.ByteSize() if isinstance(one, Message) else len(str(one)) for one in held)


def scalars(chosen: FieldDescriptor, pools: Pools) -> st.SearchStrategy[Any]:
    """A value for a field."""
    if chosen.type == FieldDescriptor.TYPE_BYTES:
        return blobs(pools, chosen.name)
    match chosen.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return texts(pools, chosen.name)
        case FieldDescriptor.CPPTYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return DOUBLES
        case FieldDescriptor.CPPTYPE_ENUM:
            return ENUMS
    return NUMBERS[chosen.cpp_type]


_EDGES_OF = {
    **_BOUNDS,
    FieldDescriptor.CPPTYPE_DOUBLE: (float("nan"), float("-inf"), 1e308),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 99),
    FieldDescriptor.CPPTYPE_STRING: ("a\0b", "\uffff" * 9000),
    FieldDescriptor.CPPTYPE_BOOL: (True, False),
}


def edges(valid: Message) -> Iterator[Message]:
    """The message with each of its fields, and of the messages in it, at each of its edges."""
    for path, each in _leaves_of(valid, ()):
        raw = each.type == FieldDescriptor.TYPE_BYTES
        for edge in (b"", b"\xff" * 17) if raw else _EDGES_OF[each.cpp_type]:
            message = type(valid)()
            message.CopyFrom(valid)
            held = message
            for step in path:
                held = step(held)
            if each.is_repeated:
                getattr(held, each.name).append(edge)
            else:
                setattr(held, each.name, edge)
            yield message


_Step = Callable[[Any], Any]


def _leaves_of(
    message: Message, path: tuple[_Step, ...]
) -> Iterator[tuple[tuple[_Step, ...], FieldDescriptor]]:
    """Fields that hold no message, each with the steps to what holds it."""
    for each in message.DESCRIPTOR.fields:
        if each.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
            yield path, each
        elif each.is_repeated:
            held = getattr(message, each.name)
            if len(held) and not isinstance(message, struct_pb2.Struct):
                yield from _leaves_of(held[0], (*path, lambda one, name=each.name: getattr(one, name)[0]))
        elif message.HasField(each.name) or each.message_type.file.package == "google.protobuf":
            inner = getattr(message, each.name)
            yield from _leaves_of(inner, (*path, attrgetter(each.name)))


@st.composite
def changed(draw: st.DrawFn, valid: Sequence[Message], pools: Pools) -> Message:
    """One of the valid messages with up to four changes."""
    given = draw(st.sampled_from(valid))
    message = type(given)()
    message.CopyFrom(given)
    for _ in range(draw(st.integers(0, 4))):
        change(draw, message, pools)
    return message


@st.composite
def bodies(draw: st.DrawFn, valid: Sequence[Message], pools: Pools) -> bytes:
    """The bytes of a request: of a changed one, damaged, with more behind them, or of no request."""
    body = draw(changed(valid, pools)).SerializeToString()
    match draw(st.integers(0, 9)):
        case 0:
            return draw(damaged(body))
        case 1:
            return body + draw(unknown_fields())
        case 2:
            return draw(st.binary(max_size=64))
    return body


# --- calling ----------------------------------------------------------------------------------------


@dataclass
class Answer:
    """What came of a call: a message's bytes, or what it was refused with."""

    body: bytes = b""
    error: ScrubjayError | None = None

    @property
    def fields(self) -> list[str]:
        """The paths of the wrong fields."""
        return [] if self.error is None else [one.field for one in self.error.field_violations]


@dataclass(frozen=True)
class Line:
    """A channel and a credential; what is sent goes as it is."""

    channel: grpc.Channel
    credential: str

    def call(self, path: str, body: bytes, *, streams: bool = False, endless: bool = False) -> Answer:
        """The first message of the answer; a stream that ends is read to its end.

        An error that the contract does not have, or no answer in time, is an AssertionError.
        """
        given: Any = {"timeout": PATIENCE, "metadata": (("authorization", f"Bearer {self.credential}"),)}
        try:
            if not streams:
                return Answer(self.channel.unary_unary(path)(body, **given))
            stream = self.channel.unary_stream(path)(body, **given)
            first = next(stream, b"")
            if endless:
                stream.cancel()
            else:
                for _ in stream:
                    pass
            return Answer(first)
        except grpc.RpcError as error:
            return Answer(error=documented(error))


def documented(error: grpc.RpcError) -> ScrubjayError:
    """The error of a refusal, which must be one that the contract has."""
    found = from_rpc_error(error)
    assert found.reason in DOCUMENTED, f"{error!r}"
    assert found.code == type(found).code, f"{error!r}"
    assert found.message, f"{error!r}"
    return found
