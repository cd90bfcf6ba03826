"""Whatever is sent to whichever RPC, the answer is one that the contract has, and the server goes on."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rpc.conftest import Serving, served
from rpc.fuzzing import PATIENCE, Answer, Line, bodies, cut_or_changed, edges
from rpc.laboratory import READS, SERVICES, Laboratory, kind_of, laboratory, path_of
from rpc.modelling import with_chat
from scrubjay.errors import CredentialInvalid, CursorInvalid
from scrubjay.memory import parse_time
from server.config import Settings
from tests.chat_server import ChatServer

SHARE = 10
"""Of a profile's examples, each RPC gets one in so many: there are some fifty."""
NAMES = count()
RPCS = [
    *(rpc for service in SERVICES for rpc in service.methods if rpc.name in READS),
    *(rpc for service in SERVICES for rpc in service.methods if rpc.name not in READS),
]
"""Reads come first, while there is what they read."""
BOUNDED = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
PER_RPC = settings(BOUNDED, max_examples=settings().max_examples // SHARE)


class Errors(logging.Handler):
    """What the server logs as an error, or with a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            self.records.append(record)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One server for all that is sent."""
    folder: Path = tmp_path_factory.mktemp("fuzzed")
    given = Settings(listen="127.0.0.1:0", data_dir=folder / "data", embedder="hash")
    with ExitStack() as stack:
        chat = stack.enter_context(ChatServer())
        yield stack.enter_context(served(with_chat(given, chat)))


@pytest.fixture(scope="module")
def laboratories(running: Serving) -> Iterator[dict[str, Laboratory]]:
    """A tenant for the requests of each service."""
    with grpc.insecure_channel(running.app.address) as channel:
        yield {one.name: laboratory(running, f"lab-{one.name.lower()}", channel) for one in SERVICES}


@pytest.fixture(autouse=True)
def watched(running: Serving) -> Iterator[None]:
    """The server logs no error meanwhile, and serves another tenant afterwards."""
    errors = Errors()
    logging.getLogger().addHandler(errors)
    yield
    user_id = f"user-{next(NAMES)}"
    running.dev.add("I like tea.", user_id=user_id)
    assert running.dev.found("tea", user_id=user_id) == ["I like tea."]
    logging.getLogger().removeHandler(errors)
    assert not [logging.Formatter().format(record) for record in errors.records]


@pytest.mark.parametrize("rpc", RPCS, ids=path_of)
def test_any_request_gets_an_answer_of_the_contract(
    laboratories: dict[str, Laboratory], rpc: MethodDescriptor
) -> None:
    lab = laboratories[rpc.containing_service.name]

    @PER_RPC
    @given(bodies(lab.valid[path_of(rpc)], lab.given))
    def sent(body: bytes) -> None:
        lab.call(rpc, body)

    sent()


@pytest.mark.parametrize("rpc", RPCS, ids=path_of)
def test_any_field_at_its_edge_gets_an_answer_of_the_contract(
    laboratories: dict[str, Laboratory], rpc: MethodDescriptor
) -> None:
    lab = laboratories[rpc.containing_service.name]
    for message in (one for valid in lab.valid[path_of(rpc)] for one in edges(valid)):
        lab.call(rpc, message.SerializeToString())


# --- what a server gives out to be given back -------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A field of a request that takes what only the server can have written; ``own`` is what it takes."""

    lab: Laboratory
    rpc: MethodDescriptor
    request: Message
    field: str
    own: frozenset[str]

    def sent(self, text: str) -> Answer:
        """What comes of the request with this text in the field."""
        request = type(self.request)()
        request.CopyFrom(self.request)
        setattr(request, self.field, text)
        return self.lab.call(self.rpc, request.SerializeToString())


GIVEN = {"next_page_token": "page_token", "resume_token": "resume_token", "last_sync_at": "last_sync_at"}
TAKING = 15
"""RPCs that do."""
FIRST_SYNCS = 2
"""Of the valid Syncs, those that write nothing, so that a cursor stays what it is."""


def places(lab: Laboratory) -> list[Place]:
    """Where this tenant's requests take a token."""
    found, cursors = [], set()
    for rpc in (rpc for service in SERVICES for rpc in service.methods if rpc.name in READS):
        for request in lab.valid[path_of(rpc)][:FIRST_SYNCS]:
            answer = message_factory.GetMessageClass(rpc.output_type).FromString(
                lab.call(rpc, request.SerializeToString()).body
            )
            for given_by, taken_by in GIVEN.items():
                text = getattr(answer, given_by, "")
                if not text or taken_by not in rpc.input_type.fields_by_name:
                    continue
                if taken_by == "last_sync_at":
                    cursors.add(text)
                found.append(Place(lab, rpc, request, taken_by, frozenset({text})))
    get = rpc_named("Get")
    revisions = frozenset(str(one) for one in lab.given["min_revision"])
    found.append(Place(lab, get, lab.valid[path_of(get)][0], "min_revision", revisions))
    return [replace(one, own=frozenset(cursors)) if one.field == "last_sync_at" else one for one in found]


def rpc_named(name: str) -> MethodDescriptor:
    return next(rpc for rpc in RPCS if rpc.name == name)


@pytest.fixture(scope="module")
def taking(running: Serving) -> Iterator[list[Place]]:
    """Where the requests of two tenants take a token."""
    with grpc.insecure_channel(running.app.address) as channel:
        yield [place for name in ("one", "two") for place in places(laboratory(running, name, channel))]


def test_a_token_is_taken_where_it_was_given_out_and_nowhere_else(taking: list[Place]) -> None:
    assert {place.field for place in taking} == {*GIVEN.values(), "min_revision"}
    assert len({place.rpc.full_name for place in taking}) == TAKING
    for place in taking:
        assert all(place.sent(text).error is None for text in place.own), place.rpc.full_name
    pool = sorted({text for place in taking for text in place.own})
    texts = st.sampled_from(pool) | cut_or_changed(pool) | st.text(min_size=1)

    @BOUNDED
    @given(st.sampled_from(range(len(taking))), texts)
    def sent(number: int, text: str) -> None:
        place = taking[number]
        answer = place.sent(text)
        taken = text in place.own or not text
        if place.field == "last_sync_at":
            taken = taken or parse_time(text) is not None
        assert (answer.error is None) is taken
        assert taken or answer.fields == [place.field] or isinstance(answer.error, CursorInvalid)

    sent()


# --- credentials --------------------------------------------------------------------------------------

LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E))


def fits_a_header(text: str) -> bool:
    """Whether gRPC carries the text: what is longer it refuses itself, before the door."""
    return text.isascii() and text.isprintable() and len(text) <= 4000


@st.composite
def credentials(draw: st.DrawFn, real: list[str]) -> str:
    """One of these, changed; or put together of the parts of several, with the right checksum."""
    if draw(st.booleans()):
        return draw((cut_or_changed(real) | PRINTABLE).filter(fits_a_header))
    one, other = draw(st.sampled_from(real)).split("_"), draw(st.sampled_from(real)).split("_")
    kind = draw(st.sampled_from([one[1], other[1], "live", "enrol", "device", "dead"]))
    key_id = draw(st.sampled_from([one[2], other[2]]) | st.text(LETTERS, min_size=16, max_size=16))
    generation = draw(
        st.sampled_from([[], one[3:-1], other[3:-1], ["1"], ["2"], ["0"], ["9" * 12], ["9" * 13]])
    )
    secret = draw(
        st.sampled_from([one[-1][:32], other[-1][:32]]) | st.text(LETTERS, min_size=32, max_size=32)
    )
    body = "_".join(["sj", kind, key_id, *generation, secret])
    crc = zlib.crc32(body.encode())
    return body + "".join(LETTERS[crc >> shift & 31] for shift in range(35, -1, -5))


def test_a_credential_that_is_none_opens_nothing(laboratories: dict[str, Laboratory]) -> None:
    real = sorted({line.credential for lab in laboratories.values() for line in lab.lines.values()})
    assert {one.split("_")[1] for one in real} == {"live", "enrol", "device"}
    lab = laboratories["MemoryService"]
    rpcs = [rpc for rpc in RPCS if rpc.name in ("Get", "Watch", "Sync", "RegisterDevice", "GetTenant")]

    @BOUNDED
    @given(st.sampled_from(rpcs), credentials(real))
    def sent(rpc: MethodDescriptor, credential: str) -> None:
        answer = Line(lab.channel, credential).call(path_of(rpc), b"", **kind_of(rpc))
        if credential.strip() not in real:
            assert isinstance(answer.error, CredentialInvalid)

    sent()


def test_a_credential_that_no_header_holds_is_refused_before_the_door(
    laboratories: dict[str, Laboratory],
) -> None:
    lab = laboratories["MemoryService"]
    credential = ("authorization", "Bearer " + "A" * 100_000)
    with pytest.raises(grpc.RpcError) as raised:
        lab.channel.unary_unary(path_of(RPCS[0]))(b"", timeout=PATIENCE, metadata=(credential,))
    assert isinstance(raised.value, grpc.Call)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
