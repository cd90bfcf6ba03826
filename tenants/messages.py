"""Values of the catalogue as messages of the contract."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from scrubjay import v1
from scrubjay.memory import Micros
from scrubjay.wire import to_timestamp
from tenants import forget_policy, quotas, receipt, retention, write_settings
from tenants.audit import AuditEvent
from tenants.operation import OperationState, TenantOperation
from tenants.tenant import ApiKey, Device, Tenant
from tenants.usage import Usage, UsageKey, day_text


def tenant_message(tenant: Tenant) -> v1.Tenant:
    """All of one tenant."""
    forgets = tenant.forget_policy
    policy = None if forgets is None else forget_policy.to_message(forgets)
    return v1.Tenant(
        tenant_id=tenant.tenant_id,
        display_name=tenant.display_name,
        incarnation=tenant.incarnation,
        state=v1.TenantState.ValueType(tenant.state),
        shard=tenant.shard,
        space=tenant.space,
        created_at=to_timestamp(tenant.created_at),
        forget_policy=policy,
        write_settings=write_settings.to_message(tenant.write_settings),
        quotas=quotas.to_message(tenant.quotas),
        retention=retention.to_message(tenant.retention),
        suspended_at=_optional_timestamp(tenant.suspended_at),
        suspension_reason=tenant.suspension_reason,
        deleted_at=_optional_timestamp(tenant.deleted_at),
        purge_at=_optional_timestamp(tenant.purge_at),
        purge_receipt=None if tenant.purge is None else receipt.to_message(tenant.purge),
    )


def api_key_message(api_key: ApiKey) -> v1.ApiKey:
    """A key without its secret."""
    return v1.ApiKey(
        key_id=api_key.key_id,
        tenant_id=api_key.tenant_id or "",
        display_name=api_key.display_name,
        role=v1.Role.ValueType(api_key.role),
        client_id=api_key.client_id,
        created_at=to_timestamp(api_key.created_at),
        expires_at=_optional_timestamp(api_key.expires_at),
        revoked_at=_optional_timestamp(api_key.revoked_at),
        across_subjects=api_key.across_subjects,
        scopes=api_key.scopes,
    )


def operation_message(operation: TenantOperation) -> v1.TenantOperation:
    """All of one long operation."""
    message = v1.TenantOperation(
        operation=v1.LongRunningOperation(
            id=operation.operation_id,
            kind=operation.kind.value,
            state=v1.OperationState.ValueType(operation.state),
            phase=operation.phase,
            done_count=operation.done,
            total_count=operation.total,
            parts_per_second=operation.per_second,
            request_id=operation.request_id,
            created_at=to_timestamp(operation.created_at),
            updated_at=to_timestamp(operation.updated_at),
            ended_at=_optional_timestamp(operation.ended_at),
            error=v1.OperationError.FromString(operation.error) if operation.error else None,
            tenant_id=operation.tenant_id,
            cancellable=operation.cancellable and not operation.state.ended,
            cancelling=operation.cancelling and not operation.state.ended,
        )
    )
    if operation.state is OperationState.SUCCEEDED:
        message.result.MergeFromString(operation.answer)
    return message


def device_message(device: Device) -> v1.Device:
    """All of one device."""
    return v1.Device(
        device_id=device.device_id,
        tenant_id=device.tenant_id,
        client_id=device.client_id,
        display_name=device.display_name,
        **{f"{device.subject.kind}_id": device.subject.name},
        scopes=device.scopes,
        created_at=to_timestamp(device.created_at),
        last_seen_at=to_timestamp(device.seen_at),
        revoked_at=_optional_timestamp(device.revoked_at),
        wipe=device.wipe,
        wipe_told_at=_optional_timestamp(device.wipe_told_at),
    )


def audit_message(event: AuditEvent) -> v1.AuditEvent:
    """An event without its digest."""
    act = event.act
    return v1.AuditEvent(
        number=event.number,
        occurred_at=to_timestamp(act.at),
        actor=act.actor,
        role=v1.Role.ValueType(act.role),
        tenant_id=act.tenant_id,
        incarnation=act.incarnation,
        method=act.method,
        resource=act.resource,
        outcome=act.outcome,
        detail=act.detail,
    )


def usage_row_message(key: UsageKey, usage: Usage) -> v1.UsageRow:
    """What a credential did on a day."""
    return v1.UsageRow(day=day_text(key.day), key_id=key.key_id, rpc=key.rpc, **usage._asdict())


def _optional_timestamp(time: Micros | None) -> Timestamp | None:
    return None if time is None else to_timestamp(time)
