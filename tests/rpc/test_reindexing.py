"""A tenant goes over to another embedding space while it is searched, written and synced."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc
import pytest

from client_sync import Remote, Replica, synchronize
from client_sync.search import QueryVector
from rpc.conftest import Serving, Tenant, served
from rpc.refusal import refused
from scrubjay import connect, v1
from scrubjay.errors import InvalidField, RoleNotAllowed, TenantNotFound
from server import mending
from server.app import App
from server.config import Settings
from server.operations import reindexing
from server.providers.embedder import TextKind
from server.providers.hashed import HashEmbedder
from server.router import tenant_of
from server.services import adding
from tenants.credential_cache import CredentialCache
from tenants.registry import registry
from tenants.tenant import Caller
from tenants.tenant import Tenant as TenantOfCaller
from tests.databases import rows_of
from tests.embedding_server import EmbeddingServer, vector_of
from tests.waiting import patiently

OLD, DIMENSION = "hash-1/1024", 8
NEW = f"openai-model-1/{DIMENSION}"
SECONDS = 30
ROUNDING = 2e-3
"""A model's last bit depends on how many texts it gets at once, and a vector is kept in steps."""
SENTENCES = (
    "The train to Lisbon leaves at noon.",
    "My sister grows tomatoes.",
    "用户每周三晚上沿着河边跑步。",
    "Plays the piano on Sundays.",
    "火车九点从北京出发。",
    "Is afraid of dogs.",
)


@pytest.fixture
def model() -> Iterator[EmbeddingServer]:
    """The model of the new space."""
    with EmbeddingServer(DIMENSION) as model:
        yield model


@pytest.fixture
def settings(settings: Settings, model: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A server that offers two spaces, and knows other servers' news within the second."""
    monkeypatch.setattr(reindexing, "ALONE_SECONDS", 1)
    monkeypatch.setattr(mending, "INTERVAL_SECONDS", 0.5)
    monkeypatch.setattr(reindexing, "SETTLE_SECONDS", 2)
    monkeypatch.setattr(registry, "CredentialCache", lambda: CredentialCache(seconds=1))
    new = f"openai:model-1/{DIMENSION}@{model.base_url}"
    return settings.model_copy(update={"embedders": new})


def begin(serving: Serving, embedder: str = NEW, tenant_id: str = "dev", request_id: str = "") -> str:
    """The id of the operation."""
    request = v1.ReindexTenantRequest(tenant_id=tenant_id, embedder=embedder, request_id=request_id)
    return serving.admin.ReindexTenant(request).operation.operation.id


def ended(serving: Serving, operation_id: str) -> v1.TenantOperation:
    """The operation at its end."""
    deadline = time.monotonic() + SECONDS
    while True:
        request = v1.WaitTenantOperationRequest(operation_id=operation_id)
        found = serving.admin.WaitTenantOperation(request, timeout=5).operation
        if found.operation.HasField("ended_at"):
            return found
        assert time.monotonic() < deadline, found


def reindexed(serving: Serving, embedder: str = NEW, tenant_id: str = "dev") -> v1.ReindexTenantResult:
    """What came of it."""
    found = ended(serving, begin(serving, embedder, tenant_id))
    assert found.operation.state == v1.OPERATION_STATE_SUCCEEDED, found
    return found.result.reindex_tenant


def spaces(settings: Settings) -> dict[str, int]:
    """How many vectors there are of each space."""
    counts: Counter[str] = Counter()
    for space, count in rows_of(settings, "SELECT space, count(*) FROM vectors GROUP BY space"):
        counts[space] += count
    return counts


until = patiently(SECONDS)


# --- what it comes to -----------------------------------------------------------------------------


def explained(tenant: Tenant, query: str, **fields: object) -> list[tuple[str, float, dict[str, float]]]:
    """Contents, scores and measures of what is found."""
    request = v1.SearchRequest(user_id="alice", query=query, explain=True, top_k=20, **fields)
    return [
        (
            hit.memory.content,
            pytest.approx(hit.score, abs=ROUNDING),
            {arm.arm: pytest.approx(arm.measure, abs=ROUNDING) for arm in hit.explanation.contributions},
        )
        for hit in tenant.memories.Search(request).hits
    ]


def test_it_is_searched_then_as_if_made_in_the_new_space(serving: Serving, settings: Settings) -> None:
    texts = [f"fact {n} about {thing}" for n, thing in enumerate(("tea", "rain", "chess", "bread") * 20)]
    other = serving.tenant("other")
    assert reindexed(serving, tenant_id="other").memory_count == 0
    for tenant in (serving.dev, other):
        tenant.add(*texts)
    result = reindexed(serving)
    assert (result.from_space, result.to_space, result.memory_count) == (OLD, NEW, len(texts))
    for query in ("tea", "fact 7", "what rains", "nothing of it"):
        for recipe in ("default", "semantic"):
            assert explained(serving.dev, query, recipe=recipe) == explained(other, query, recipe=recipe)
    assert spaces(settings) == {NEW: 2 * len(texts)}
    told = serving.admin.GetTenant(v1.GetTenantRequest(tenant_id="dev")).tenant
    assert told.space == NEW
    serving.dev.add("written later")
    assert spaces(settings) == {NEW: 2 * len(texts) + 1}


@pytest.mark.parametrize("backend", ["sqlite"])
def test_it_may_go_to_a_model_of_meanings_and_back(settings: Settings) -> None:
    with served(settings.model_copy(update={"embedders": "lite"})) as serving:
        other = serving.tenant("other")
        reindexed(serving, "lite", "other")
        for tenant in (serving.dev, other):
            tenant.add(*SENTENCES)
        assert reindexed(serving, "lite").to_space == "lite-1/512"
        assert serving.dev.found("vegetables in the garden", top_k=1) == [SENTENCES[1]]
        for query in ("vegetables in the garden", "什么时候出发", "who plays an instrument?"):
            scores = [
                {text: score for text, score, _ in explained(one, query)} for one in (serving.dev, other)
            ]
            assert scores[0] == scores[1]
        assert reindexed(serving, "hash").to_space == OLD
        assert spaces(settings) == {OLD: len(SENTENCES), "lite-1/512": len(SENTENCES)}
        assert len(serving.dev.found("tomatoes", top_k=20)) == len(SENTENCES)


def test_the_past_is_searched_in_the_new_space(serving: Serving) -> None:
    (memory,) = serving.dev.add("Likes green tea.")
    then = memory.updated_at
    mask = {"paths": ["content"]}
    changed = v1.Memory(id=memory.id, content="Likes black coffee.")
    time.sleep(0.005)  # as_of is of a millisecond
    serving.dev.memories.Update(v1.UpdateRequest(memory=changed, update_mask=mask))
    reindexed(serving)
    assert serving.dev.found("tea", as_of=then) == ["Likes green tea."]
    assert serving.dev.found("tea") == ["Likes black coffee."]


# --- while others work ----------------------------------------------------------------------------


@dataclass
class Load:
    """Searches, writes and a device's syncs until it ends; what failed, and what a search left out."""

    serving: Serving
    replica: Replica
    remote: Remote
    over: threading.Event = field(default_factory=threading.Event)
    written: list[str] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    searches: int = 0
    failed: list[str] = field(default_factory=list)

    def run(self, work: Callable[[int], None]) -> None:
        """Do it again and again."""
        count = 0
        while not self.over.is_set():
            try:
                work(count)
            except (grpc.RpcError, AssertionError, ValueError) as error:
                self.failed.append(f"{work.__name__}: {error}")
            count += 1

    def write(self, n: int) -> None:
        name = threading.current_thread().name
        (memory,) = self.serving.dev.add(f"thing {n} that {name} said")
        if n % 3 == 0:
            memory.content = f"thing {n} that {name} said in another way"
            request = v1.UpdateRequest(memory=memory, update_mask={"paths": ["content"]})
            self.serving.dev.memories.Update(request)
        if n % 7 == 0:
            self.serving.dev.memories.Delete(v1.DeleteRequest(id=memory.id))
            self.deleted.add(memory.id)
        else:
            self.written.append(memory.id)

    def search(self, n: int) -> None:
        known = list(self.written)
        response = self.serving.dev.memories.Search(
            v1.SearchRequest(user_id="alice", query="no such words", top_k=200, recipe="semantic")
        )
        found = {hit.memory.id for hit in response.hits}
        assert len(found) == 200 or set(known) <= found, f"{len(known)} were there, {len(found)} found"
        assert len(self.serving.dev.found("who", user_id="bob", top_k=5)) == 5
        self.searches += 1

    def sync(self, n: int) -> None:
        self.replica.add(f"note {n} of the phone")
        synchronize(self.replica, self.remote, vectors=True)


@contextmanager
def phone(serving: Serving, folder: Path) -> Iterator[tuple[Replica, Remote]]:
    """A device of alice."""
    request = v1.CreateEnrolmentRequest(tenant_id="dev", user_id="alice")
    code = serving.admin.CreateEnrolment(request).enrolment_code
    made = Remote.register(serving.app.address, code, installation_id=b"i" * 16)
    credentials = made.save(folder / "phone.json")
    with ExitStack() as stack:
        replica = stack.enter_context(Replica.create(folder / "phone.db", credentials.identity))
        yield replica, stack.enter_context(Remote(credentials.target, credentials))


def test_nobodys_call_fails_meanwhile_and_nothing_is_left_out(
    serving: Serving, settings: Settings, tmp_path: Path
) -> None:
    serving.dev.add(*(f"bob's {n}" for n in range(5)), user_id="bob")
    serving.dev.add(*(f"carol's fact {n}" for n in range(300)), user_id="carol")
    with phone(serving, tmp_path) as (replica, remote):
        load = Load(serving, replica, remote)
        threads = [
            threading.Thread(target=load.run, args=(work,))
            for work in (load.write, load.write, load.search, load.sync)
        ]
        for thread in threads:
            thread.start()
        for embedder in (NEW, OLD, NEW) if settings.shards == "" else (NEW,):
            reindexed(serving, embedder)
        load.over.set()
        for thread in threads:
            thread.join()
        synchronize(replica, remote, vectors=True)
        with replica.file.reading() as sql:
            fetched = dict(sql.execute("SELECT space, count(*) FROM vectors GROUP BY space"))
            count = sql.execute("SELECT count(*) FROM rows").fetchone()[0]
    assert load.failed == []
    assert load.searches > 3
    assert len(load.written) > 3
    assert fetched == {NEW: count}
    total = sum(row[0] for row in rows_of(settings, "SELECT count(*) FROM memories"))
    assert spaces(settings) == {NEW: total}


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_device_searches_by_what_it_has_until_the_new_vectors_come(
    serving: Serving, tmp_path: Path
) -> None:
    serving.dev.add("green tea", "a red bicycle")
    with phone(serving, tmp_path) as (replica, remote):
        synchronize(replica, remote, vectors=True)
        before = replica.status()
        old = QueryVector(OLD, HashEmbedder().embed(["green tea"], TextKind.QUERY)[0].tolist())
        new = QueryVector(NEW, [float(n) for n in vector_of("green tea", DIMENSION)])
        reindexed(serving)
        for vector, arms in ((old, {"dense", "lexical"}), (new, {"lexical"})):
            hit = replica.search("green tea", vector=vector)[0]
            assert hit.memory.content == "green tea"
            assert {each.arm for each in hit.contributions if each.measure > 0} == arms
        report = synchronize(replica, remote, vectors=True)
        assert (report.vectors, report.pulled, report.loaded) == (2, 0, False)
        assert synchronize(replica, remote, vectors=True).vectors == 0
        hit = replica.search("green tea", vector=new)[0]
        assert {each.arm for each in hit.contributions if each.measure > 0} == {"dense", "lexical"}
        assert replica.status().memories == before.memories


# --- how it ends otherwise ------------------------------------------------------------------------


def test_it_is_taken_back_before_the_switch(
    serving: Serving, settings: Settings, model: EmbeddingServer
) -> None:
    serving.dev.add(*(f"fact {n}" for n in range(200)))
    held, reached = threading.Event(), threading.Event()
    right = model._right

    def holding(texts: list[str]) -> object:
        reached.set()
        held.wait(SECONDS)
        return right(texts)

    model.script.extend([right, holding])  # type: ignore[list-item]  # an answer all the same
    operation_id = begin(serving)
    assert reached.wait(SECONDS)
    assert spaces(settings)[NEW] > 0
    assert len(serving.dev.found("fact", top_k=200)) == 200
    serving.admin.CancelTenantOperation(v1.CancelTenantOperationRequest(operation_id=operation_id))
    held.set()
    assert ended(serving, operation_id).operation.state == v1.OPERATION_STATE_CANCELLED
    assert spaces(settings) == {OLD: 200}
    assert serving.admin.GetTenant(v1.GetTenantRequest(tenant_id="dev")).tenant.space == OLD
    assert reindexed(serving).memory_count == 200


def test_a_model_of_another_dimension_ends_it_as_failed(
    serving: Serving, settings: Settings, model: EmbeddingServer
) -> None:
    serving.dev.add("Likes tea.")
    model.dimension = DIMENSION + 1
    found = ended(serving, begin(serving))
    assert found.operation.state == v1.OPERATION_STATE_FAILED
    assert found.operation.error.reason == v1.ERROR_REASON_MODEL_MISMATCH
    assert spaces(settings) == {OLD: 1}
    assert serving.dev.found("tea") == ["Likes tea."]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_what_can_not_be_is_refused_with_what_can(serving: Serving) -> None:
    for embedder, said in (("hash", OLD), (OLD, OLD), ("e5", f"hash ({OLD})"), ("e5", NEW), ("", NEW)):
        with refused() as answer:
            begin(serving, embedder)
        assert isinstance(answer.error, InvalidField)
        assert answer.fields == ["embedder"]
        assert said in answer.error.message
    with refused() as answer:
        begin(serving, tenant_id="nobody")
    assert isinstance(answer.error, TenantNotFound)
    admin = v1.TenantAdminServiceStub(serving.with_key("dev", v1.ROLE_TENANT_ADMIN).channel)
    with refused() as answer:
        admin.ReindexTenant(v1.ReindexTenantRequest(tenant_id="dev", embedder=NEW))
    assert isinstance(answer.error, RoleNotAllowed)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_repeat_is_answered_with_the_first_even_after_its_end(serving: Serving) -> None:
    first = begin(serving, request_id="once")
    ended(serving, first)
    assert begin(serving, request_id="once") == first


# --- what comes later, and from elsewhere -----------------------------------------------------------


def test_what_was_written_by_the_old_space_gets_its_vector(
    serving: Serving, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving.dev.add("Likes tea.")
    reindexed(serving)

    def as_it_was(caller: Caller) -> TenantOfCaller:
        return replace(tenant_of(caller), space=OLD)

    with monkeypatch.context() as patched:  # a call that began before the switch
        patched.setattr(adding, "tenant_of", as_it_was)
        serving.dev.add("Plays chess on Fridays.")
    assert spaces(settings) == {NEW: 1, OLD: 1}
    assert serving.dev.found("Fridays", top_k=1) == ["Plays chess on Fridays."]
    assert len(serving.dev.found("nothing of the kind", top_k=5)) == 2
    until(lambda: spaces(settings)[NEW] == 2)
    request = v1.SearchRequest(user_id="alice", query="Plays chess on Fridays.", recipe="semantic")
    hit = serving.dev.memories.Search(request).hits[0]
    assert (hit.memory.content, round(hit.score, 1)) == ("Plays chess on Fridays.", 1.0)


@pytest.mark.parametrize("backend", ["postgresql"])
def test_another_server_goes_over_with_it(serving: Serving, settings: Settings, tmp_path: Path) -> None:
    serving.dev.add(*(f"fact {n}" for n in range(100)))
    pepper = (settings.data_dir / "pepper").read_bytes()
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "pepper").write_bytes(pepper)
    with ExitStack() as stack:
        app = stack.enter_context(App(settings.model_copy(update={"data_dir": folder})))
        channel = stack.enter_context(connect(app.address, serving.dev.key))
        there = Tenant("dev", serving.dev.key, channel, v1.MemoryServiceStub(channel))
        written: list[str] = []
        failed: list[str] = []
        over = threading.Event()

        def write() -> None:
            while not over.is_set():
                try:
                    written.append(there.add(f"said over there {len(written)}")[0].id)
                    found = serving.dev.memories.Search(
                        v1.SearchRequest(user_id="alice", query="no such words", top_k=200)
                    )
                    ids = {hit.memory.id for hit in found.hits}
                    if not (len(ids) == 200 or set(written) <= ids):
                        failed.append(f"{len(set(written) - ids)} of {len(written)} were left out")
                except grpc.RpcError as error:
                    failed.append(str(error))

        thread = threading.Thread(target=write)
        thread.start()
        result = reindexed(serving)
        over.set()
        thread.join()
        assert failed == []
        assert len(written) > 3
        assert result.memory_count >= 100
        until(lambda: len(there.found("fact", top_k=200)) == min(200, 100 + len(written)))
        until(lambda: spaces(settings) == {NEW: 100 + len(written)})


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_server_starts_with_tenants_of_several_spaces_alone_where_it_offers_them(
    settings: Settings, model: EmbeddingServer
) -> None:
    with served(settings) as serving:
        serving.dev.add("Likes tea.")
        reindexed(serving)
        key = serving.dev.key
    alone = settings.model_copy(update={"embedders": ""})
    with pytest.raises(Exception, match="SCRUBJAY_EMBEDDERS"):
        App(alone)
    with App(settings) as app, connect(app.address, key) as channel:
        request = v1.SearchRequest(user_id="alice", query="tea")
        assert len(v1.MemoryServiceStub(channel).Search(request).hits) == 1
