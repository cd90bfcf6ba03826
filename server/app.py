"""The server, put together: every part is built here once, and closed by one exit stack."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from types import MappingProxyType, TracebackType

from threadpoolctl import threadpool_limits

from scrubjay import v1
from scrubjay.errors import ModelMismatch, ScrubjayError
from scrubjay.memory import Micros
from server import collection, counting, erasing, forgetting, heads, linking, mending, purging
from server.archive import folder
from server.archive.folder import Archives
from server.certificates import CertificatesUnusable
from server.config import Settings
from server.data_dir import DataDirInUse, DataDirUnusable, locked, pepper
from server.index.cache import StreamCache
from server.index.hnsw import hnsw_available
from server.index.shelf import Shelf
from server.interceptors import Door
from server.operations import moving
from server.operations.conductor import Conductor, Plan
from server.operations.draining import Drainer
from server.operations.exporting import Exporter
from server.operations.importing import Importer
from server.operations.moving import Mover
from server.operations.reindexing import Reindexer
from server.operations.workers import Workers
from server.passage import Passage
from server.periodic import Periodic
from server.providers.chat import ChatModel
from server.providers.embedder import Embedder, open_embedder
from server.providers.embedders import Embedders
from server.providers.endpoint import EndpointSettings
from server.providers.fair import SHARES, FairEmbedder
from server.providers.openai import OpenAISettings
from server.providers.query_cache import QueryCache
from server.providers.reranker import TIMEOUT_SECONDS, ChatReranker, EndpointReranker, Reranker
from server.rates import CallLimits
from server.router import Router
from server.services import memory_service, sync_service
from server.services.memory_door import MemoryParts
from server.services.operations import ADD
from server.services.registration import Registration
from server.services.subjects import Subjects
from server.serving import AddressInUse, credentials_of, serve
from server.shard import Shard
from server.slots import Slots
from server.snapshots import Snapshots
from server.store.listener import HeadListener
from server.store.memory_store import MemoryStore
from server.turns import TURNS_BESIDE_A_DATABASE, Turns
from tenants import tenant_service
from tenants.admin_parts import AdminParts
from tenants.database import DatabaseUnusable
from tenants.operation import Kind
from tenants.registry import FirstCredentials, Registry, TenantChanges, audit, open_catalogue, usage
from tenants.tenant import Role, Tenant

log = logging.getLogger("scrubjay.app")

ALLOWED: Mapping[str, frozenset[Role]] = MappingProxyType(
    {**memory_service.ALLOWED, **sync_service.ALLOWED, **tenant_service.ALLOWED}
)


def wall_clock() -> Micros:
    """Microseconds since 1970."""
    return Micros(time.time_ns() // 1000)


class ShardMissing(Exception):
    """Tenants lie on a shard that the settings do not name."""


CANT_START = (
    AddressInUse,
    CertificatesUnusable,
    DataDirInUse,
    DataDirUnusable,
    DatabaseUnusable,
    ScrubjayError,
    ShardMissing,
    ValueError,
    heads.WentBack,
)
"""What ends a start; each says in one line what is wrong."""


class App:
    """A running server, from construction to ``close``.

    ``address`` is where it serves; ``first_credentials`` are set where this start made the catalogue.
    Raises one of CANT_START where it can't start, with everything closed that was opened.
    """

    def __init__(self, settings: Settings, clock: Callable[[], Micros] = wall_clock) -> None:
        credentials = credentials_of(settings)
        with ExitStack() as stack:
            # More threads in BLAS only spin on small matrices, and handlers share the cores already.
            threadpool_limits(limits=1, user_api="blas")
            stack.enter_context(locked(settings.data_dir))
            secret = pepper(settings.data_dir, settings.pepper.get_secret_value())
            turns = _turns(settings)
            embedders = _embedders(settings, turns, stack)
            registry = _registry(settings, secret, embedders, stack)
            if not hnsw_available():
                log.warning("hnswlib is not installed: large streams are scanned exactly, right but slower")
            shards = _shards(settings, embedders, registry, turns, stack)
            budget_bytes = settings.snapshot_mib * 1024 * 1024
            snapshots = Snapshots(settings.data_dir / "snapshots", secret, budget_bytes=budget_bytes)
            stack.callback(snapshots.close)
            router, jobs_added, begun = Router(shards), threading.Event(), threading.Event()
            archives = Archives(settings.data_dir, settings.upload_mib * 1024 * 1024, clock)
            eraser = erasing.Eraser(shards, snapshots, archives, clock)
            stack.enter_context(closing(Periodic("erasures", erasing.INTERVAL_SECONDS, eraser.run)))
            _run_beside(settings, shards, router, registry, snapshots, archives, clock, stack)
            mender = mending.Mender(shards.values(), registry.living, embedders)
            stack.enter_context(closing(Periodic("vectors", mending.INTERVAL_SECONDS, mender.run)))
            self.first_credentials: FirstCredentials | None = registry.bootstrap(clock())
            registration = Registration(registry, clock)
            memory_parts = MemoryParts(
                router,
                embedders,
                secret,
                clock,
                _rerankers(settings, stack),
                registry.current,
                _chat(settings, settings.chat_timeout_seconds, stack),
                jobs_added,
            )
            memories = memory_service.MemoryService(memory_parts)
            work = {ADD: memories.carry_out}
            workers = Workers([*shards.values()], registry.living, work, clock, jobs_added)
            stack.enter_context(closing(workers))
            passage = Passage(shards, registry.living)
            mover = Mover(shards, registry.placing, registry.living, passage, clock)
            drainer = Drainer(shards, registry, clock, begun)
            stack.enter_context(closing(Periodic("moves", moving.INTERVAL_SECONDS, mover.follow)))
            reindexer = Reindexer(shards, registry, embedders, clock)
            importer = Importer(
                router, archives, embedders.of, _settled(registry, clock), jobs_added.set, clock
            )
            plans: dict[Kind, Plan] = {
                Kind.EXPORT: Exporter(router, archives, clock).plan(),
                Kind.IMPORT: importer.plan(),
                Kind.MOVE: mover.plan(),
                Kind.DRAIN: drainer.plan(),
                Kind.REINDEX: reindexer.plan(),
            }
            conductor = Conductor(registry.operations, registry.living, plans, clock, begun)
            stack.enter_context(closing(conductor))
            subjects = Subjects(router, eraser, archives, clock)
            admin_parts = AdminParts(registry, secret, clock, subjects, begun, shards)
            services = (
                memories,
                sync_service.SyncService(router, embedders, secret, clock, registration, snapshots),
                tenant_service.TenantAdminService(admin_parts),
            )
            slots = Slots(
                handlers=settings.handler_threads,
                queued=settings.queued_calls,
                streams=settings.watch_streams,
                turns=turns,
            )
            limits = CallLimits(settings.shard_calls_per_second)
            waiting = memory_service.WAITING | tenant_service.WAITING
            door = Door(registry, ALLOWED, slots, waiting, limits, registry.usage.counter, passage)
            self.address = serve(
                settings, credentials, door, slots, services, embedders.new.space.semantic, stack
            )
            for shard in shards.values():
                stack.callback(shard.hub.close)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Finish running calls, then close every part. May be called again."""
        self._stack.close()

    def __enter__(self) -> App:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _turns(settings: Settings) -> Turns:
    """Where a database is a server of its own, calls wait for it within their turns, so more have one."""
    if all(url.startswith("sqlite") for url in settings.shard_urls().values()):
        return Turns()
    return Turns(*TURNS_BESIDE_A_DATABASE)


def _embedders(settings: Settings, turns: Turns, stack: ExitStack) -> Embedders:
    """Those that the settings name, each tried."""
    named: dict[str, Embedder] = {}
    for name in settings.embedder_names():
        embedder = stack.enter_context(closing(QueryCache(_embedder(settings, name, turns))))
        embedder.self_test()
        if not embedder.space.semantic:
            log.warning("the embedder %s has no semantics: only shared words are found", name)
        named[name] = embedder
    return Embedders(named)


def _embedder(settings: Settings, name: str, turns: Turns) -> Embedder:
    model = settings.openai_of(name)
    endpoint = EndpointSettings(
        url=model.base_url.rstrip("/") + "/embeddings",
        model=model.name,
        kind="embedding server",
        api_key=model.api_key.get_secret_value(),
    )
    kind = name.partition(":")[0]
    embedder = open_embedder(kind, openai=OpenAISettings(endpoint, model.dimension))
    # The embedder hash takes no longer than to wait for a turn.
    return FairEmbedder(embedder, turns, SHARES[kind]) if kind in SHARES else embedder


def _rerankers(settings: Settings, stack: ExitStack) -> dict[v1.Reranker.ValueType, Reranker]:
    rerankers: dict[v1.Reranker.ValueType, Reranker] = {}
    if settings.rerank_url:
        key = settings.rerank_api_key.get_secret_value()
        rerankers[v1.RERANKER_ENDPOINT] = stack.enter_context(
            closing(EndpointReranker(settings.rerank_api, settings.rerank_url, settings.rerank_model, key))
        )
    if (chat := _chat(settings, TIMEOUT_SECONDS, stack)) is not None:
        rerankers[v1.RERANKER_CHAT_MODEL] = ChatReranker(chat)
    return rerankers


def _chat(settings: Settings, timeout_seconds: float, stack: ExitStack) -> ChatModel | None:
    """The chat model, if one is set. Each use has its own, since one that is too slow to rank may well be
    fast enough to write: neither opens the other's circuit breaker."""
    if not settings.chat_model:
        return None
    key = settings.chat_api_key.get_secret_value()
    chat = ChatModel(settings.chat_base_url, settings.chat_model, key, timeout_seconds)
    stack.callback(chat.close)
    return chat


def _registry(settings: Settings, secret: bytes, embedders: Embedders, stack: ExitStack) -> Registry:
    engine = open_catalogue(settings.catalogue_url())
    stack.callback(engine.dispose)
    shard_names = settings.shard_urls().keys()
    space = embedders.new.space.id
    registry = Registry(engine, pepper=secret, shard_names=shard_names, space=space, offered=embedders.spaces)
    if missing := sorted(registry.shards() - shard_names):
        raise ShardMissing(
            f"tenants lie on {', '.join(missing)}, but there are only {', '.join(sorted(shard_names))}; "
            "give all database URLs in SCRUBJAY_SHARDS, in their old order"
        )
    made = embedders.dimensions
    if other := sorted(registry.spaces() - made.keys()):
        raise ModelMismatch(
            f"tenants have vectors of the space {', '.join(other)}, but this server makes {', '.join(made)}; "
            "name the embedder that they were made with in SCRUBJAY_EMBEDDER, or beside it in "
            "SCRUBJAY_EMBEDDERS"
        )
    return registry


def _shards(
    settings: Settings, embedders: Embedders, registry: Registry, turns: Turns, stack: ExitStack
) -> dict[str, Shard]:
    urls = settings.shard_urls()
    budget_bytes = settings.resident_mib * 1024 * 1024 // len(urls)
    shards = {}
    for name, url in urls.items():
        store = stack.enter_context(MemoryStore(url, limits=registry.quota_book.allowance, aside=turns.aside))
        store.migrate()
        shelf = Shelf(settings.data_dir / "index" / name)
        cache = StreamCache(store, shelf, embedders.dimensions, budget_bytes=budget_bytes)
        stack.callback(cache.close)
        shards[name] = shard = Shard(name, store, cache, registry.usage.counter.count_memories)
        if not store.exclusive:
            stack.enter_context(closing(HeadListener(url, shard.hub.notify, shard.hub.notify_all)))
    return shards


def _run_beside(
    settings: Settings,
    shards: Mapping[str, Shard],
    router: Router,
    registry: Registry,
    snapshots: Snapshots,
    archives: Archives,
    clock: Callable[[], Micros],
    stack: ExitStack,
) -> None:
    """Start what the server does beside its calls."""
    marks = heads.HeadMarks(settings.data_dir, shards)
    stack.callback(marks.write)
    stack.enter_context(closing(Periodic("marks", heads.INTERVAL_SECONDS, marks.write)))
    collector = collection.Collector(shards.values(), settings.tombstone_days, clock, registry.retaining)
    stack.enter_context(closing(Periodic("collection", collection.INTERVAL_SECONDS, collector.run)))
    linker = linking.Linker(shards.values())
    stack.enter_context(closing(Periodic("links", linking.INTERVAL_SECONDS, linker.run)))
    sweeper = forgetting.Sweeper(router, registry.every_tenant, clock)
    stack.enter_context(closing(Periodic("sweep", forgetting.INTERVAL_SECONDS, sweeper.run)))
    stack.callback(registry.usage.write)
    stack.enter_context(closing(Periodic("usage", usage.INTERVAL_SECONDS, registry.usage.write)))
    if days := settings.audit_days:
        cut = Periodic("audit", audit.INTERVAL_SECONDS, lambda _: registry.audit.cut(days, now=clock()))
        stack.enter_context(closing(cut))
    purger = purging.Purger(shards, registry.lives, snapshots, archives, clock)
    stack.enter_context(closing(Periodic("purge", purging.INTERVAL_SECONDS, purger.run)))
    stack.enter_context(closing(Periodic("archives", folder.INTERVAL_SECONDS, archives.collect)))
    for name, shard in shards.items():
        stack.callback(shard.accesses.write)
        counter = Periodic(f"counts-{name}", counting.INTERVAL_SECONDS, shard.accesses.write)
        stack.enter_context(closing(counter))


def _settled(registry: Registry, clock: Callable[[], Micros]) -> Callable[[Tenant, TenantChanges], object]:
    """What writes what a tenant has settled."""
    return lambda tenant, changes: registry.update_tenant(tenant.tenant_id, changes, now=clock())
