"""Draining a shard: no tenant is placed there any more, and those who are there move to others, one after
another. Each move is an operation of its own, and may be told and cancelled like any other.

A tenant on which another operation is under way is moved once that has ended. What was deleted stays where it
is until it is purged. A drain that is cancelled leaves those who moved where they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from scrubjay import v1
from scrubjay.errors import (
    NotFound,
    OperationEnded,
    OperationUnderWay,
    TenantNotActive,
)
from scrubjay.memory import JsonValue, Micros
from server.operations.conductor import Later, Phase, Plan, Task
from server.operations.moving import SWITCHED
from server.shard import Shard
from tenants.operation import Kind, OperationState, TenantOperation
from tenants.registry import Registry, RequestKey
from tenants.tenant import Tenant, TenantState


class Drainer:
    """Drains shards. ``begun`` is set where a move was begun; ``clock`` gives microseconds since 1970."""

    def __init__(
        self,
        shards: Mapping[str, Shard],
        registry: Registry,
        clock: Callable[[], Micros],
        begun: threading.Event,
    ) -> None:
        self._shards = dict(shards)
        self._registry = registry
        self._clock = clock
        self._begun = begun

    def plan(self) -> Plan:
        """The phases of DrainShard, and how it is taken back."""
        return Plan((Phase("move", self._move_all), Phase("compact", self._compact)), self._roll_back)

    def _move_all(self, task: Task) -> None:
        """Move the next tenant, once the one before has left; come again for what is under way."""
        shard = _shard(task)
        if _note(task, "known_at") is None:
            self._registry.placing.drain(shard)
            self._registry.placing.note_all_moving(shard, moving=True)
            task.note(known_at=self._clock(), total=self._registry.placing.counts().get(shard, 0))
        self._follow(task)
        while (tenant := self._next(task)) is not None:
            if self._begin(task, tenant):
                raise Later
        if _note(task, "again") or _list(task, "under_way"):
            task.note(after="", again=False)
            raise Later

    def _follow(self, task: Task) -> None:
        """Look how the moves stand that were begun. Later where one has not left its shard."""
        moved, failed = _list(task, "moved"), _list(task, "failed")
        under_way: list[JsonValue] = []
        waits = False
        for operation_id in _list(task, "under_way"):
            operation = self._operation(str(operation_id))
            if operation is None or operation.state is OperationState.SUCCEEDED:
                moved.append(operation_id)
            elif operation.state.ended:
                failed.append(operation.tenant_id)
            else:
                under_way.append(operation_id)
                waits = waits or operation.phase not in SWITCHED
        task.note(moved=moved, failed=failed, under_way=under_way)
        task.report(len(moved), int(str(_note(task, "total"))))
        if waits:
            raise Later

    def _operation(self, operation_id: str) -> TenantOperation | None:
        try:
            return self._registry.operations.get(operation_id)
        except NotFound:
            return None

    def _next(self, task: Task) -> Tenant | None:
        """The next tenant on the shard that may be moved, and was not moved in vain."""
        shard, after = _shard(task), str(_note(task, "after") or "")
        while (found := self._registry.placing.next_on(shard, after)) is not None:
            after = found.tenant_id
            if found.state is not TenantState.DELETING and after not in _list(task, "failed"):
                task.note(after=after)
                return found
        return None

    def _begin(self, task: Task, tenant: Tenant) -> bool:
        """Begin a tenant's move; whether that could be."""
        placing, shard = self._registry.placing, _shard(task)
        target = placing.target(tenant.incarnation, (shard,))
        if target is None:
            return False
        asked: dict[str, JsonValue] = {"shard": target, "compact": False}
        if tenant.moving:
            asked["known_at"] = _note(task, "known_at")
        request = RequestKey("", actor=task.operation.actor)
        try:
            begun = self._registry.operations.begin(
                Kind.MOVE, tenant.tenant_id, asked, now=self._clock(), request=request
            )
        except OperationUnderWay:
            task.note(again=True)
            return False
        except (NotFound, TenantNotActive):
            return False
        task.note(under_way=[*_list(task, "under_way"), begun.operation_id])
        self._begun.set()
        return True

    def _compact(self, task: Task) -> None:
        """Leave no byte of those who moved in the shard's file."""
        shard = _shard(task)
        if shard in self._shards:
            self._shards[shard].compact()
        left = self._registry.placing.counts().get(shard, 0)
        result = v1.DrainShardResult(moved_count=len(_list(task, "moved")), left_count=left)
        task.answer(v1.TenantOperationResult(drain_shard=result))

    def _roll_back(self, task: Task) -> None:
        shard = _shard(task)
        for operation_id in _list(task, "under_way"):
            try:
                self._registry.operations.cancel(
                    str(operation_id), None, now=self._clock(), request=RequestKey("")
                )
            except (NotFound, OperationEnded):
                continue
        self._begun.set()
        self._registry.placing.undrain(shard)
        self._registry.placing.note_all_moving(shard, moving=False)


def _shard(task: Task) -> str:
    return str(task.operation.asked["shard"])


def _note(task: Task, name: str) -> JsonValue:
    return (task.operation.notes or {}).get(name)


def _list(task: Task, name: str) -> list[JsonValue]:
    found = _note(task, name)
    return list(found) if isinstance(found, list) else []
