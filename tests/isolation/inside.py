"""Guards inside a tenant, and at the end of its life: client, subject, scope, grant, role, state.

Tests of other folders must notice that one is missing: which, is in ``CATCHES``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from scrubjay.memory import Subject, Viewer
from server import interceptors
from server.services import finding
from server.services.operations import Operations
from server.services.sync_service import SyncService
from server.store import committer
from server.store.memory_store import StreamKey
from tenants.credential_cache import CredentialCache
from tenants.tenant import Role
from tests.isolation.doors import changed
from tests.isolation.guards import guard

ALICE = Subject("user", "alice")


@guard("A private memory is its owner's client's alone.")
def private_to_its_client() -> Iterator[None]:
    with patch.object(Viewer, "sees", lambda viewer, memory: viewer.may_enter(memory.scope)):
        yield


@guard("A device, or a key within scopes, sees those alone.")
def kept_to_its_scopes() -> Iterator[None]:
    with patch.object(Viewer, "may_enter", lambda *_: True):
        yield


@guard("A device sees its own subject alone.")
def kept_to_its_subject() -> Iterator[None]:
    def change(place: Any) -> Any:
        def mutated(self: Any, caller: Any) -> Any:
            found = place(self, caller)
            return replace(found, subject=ALICE, key=StreamKey(found.key.incarnation, ALICE.key))

        return mutated

    with changed(SyncService, "place", change):
        yield


@guard("An operation is known to the client that asked for it.")
def known_to_who_asked() -> Iterator[None]:
    def change(job: Any) -> Any:
        def mutated(self: Any, operation_id: str, caller: Any) -> Any:
            shard = self._router.shard(caller.tenant)
            found = shard.job(caller.tenant.incarnation, operation_id)
            who = caller if found is None else replace(caller, client_id=found.client_id)
            return job(self, operation_id, who)

        return mutated

    with changed(Operations, "_job", change):
        yield


@guard("Only a key that was given the grant searches across subjects.")
def across_subjects_by_a_grant() -> Iterator[None]:
    def change(subject: Any) -> Any:
        return lambda request, caller: subject(request, replace(caller, across_subjects=True))

    with changed(finding, "_subject", change):
        yield


@guard("A device is its own client, whatever it says.")
def one_client_a_device() -> Iterator[None]:
    with patch.object(interceptors, "API_KEY_ROLES", frozenset(Role)):
        yield


@guard("Nobody calls on the memories of a tenant that is not active.")
def active_tenants() -> Iterator[None]:
    with patch.object(interceptors, "_check_state", lambda _: None):
        yield


@guard("Who was told to forget a tenant's credentials looks again.")
def credentials_forgotten() -> Iterator[None]:
    with patch.object(CredentialCache, "forget_tenant", lambda *_: None):
        yield


@guard("Nothing is written under a life that has ended.")
def lives_that_ended() -> Iterator[None]:
    with patch.object(committer, "ended_among", lambda *_: frozenset()):
        yield
