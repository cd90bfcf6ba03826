"""The door of shards: how they stand, moving a tenant to another one, and draining one."""

from __future__ import annotations

from scrubjay import v1
from scrubjay.errors import InvalidField, StorageUnavailable, check
from scrubjay.validity import request_id_violation
from tenants.admin_parts import HeldShard
from tenants.audit_door import audited
from tenants.messages import operation_message
from tenants.operation import Kind
from tenants.operation_door import OperationDoor
from tenants.ownership import request_key
from tenants.tenant import Caller
from tenants.validation import named_violation


class ShardDoor(OperationDoor):
    """Tells of shards, and moves tenants between them; a part of TenantAdminService."""

    @audited
    def move_tenant(self, request: v1.MoveTenantRequest, caller: Caller) -> v1.MoveTenantResponse:
        """Raises InvalidField, TenantNotFound, TenantNotActive, OperationUnderWay, RequestIdReused."""
        if request.shard:
            self._check_shard(request.shard)
            if request.shard in self._registry.placing.draining():
                raise InvalidField.of("shard", f"{request.shard} is drained; name another one, or none")
        begun = self._begin(Kind.MOVE, request, caller, {"shard": request.shard})
        return v1.MoveTenantResponse(operation=begun)

    def list_shards(self, _request: v1.ListShardsRequest, _caller: Caller) -> v1.ListShardsResponse:
        """How each shard stands, as this server sees it."""
        draining, counts = self._registry.placing.draining(), self._registry.placing.counts()
        found = [_message(name, shard) for name, shard in self._shards.items()]
        for one in found:
            one.tenant_count, one.draining = counts.get(one.name, 0), one.name in draining
        return v1.ListShardsResponse(shards=found)

    @audited
    def drain_shard(self, request: v1.DrainShardRequest, caller: Caller) -> v1.DrainShardResponse:
        """Raises InvalidField, OperationUnderWay, RequestIdReused."""
        check(request_id_violation(request.request_id), named_violation("shard", request.shard, "a shard"))
        self._check_shard(request.shard)
        placing, operations = self._registry.placing, self._registry.operations
        if request.undo:
            undoing = request_key(request.request_id, caller)
            placing.undo_drain(request.shard, now=self._clock(), request=undoing)
            return v1.DrainShardResponse()
        if not placing.takes_tenants(without=request.shard):
            raise InvalidField.of("shard", "is the last one that takes tenants; add another one first")
        begun = operations.begin_on_shard(
            Kind.DRAIN,
            request.shard,
            {"shard": request.shard},
            now=self._clock(),
            request=request_key(request.request_id, caller),
        )
        self._begun.set()
        return v1.DrainShardResponse(operation=operation_message(begun))

    def _check_shard(self, name: str) -> None:
        if name not in self._registry.placing.names:
            known = ", ".join(sorted(self._registry.placing.names))
            raise InvalidField.of("shard", f"there is no shard {name!r}; there are {known}")


def _message(name: str, shard: HeldShard) -> v1.Shard:
    """What its database tells."""
    try:
        memories, size = shard.stock_of_all()
    except StorageUnavailable:
        return v1.Shard(name=name, kind=_KINDS[shard.kind])
    return v1.Shard(
        name=name, kind=_KINDS[shard.kind], reachable=True, memory_count=memories, byte_count=size
    )


_KINDS = {"sqlite": v1.SHARD_KIND_SQLITE, "postgresql": v1.SHARD_KIND_POSTGRESQL}
