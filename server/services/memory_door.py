"""What every part of MemoryService's door is built on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from scrubjay import v1
from scrubjay.filters import Matcher, matcher
from scrubjay.filters import from_message as filter_from_message
from scrubjay.memory import Micros, Subject
from scrubjay.merge import WriteResult
from scrubjay.stamp import CommitStamp
from server.index.resident import View
from server.ingest.author import Author, server_replica
from server.providers.chat import ChatModel
from server.providers.embedder import TextKind
from server.providers.embedders import Embedders
from server.providers.reranker import Reranker
from server.revision import Revisions
from server.router import Router, tenant_of
from server.services.policies import Policies
from server.services.requests import check_scopes, narrowing
from server.store.memory_store import StreamKey, Writing
from tenants.tenant import Caller, Incarnation, Tenant
from tenants.validation import NamesSubject


class Narrows(NamesSubject, Protocol):
    """A read of one subject that may be narrowed."""

    @property
    def scopes(self) -> Iterable[str]: ...


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """What MemoryService asks. ``clock`` gives microseconds since 1970; ``secret`` seals tokens.

    ``current`` gives a tenant as the catalogue has it now; a caller's own is as old as its credential.
    ``chat`` is the model that policies ask. ``jobs_added`` is set where work was acknowledged that goes on
    after its call.
    """

    router: Router
    embedders: Embedders
    secret: bytes
    clock: Callable[[], Micros]
    rerankers: Mapping[v1.Reranker.ValueType, Reranker] = field(default_factory=lambda: MappingProxyType({}))
    current: Callable[[Tenant], Tenant] = lambda tenant: tenant
    chat: ChatModel | None = None
    jobs_added: threading.Event = field(default_factory=threading.Event)


class MemoryDoor:
    """The parts of a memory RPC."""

    def __init__(self, parts: MemoryParts) -> None:
        self._router = parts.router
        self._embedders = parts.embedders
        self._secret = parts.secret
        self._revisions = Revisions(parts.secret)
        self._clock = parts.clock
        self._rerankers = parts.rerankers
        self._current = parts.current
        self._policies = Policies(parts.embedders, parts.chat)
        self._jobs_added = parts.jobs_added

    def _revision(self, writing: Writing, keys: Iterable[StreamKey]) -> str:
        heads = {key: writing.head(key) for key in sorted(keys)}
        return self._revisions.token(
            {key: head.head if head else CommitStamp(0) for key, head in heads.items()}
        )

    def _embed(self, tenant: Tenant, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts of memories in the tenant's space."""
        return self._embedders.of(tenant).embed(texts, TextKind.DOCUMENT)

    def _view(self, request: Narrows, subject: Subject | None, caller: Caller) -> View:
        agent_id, run_id = narrowing(request, subject)
        scopes = check_scopes(tuple(request.scopes))
        return View(caller.client_id, self._clock(), scopes, agent_id, run_id, granted=caller.scopes)


def author_of(caller: Caller) -> Author:
    """The author of what a caller writes through a server."""
    replica = server_replica(tenant_of(caller).incarnation)
    return Author(caller.client_id, replica, caller.key_id, caller.role.name, scopes=caller.scopes)


def field_results(results: Iterable[WriteResult]) -> list[v1.FieldResult]:
    """What became of each register that was written."""
    return [
        v1.FieldResult(
            field=result.write.field,
            outcome=v1.Outcome.ValueType(result.outcome),
            stamp=str(result.standing),
        )
        for result in results
    ]


def read_filter(request: v1.ListRequest | v1.SearchRequest | v1.DeleteByFilterRequest) -> Matcher | None:
    """The request's filter, if it has one. InvalidField names the node that is wrong."""
    return matcher(filter_from_message(request.filter)) if request.HasField("filter") else None


def token_purpose(request: Message, incarnation: Incarnation) -> str:
    """What a page token of this request is bound to: the tenant, and all that chooses the rows."""
    chosen = type(request).FromString(request.SerializeToString())
    for name in ("page_token", "page_size", "min_revision", "request_id"):
        if name in chosen.DESCRIPTOR.fields_by_name:
            chosen.ClearField(name)
    body = chosen.SerializeToString(deterministic=True)
    return f"{chosen.DESCRIPTOR.full_name}\0{incarnation}\0{body.hex()}"
