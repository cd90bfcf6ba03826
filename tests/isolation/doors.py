"""Guards that are no statement of a shard: seals, owners, roles, and what is kept in memory."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch
from uuid import NAMESPACE_DNS, uuid5

from sqlalchemy import BinaryExpression, Connection, true
from sqlalchemy.sql import ClauseElement, visitors
from sqlalchemy.sql.operators import eq

from scrubjay.memory import Viewer
from server.cursor import Cursors
from server.index.cache import StreamCache
from server.interceptors import Door
from server.services import backend_watch, downloading
from server.snapshots import Snapshots
from server.store import copying
from server.store.moved_rows import RowStatements
from server.store.rows import StreamKey
from tenants import page
from tenants.registry.registry import Registry
from tenants.tenant import Incarnation, Role
from tests.isolation.guards import GUARDS, Guard, guard

NOBODY = Incarnation("00000000-0000-0000-0000-000000000000")


@contextmanager
def changed(owner: Any, name: str, change: Any) -> Iterator[None]:
    """For the block ``owner.name`` is what ``change`` makes of it."""
    with patch.object(owner, name, change(getattr(owner, name))):
        yield


def everywhere(name: str, change: Any) -> ExitStack:
    """The same in every module of ours that imported a function by this name."""
    stack = ExitStack()
    for module_name, module in sorted(sys.modules.items()):
        if module_name.split(".")[0] in ("server", "tenants") and hasattr(module, name):
            stack.enter_context(changed(module, name, change))
    return stack


# --- what a caller only carries -------------------------------------------------------------------


@guard("A page token of memories is good in one life alone.", anew=True)
def page_tokens_of_memories() -> Iterator[None]:
    with everywhere("token_purpose", lambda purpose: lambda request, _life: purpose(request, NOBODY)):
        yield


@guard("A page token of an admin's lists is good in one life alone.", anew=True)
def page_tokens_of_admins() -> Iterator[None]:
    def change(seal: Any) -> Any:
        return lambda secret, purpose, *rest: seal(secret, purpose.split()[0], *rest)

    with changed(page, "seal", change), changed(page, "unseal", change):
        yield


@guard("A revision is good in one life alone.", anew=True)
def revisions() -> Iterator[None]:
    with patch("server.revision._purpose", lambda _life: "revision"):
        yield


@guard("A device's cursor is good in one life alone.", anew=True)
def cursors() -> Iterator[None]:
    def change(mac: Any) -> Any:
        return lambda self, key, *rest: mac(self, replace_life(key), *rest)

    with changed(Cursors, "_mac", change):
        yield


def replace_life(key: StreamKey) -> StreamKey:
    """The stream as if all lives were one."""
    return StreamKey(NOBODY, key.stream)


@guard("A backend's resume token is good in one life alone.", anew=True)
def resume_tokens() -> Iterator[None]:
    def change(seal: Any) -> Any:
        return lambda secret, purpose, rest: seal(secret, _without(purpose, 1), rest)

    with changed(backend_watch, "seal", change), changed(backend_watch, "opened", change):
        yield


def _without(purpose: str, number: int) -> str:
    parts = purpose.split("\0")
    return "\0".join((*parts[:number], *parts[number + 1 :]))


@guard("A token of a download is good in one life alone.")
def download_tokens() -> Iterator[None]:
    with download_tokens_of_any_life():
        yield


def download_tokens_of_any_life() -> AbstractContextManager[None]:
    """Tokens of downloads as if all lives were one."""

    def change(purpose: Any) -> Any:
        return lambda key, *rest: purpose(replace_life(key), *rest)

    return changed(downloading, "_purpose", change)


@guard("A principal names one life.", anew=True)
def principals() -> Iterator[None]:
    with everywhere("principal", lambda made: lambda _life, *rest: made(NOBODY, *rest)):
        yield


@guard("A request id of an admin is one of its own tenant's.")
def request_ids_of_admins() -> Iterator[None]:
    def change(made: Any) -> Any:
        return lambda request_id, caller: replace(made(request_id, caller), scope="")

    with everywhere("request_key", change):
        yield


# --- whose it is ----------------------------------------------------------------------------------


@guard("A tenant's admin acts on its own tenant alone.")
def owners() -> Iterator[None]:
    with everywhere("check_own", lambda _: lambda *_: None):
        yield


@guard("A tenant's admin reads what is about its own tenant alone.")
def readers() -> Iterator[None]:
    with everywhere("check_reader", lambda _: lambda *_: None):
        yield


@guard("A role calls what it may.")
def roles() -> Iterator[None]:
    def change(made: Any) -> Any:
        def init(self: Any, authenticator: Any, allowed: Any, *rest: Any, **named: Any) -> None:
            made(self, authenticator, dict.fromkeys(allowed, frozenset(Role)), *rest, **named)

        return init

    with changed(Door, "__init__", change):
        yield


@guard("Each life of a tenant has an incarnation of its own.", anew=True)
def incarnations() -> Iterator[None]:
    def change(made: Any) -> Any:
        def mutated(self: Any, *rest: Any) -> Any:
            tenant = made(self, *rest)
            return replace(tenant, incarnation=Incarnation(str(uuid5(NAMESPACE_DNS, tenant.tenant_id))))

        return mutated

    with changed(Registry, "_new_tenant", change):
        yield


@guard("A credential is good by its secret, not by its id.")
def secrets() -> Iterator[None]:
    with everywhere("same_digest", lambda _: lambda *_: True):
        yield


# --- the catalogue's statements -------------------------------------------------------------------


@contextmanager
def _catalogue(module: str, function: str) -> Iterator[None]:
    """The statements of one function of the catalogue compare no lives."""

    def widen(element: Any, **_: object) -> Any:
        compares = isinstance(element, BinaryExpression) and element.operator is eq
        return true() if compares and getattr(element.left, "name", "") == "incarnation" else None

    def change(execute: Any) -> Any:
        def mutated(self: Any, statement: Any, *rest: Any, **named: Any) -> Any:
            if isinstance(statement, ClauseElement) and _called_in(module, function):
                statement = visitors.replacement_traverse(statement, {}, widen)
            return execute(self, statement, *rest, **named)

        return mutated

    with changed(Connection, "execute", change):
        yield


def _called_in(module: str, function: str) -> bool:
    frame = sys._getframe(2)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__") == module and frame.f_code.co_name == function:
            return True
        frame = frame.f_back
    return False


_OF_THE_CATALOGUE = (
    ("keys", "list_api_keys"),
    ("keys", "rotate_api_key"),
    ("keys", "revoke_api_key"),
    ("devices", "list_devices"),
    ("devices", "revoke_device"),
    ("subjects", "erase_subject"),
    ("subjects", "devices_of"),
    ("audit", "list_events"),
    ("operations", "get"),
    ("operations", "list_operations"),
    ("operations", "cancel"),
    ("stocks", "stock_of"),
    ("lives", "_change"),
    ("lives", "_delete_all_of"),
    ("registry", "living"),
    ("rows", "tenant_of_life"),
    ("usage", "list_usage"),
    ("placing", "_write"),
    ("reindexing", "switch"),
)
for _module, _function in _OF_THE_CATALOGUE:
    GUARDS[f"catalogue {_module}.{_function}"] = Guard(
        f"catalogue {_module}.{_function}",
        "A statement of the catalogue touches the rows of one life.",
        partial(_catalogue, f"tenants.registry.{_module}", _function),
    )


# --- what the store says in SQL of its own --------------------------------------------------------


@guard("What is noted while a tenant moves is of its own rows.")
def rows_that_are_followed() -> Iterator[None]:
    when = re.compile(r"WHEN \(?(NEW|OLD)\.incarnation = '[^']+'(::uuid)?\)?")

    def change(triggers: Any) -> Any:
        return lambda *given: {name: when.sub("", sql) for name, sql in triggers(*given).items()}

    with changed(RowStatements, "triggers", change):
        yield


@guard("A copy of a stream is of one life's.")
def copies_of_streams() -> Iterator[None]:
    with changed(copying, "_COPY", lambda sql: sql.replace("incarnation = ?", "? IS NOT NULL")):
        yield


# --- what is kept in memory -----------------------------------------------------------------------


@guard("What is resident of a stream is found by its life.")
def resident_streams() -> Iterator[None]:
    def change(locked: Any) -> Any:
        def mutated(self: Any, name: Any) -> Any:
            extent, space = name
            shared = replace_life(extent) if isinstance(extent, StreamKey) else NOBODY
            return locked(self, (shared, space))

        return mutated

    with changed(StreamCache, "_locked", change):
        yield


@guard("A snapshot's file is sent to whom it was made for.")
def snapshot_files() -> Iterator[None]:
    def reopened(self: Any, store: Any, name: str, key: StreamKey, viewer: Viewer) -> Any:
        snapshot = self._find(name)
        assert snapshot is not None
        return self._read(snapshot)

    with download_tokens_of_any_life(), patch.object(Snapshots, "reopened", reopened):
        yield
