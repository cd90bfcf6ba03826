"""Searches of the past: the same request as of then is answered as it was then, whatever happened since."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import Value
from google.protobuf.timestamp_pb2 import Timestamp
from numpy.typing import NDArray

from rpc.conftest import Tenant
from rpc.refusal import refused
from scrubjay import v1
from scrubjay.errors import MemoryNotFound, ModelUnavailable, RevisionNotReached
from scrubjay.memory import Micros
from scrubjay.stamp import CommitStamp
from server.index import past_streams, switch
from server.index.past_streams import PastStreams
from server.past import Past, read_past
from server.providers.embedder import TextKind
from server.providers.embedders import Embedders
from server.recall.recipes import RECIPES
from server.store.memory_store import Reading, StreamKey
from tests.devices import KEY, NOW, Server
from tests.life import Life

PRIVATE, SHARED = v1.PRIVACY_LEVEL_PRIVATE, v1.PRIVACY_LEVEL_SHARED
TOPICS = (
    "tea with milk",
    "the office in Porto",
    "绿茶和咖啡",
    "a run along the river",
    "the quarterly report",
)


@pytest.fixture
def server(shard_url: str, tmp_path: Path) -> Iterator[Server]:
    with Server(shard_url, tmp_path) as server:
        yield server


def add(server: Server, *memories: v1.Memory, client: str = "web") -> list[v1.Memory]:
    request = v1.AddRequest(memories=memories)
    return [one.memory for one in server.memories.add(request, server.service(client)).results]


def update(server: Server, memory_id: str, client: str = "web", **fields: object) -> v1.Memory:
    request = v1.UpdateRequest(
        memory=v1.Memory(id=memory_id, **fields),  # type: ignore[arg-type]  # by name
        update_mask=FieldMask(paths=list(fields)),
    )
    return server.memories.update(request, server.service(client)).memory


def delete(server: Server, memory_id: str, client: str = "web") -> None:
    server.memories.delete(v1.DeleteRequest(id=memory_id), server.service(client))


def ask(
    server: Server, request: v1.SearchRequest, client: str = "web", as_of: Micros | None = None
) -> v1.SearchResponse:
    asked = v1.SearchRequest()
    asked.CopyFrom(request)
    if as_of is not None:
        asked.as_of.FromMicroseconds(as_of)
    return v1.SearchResponse.FromString(server.memories.search(asked, server.service(client)))


def contents(answer: v1.SearchResponse) -> list[str]:
    return [hit.memory.content for hit in answer.hits]


def alice(query: str, **fields: object) -> v1.SearchRequest:
    return v1.SearchRequest(user_id="alice", query=query, **fields)  # type: ignore[arg-type]  # by name


# --- the same answer ------------------------------------------------------------------------------


def populate(server: Server, dice: random.Random, count: int) -> list[str]:
    """Memories of all kinds; their ids."""
    ids: list[str] = []
    for _ in range(0, count, 15):
        memories = [some_memory(server, dice, ids) for _ in range(15)]
        ids += [one.id for one in add(server, *memories, client=dice.choice(("web", "phone")))]
        server.wait(0.01)
    return ids


def some_memory(server: Server, dice: random.Random, ids: Sequence[str]) -> v1.Memory:
    memory = v1.Memory(
        user_id="alice",
        agent_id=dice.choice(("", "coach")),
        content=f"{dice.choice(TOPICS)}, {dice.choice(TOPICS)} {dice.randrange(17)}",
        scope=dice.choice(("general", "work", "work/alpha", "home")),
        category=dice.choice(("FACT", "TASK", "PREFERENCE")),
        tags=dice.sample(("tea", "work", "river"), dice.randrange(3)),
        source=v1.Source(conversation_id=f"c{dice.randrange(5)}"),
        privacy_level=dice.choice((SHARED, SHARED, PRIVATE)),
        superseded_by=dice.choice(ids) if ids and dice.random() < 0.1 else "",
    )
    memory.created_at.FromMicroseconds(server.now - dice.randrange(20 * 24 * 3600) * 1_000_000)
    if dice.random() < 0.1:
        memory.expires_at.FromMicroseconds(server.now + dice.randrange(-3600, 3600) * 1_000_000)
    if dice.random() < 0.1:
        memory.valid_to.FromMicroseconds(server.now + dice.randrange(-3600, 3600) * 1_000_000)
    return memory


def requests() -> list[v1.SearchRequest]:
    """Searches of all kinds."""
    task = v1.Condition(field="category", operator=v1.OPERATOR_EQ, value=Value(string_value="TASK"))
    valid_at = Timestamp()
    valid_at.FromMicroseconds(NOW)
    asked = [alice("tea by the river", recipe=name, explain=True, top_k=7) for name in RECIPES]
    asked += [
        alice("the report", filter=v1.Filter(condition=task), explain=True),
        alice("咖啡", scopes=["work"], inherit=True, explain=True),
        alice("office", agent_id="coach", top_k=3),
        alice("milk", valid_at=valid_at, neighbours=2, top_k=4),
        alice("nothing of the kind", top_k=200, explain=True),
    ]
    return asked


def answers(server: Server, asked: Sequence[v1.SearchRequest], as_of: Micros | None = None) -> list[object]:
    return [ask(server, one, client, as_of) for one in asked for client in ("web", "phone", "stranger")]


def shake(server: Server, dice: random.Random, ids: Sequence[str], count: int) -> None:
    """All kinds of things happen, but that nobody makes a secret of what was none."""
    life = Life(server, dice, secrets=False, ids=[*ids])
    for n in range(count):
        if n % 3 == 0:
            life.ids.append(dice.choice(ids))  # so that old memories are met too
        life.step()
        life.wait()


@pytest.mark.parametrize("exact_rows", [switch.EXACT_ROWS, 20])
def test_a_search_as_of_then_is_answered_as_it_was_then(
    server: Server, exact_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switch, "EXACT_ROWS", exact_rows)
    dice = random.Random(exact_rows)
    ids = populate(server, dice, 150)
    asked, known = requests(), []
    for _ in range(2):
        server.wait()
        known.append((server.now, answers(server, asked)))
        assert answers(server, asked, server.now) == known[-1][1]
        server.wait()
        shake(server, dice, ids, 25)
    for then, first in known:
        assert answers(server, asked, then) == first
        assert answers(server, asked) != first


def test_another_server_finds_the_same_past(server: Server, shard_url: str, tmp_path: Path) -> None:
    dice = random.Random(7)
    ids = populate(server, dice, 20)
    server.wait()
    asked = requests()
    then, first = server.now, answers(server, asked)
    server.wait()
    shake(server, dice, ids, 20)
    with Server(shard_url, tmp_path / "other") as other:
        other.now = server.now
        assert answers(other, asked, then) == first


def test_what_was_deleted_edited_and_superseded_since_is_found_as_it_was(server: Server) -> None:
    kept, edited, deleted = add(
        server,
        *(v1.Memory(user_id="alice", content=text) for text in ("green tea", "black tea", "white tea")),
    )
    server.wait()
    then, first = server.now, ask(server, alice("tea"))
    server.wait()
    (newer,) = add(server, v1.Memory(user_id="alice", content="tea, any tea"))
    update(server, edited.id, content="coffee", tags=["new"], superseded_by=newer.id)
    delete(server, deleted.id)
    assert contents(ask(server, alice("tea"))) != contents(first)
    assert ask(server, alice("tea"), as_of=then) == first
    again = {hit.memory.id: hit.memory for hit in ask(server, alice("tea"), as_of=then).hits}
    assert again == {one.id: one for one in (kept, edited, deleted)}  # with etag and updated_at


def test_a_moment_ends_with_its_millisecond(server: Server) -> None:
    add(server, v1.Memory(user_id="alice", content="early"))
    server.wait(0.001)
    then = server.now
    add(server, v1.Memory(user_id="alice", content="late"))
    assert contents(ask(server, alice("late"), as_of=Micros(then - 1))) == ["early"]
    assert contents(ask(server, alice("late"), as_of=then)) == ["late", "early"]
    assert contents(ask(server, alice("late"), as_of=Micros(then // 1000 * 1000))) == ["late", "early"]


def test_before_everything_nothing_is_found(server: Server) -> None:
    add(server, v1.Memory(user_id="alice", content="tea"))
    for time in (0, -1, 1, -62_135_596_800_000_000):
        assert contents(ask(server, alice("tea"), as_of=Micros(time))) == []
    assert contents(ask(server, v1.SearchRequest(user_id="nobody", query="tea"), as_of=server.now)) == []


def test_later_than_now_is_now(server: Server) -> None:
    expires = v1.Memory(user_id="alice", content="tea today")
    expires.expires_at.FromMicroseconds(server.now + 60_000_000)
    add(server, expires, v1.Memory(user_id="alice", content="tea"))
    server.wait()
    now = ask(server, alice("tea"))
    assert contents(now) == ["tea", "tea today"]
    assert ask(server, alice("tea"), as_of=Micros(server.now + 3_600_000_000)) == now


def test_a_memory_expired_then_as_it_does_now(server: Server) -> None:
    memory = v1.Memory(user_id="alice", content="tea today")
    memory.expires_at.FromMicroseconds(server.now + 60_000_000)
    add(server, memory)
    server.wait()
    then = server.now
    server.wait(120)
    assert contents(ask(server, alice("tea"))) == []
    assert contents(ask(server, alice("tea"), as_of=then)) == ["tea today"]
    assert contents(ask(server, alice("tea"), as_of=Micros(then + 59_000_000))) == []


def test_an_access_has_no_past(server: Server) -> None:
    """What was looked at when is not known of then, whether or not anything happened since."""
    old = Timestamp()
    old.FromMicroseconds(server.now - 10**12)
    add(server, *(v1.Memory(user_id="alice", content=text, created_at=old) for text in ("tea", "black tea")))
    server.wait()
    ask(server, alice("black tea", top_k=1, count_access=True))
    server.shard.accesses.write()
    server.wait()
    then, asked = server.now, alice("tea", recipe="shared-memory")
    now = ask(server, asked)
    answer = ask(server, asked, as_of=then)
    assert answer != now
    server.wait()
    add(server, v1.Memory(user_id="alice", content="late"))
    assert ask(server, asked, as_of=then) == answer


def test_what_is_committed_while_the_past_is_looked_up_is_no_part_of_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(server, v1.Memory(user_id="alice", content="tea"))
    server.wait()
    then = server.now
    server.wait()
    reading = server.cache.reading

    def late(*given: Any, **options: Any) -> Any:
        add(server, v1.Memory(user_id="alice", content="late tea"))
        return reading(*given, **options)

    monkeypatch.setattr(server.cache, "reading", late)
    assert contents(ask(server, alice("tea"), as_of=then)) == ["tea"]
    assert "late tea" in contents(ask(server, alice("tea")))


# --- privacy --------------------------------------------------------------------------------------


def test_what_became_private_or_was_private_is_its_owners_alone(server: Server) -> None:
    dead, was_shared, was_private, always = add(
        server,
        v1.Memory(user_id="alice", content="tea zero"),
        v1.Memory(user_id="alice", content="tea one"),
        v1.Memory(user_id="alice", content="tea two", privacy_level=PRIVATE),
        v1.Memory(user_id="alice", content="tea three"),
    )
    server.wait()
    then = server.now
    server.wait()
    update(server, was_shared.id, privacy_level=PRIVATE)
    update(server, was_private.id, privacy_level=SHARED)
    update(server, dead.id, privacy_level=PRIVATE)
    delete(server, dead.id)
    assert set(contents(ask(server, alice("tea"), "phone"))) == {"tea two", "tea three"}
    assert set(contents(ask(server, alice("tea"), "phone", then))) == {"tea three"}
    mine = {"tea zero", "tea one", "tea two", "tea three"}
    assert set(contents(ask(server, alice("tea"), "web", then))) == mine
    shown = {hit.memory.id: hit.memory for hit in ask(server, alice("tea"), "web", then).hits}
    assert shown[was_shared.id] == was_shared  # as it was, not as it is
    assert shown[always.id] == always


def test_privacy_of_today_is_looked_up_each_time(server: Server) -> None:
    memory, dead = add(
        server, v1.Memory(user_id="alice", content="tea one"), v1.Memory(user_id="alice", content="tea two")
    )
    server.wait()
    then = server.now
    server.wait()
    update(server, memory.id, tags=["a"])

    def seen() -> set[str]:
        return set(contents(ask(server, alice("tea"), "phone", then)))

    assert seen() == {"tea one", "tea two"}
    update(server, memory.id, privacy_level=PRIVATE)
    assert seen() == {"tea two"}
    update(server, dead.id, privacy_level=PRIVATE)
    delete(server, dead.id)
    assert seen() == set()
    update(server, memory.id, privacy_level=SHARED)
    assert seen() == {"tea one"}


def test_what_is_private_today_says_nothing_to_others_of_the_past(server: Server) -> None:
    """Not by scores, not by what replaced what, not as a neighbour, not through ExplainMiss."""
    source = v1.Source(conversation_id="c")
    one, two, other = add(
        server,
        *(
            v1.Memory(user_id="alice", content=text, source=source)
            for text in ("tea in the morning", "tea in the evening", "coffee")
        ),
    )
    update(server, one.id, superseded_by=two.id)
    server.wait()
    then = server.now
    server.wait()
    update(server, two.id, privacy_level=PRIVATE)
    server.wait()
    asked = alice("tea", explain=True, neighbours=5)
    answer = ask(server, asked, "phone", then)
    assert contents(answer) == ["tea in the morning", "coffee"]
    around = {memory.id for hit in answer.hits for side in (hit.before, hit.after) for memory in side}
    assert around == {one.id, other.id}
    arms = {part.arm for part in answer.hits[0].explanation.contributions}
    assert not {"supersedes", "superseded"} & arms
    asked.as_of.FromMicroseconds(then)
    for client, memory_id in (("phone", two.id), ("web", "00000000-0000-7000-8000-000000000000")):
        with pytest.raises(MemoryNotFound) as unknown:
            server.memories.explain_miss(
                v1.ExplainMissRequest(search=asked, memory_id=memory_id), server.service(client)
            )
        assert unknown.value.message == MemoryNotFound(memory_id).message
    mine = server.memories.explain_miss(
        v1.ExplainMissRequest(search=asked, memory_id=two.id), server.service("web")
    )
    assert mine.gate == v1.MISS_GATE_NONE


def test_a_miss_of_the_past_is_explained_for_what_was_deleted_since(server: Server) -> None:
    _, coffee = add(
        server, v1.Memory(user_id="alice", content="tea"), v1.Memory(user_id="alice", content="coffee")
    )
    server.wait()
    asked = alice("tea", top_k=1)
    asked.as_of.FromMicroseconds(server.now)
    server.wait()
    delete(server, coffee.id)
    request = v1.ExplainMissRequest(search=asked, memory_id=coffee.id)
    assert server.memories.explain_miss(request, server.service()).gate == v1.MISS_GATE_TOP_K
    (late,) = add(server, v1.Memory(user_id="alice", content="late"))
    request.memory_id = late.id
    with pytest.raises(MemoryNotFound):
        server.memories.explain_miss(request, server.service())


# --- what it costs --------------------------------------------------------------------------------


class Counted:
    """An embedder that counts the texts it is given."""

    def __init__(self, server: Server) -> None:
        self.inner = server.embedder
        self.documents: list[str] = []
        self.space = self.inner.space

    def embed(self, texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        if kind is TextKind.DOCUMENT:
            self.documents += texts
        return self.inner.embed(texts, kind)

    def self_test(self) -> None:
        self.inner.self_test()

    def close(self) -> None:
        self.inner.close()


def test_questions_about_one_moment_replay_once_and_embed_what_is_gone_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, edited, gone = add(
        server, *(v1.Memory(user_id="alice", content=text) for text in ("tea", "black tea", "white tea"))
    )
    server.wait()
    then = server.now
    server.wait()
    update(server, kept.id, tags=["new"])
    update(server, edited.id, content="coffee")
    delete(server, gone.id)
    counted = Counted(server)
    monkeypatch.setattr(server.memories, "_embedders", Embedders({"hash": counted}))
    made: list[CommitStamp] = []

    def noted(reading: Reading, key: StreamKey, until: CommitStamp, space: str) -> Past:
        made.append(until)
        return read_past(reading, key, until, space)

    monkeypatch.setattr(past_streams, "read_past", noted)
    for n in range(5):
        assert len(ask(server, alice("tea"), as_of=Micros(then + n * 1000)).hits) == 3
        server.wait()
        add(server, v1.Memory(user_id="alice", content=f"later {n}"))
    assert len(made) == 1
    assert sorted(text for text in counted.documents if "later" not in text) == ["black tea", "white tea"]
    ask(server, alice("tea"), as_of=Micros(server.now - 1_000_000))
    assert len(made) == 2
    for _ in range(3):
        assert ask(server, alice("tea"), as_of=Micros(then - 3_600_000_000)).hits == []
    assert len(made) == 3
    assert len([text for text in counted.documents if "later" not in text]) == 2


def test_where_the_model_does_not_answer_nothing_of_the_moment_is_kept(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    (memory,) = add(server, v1.Memory(user_id="alice", content="tea"))
    server.wait()
    then = server.now
    server.wait()
    update(server, memory.id, content="coffee")
    embed = server.embedder.embed

    def fail(texts: Sequence[str], kind: TextKind) -> NDArray[np.float32]:
        if kind is TextKind.DOCUMENT:
            raise ModelUnavailable("the model sleeps")
        return embed(texts, kind)

    with monkeypatch.context() as patched:
        patched.setattr(server.embedder, "embed", fail)
        with pytest.raises(ModelUnavailable):
            ask(server, alice("tea"), as_of=then)
        assert not server.shard._pasts._moments
    assert contents(ask(server, alice("tea"), as_of=then)) == ["tea"]


def test_many_may_ask_about_one_moment_while_others_write(server: Server) -> None:
    memories = [v1.Memory(user_id="alice", content=f"fact {n} about tea") for n in range(50)]
    ids = [memory.id for memory in add(server, *memories)]
    server.wait()
    then, first = server.now, ask(server, alice("fact about tea", explain=True))
    server.wait()

    def edit(n: int) -> None:
        if n % 3:
            update(server, ids[n], content=f"no fact {n}")
        else:
            delete(server, ids[n])

    with ThreadPoolExecutor(6) as pool:
        edits = [pool.submit(edit, n) for n in range(len(ids))]
        asked = [
            pool.submit(ask, server, alice("fact about tea", explain=True), "web", then) for _ in range(30)
        ]
        for written in edits:
            written.result()
        assert [answer.result() for answer in asked] == [first] * len(asked)


def test_moments_are_let_go_where_they_are_too_many(server: Server) -> None:
    pasts: PastStreams = server.shard._pasts
    bound = server.cache.budget_bytes // past_streams.SHARE
    memory, *_ = add(server, *(v1.Memory(user_id="alice", content=f"fact {n}") for n in range(20)))
    moments = []
    for n in range(40):
        server.wait()
        update(server, memory.id, content=f"fact number {n}")
        moments.append(server.now)
    server.wait()
    update(server, memory.id, content="the end")
    for n, then in enumerate(moments):
        hits = ask(server, alice(f"number {n}", top_k=1), as_of=then).hits
        assert [hit.memory.content for hit in hits] == [f"fact number {n}"]
        assert pasts.nbytes <= bound
    assert len(pasts._moments) < len(moments)


def test_a_stream_that_begins_another_life_is_made_anew(server: Server) -> None:
    (memory,) = add(server, v1.Memory(user_id="alice", content="tea"))
    server.wait()
    then = server.now
    server.wait()
    update(server, memory.id, content="coffee")
    assert contents(ask(server, alice("tea"), as_of=then)) == ["tea"]
    server.store.write([KEY], lambda writing: writing.begin_epoch(KEY, server.now // 1000))
    assert contents(ask(server, alice("tea"), as_of=then)) == ["tea"]


# --- the door -------------------------------------------------------------------------------------


def test_what_as_of_can_not_be_is_refused(dev: Tenant) -> None:
    dev.add("tea")
    wrong = Timestamp(seconds=-62_135_596_801)
    with refused() as outside:
        dev.memories.Search(v1.SearchRequest(user_id="alice", query="tea", as_of=wrong))
    assert outside.fields == ["as_of"]
    known = Timestamp()
    known.GetCurrentTime()
    assert dev.found("tea", as_of=known) == ["tea"]


def test_a_search_of_the_past_sees_the_revision_that_it_asks_for(server: Server) -> None:
    (memory,) = add(server, v1.Memory(user_id="alice", content="tea"))
    server.wait()
    then = server.now
    server.wait()
    request = v1.UpdateRequest(
        memory=v1.Memory(id=memory.id, privacy_level=PRIVATE), update_mask=FieldMask(paths=["privacy_level"])
    )
    revision = server.memories.update(request, server.service()).revision
    assert contents(ask(server, alice("tea", min_revision=revision), "phone", then)) == []
    head = server.shard.head(KEY)
    assert head is not None
    ahead = server.memories._revisions.token({KEY: CommitStamp(head.head + 1)})
    with pytest.raises(RevisionNotReached):
        ask(server, alice("tea", min_revision=ahead), as_of=then)
