"""What ``python -m tenants`` prints: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any

import typer
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scrubjay import v1
from tenants.forget_policy import DEFAULT_POLICY, from_message


def show(answer: Message | Sequence[Message], table: Table, as_json: bool) -> None:
    """Print the table, or the answer as JSON."""
    if not as_json:
        Console().print(table)
        return
    value = _json(answer) if isinstance(answer, Message) else [_json(each) for each in answer]
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


def _json(message: Message) -> dict[str, object]:
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


def list_of_tenants(tenants: Iterable[v1.Tenant]) -> Table:
    """A line for each."""
    table = _columns("tenant", "name", "state", "shard", "made")
    for each in tenants:
        made = _time(each.created_at)
        _add(table, each.tenant_id, each.display_name, _state(each), each.shard, made)
    return table


def tenant_table(tenant: v1.Tenant) -> Table:
    """All of one tenant."""
    return _details(
        ("tenant", tenant.tenant_id),
        ("name", tenant.display_name),
        ("state", _state(tenant)),
        *_standing(tenant),
        ("shard", tenant.shard),
        ("space", tenant.space),
        ("incarnation", tenant.incarnation),
        ("made", _time(tenant.created_at)),
        ("forgets", _forgets(tenant)),
        ("writes", _writes(tenant.write_settings)),
        *_prompts(tenant.write_settings),
        ("keeps", _keeps(tenant.retention)),
        ("limits", _limits(tenant.quotas)),
    )


def _standing(tenant: v1.Tenant) -> Iterator[tuple[str, str]]:
    """Since when and why it is not in use, until when that can be taken back, and what was purged."""
    if tenant.HasField("suspended_at"):
        why = f": {tenant.suspension_reason}" if tenant.suspension_reason else ""
        yield "suspended", _time(tenant.suspended_at) + why
    if tenant.HasField("deleted_at"):
        yield "deleted", _time(tenant.deleted_at)
    if tenant.HasField("purge_receipt"):
        receipt = tenant.purge_receipt
        finished = receipt.HasField("finished_at")
        yield "purged", _time(receipt.finished_at) if finished else "not yet whole"
        yield "swept", ", ".join(f"{each.count} {each.place}" for each in receipt.swept)
    elif tenant.HasField("purge_at"):
        yield "purge", f"from {_time(tenant.purge_at)}"


def _forgets(tenant: v1.Tenant) -> str:
    policy = from_message(tenant.forget_policy) if tenant.HasField("forget_policy") else DEFAULT_POLICY
    return "; ".join(map(str, policy.rules)) or "only what expired"


def _writes(settings: v1.WriteSettings) -> str:
    if settings.policy == v1.WRITE_POLICY_UNSPECIFIED:
        return "by the default policy"
    return f"by the policy {v1.WritePolicy.Name(settings.policy).removeprefix('WRITE_POLICY_')}"


def _keeps(retention: v1.Retention) -> str:
    history, tombstones = retention.history_days, retention.tombstone_days
    kept = f"history for {history} days" if history else "history for ever"
    return f"{kept}, tombstones for {tombstones} days" if tombstones else kept


def _limits(quotas: v1.Quotas) -> str:
    set_ones = (f"{field.name.replace('_', ' ')}: {value:g}" for field, value in quotas.ListFields())
    return ", ".join(set_ones) or "none"


def _prompts(settings: v1.WriteSettings) -> Iterator[tuple[str, str]]:
    if settings.custom_instructions:
        yield "instructions", settings.custom_instructions
    if settings.custom_reconcile_prompt:
        yield "reconcile prompt", settings.custom_reconcile_prompt


def stock_table(stock: v1.Stock, quotas: v1.Quotas) -> Table:
    """What a tenant has, beside what it may have."""
    table = _columns("has", "now", "limit")
    for field in stock.DESCRIPTOR.fields:
        limit = getattr(quotas, field.name)
        _add(table, field.name.replace("_", " "), str(getattr(stock, field.name)), str(limit or "none"))
    return table


def list_of_usage(rows: Iterable[v1.UsageRow]) -> Table:
    """A line for each."""
    table = _columns("day", "key or device", "RPC", "calls", "refused", "bytes in", "bytes out", "memories")
    for each in rows:
        numbers = (each.calls, each.refused, each.bytes_in, each.bytes_out, each.memories)
        _add(table, each.day, each.key_id, each.rpc or "(stored)", *map(str, numbers))
    return table


def key_table(key: v1.ApiKey) -> Table:
    """All of one key."""
    return _details(
        ("key id", key.key_id),
        ("tenant", key.tenant_id or "(platform)"),
        ("name", key.display_name),
        ("role", v1.Role.Name(key.role).removeprefix("ROLE_")),
        ("client", key.client_id),
        *((("searches", "across subjects"),) if key.across_subjects else ()),
        *((("reaches", ", ".join(key.scopes)),) if key.scopes else ()),
        ("made", _time(key.created_at)),
        ("expires", _time(key.expires_at) if key.HasField("expires_at") else "never"),
        ("revoked", _time(key.revoked_at) if key.HasField("revoked_at") else "no"),
    )


def list_of_keys(keys: Iterable[v1.ApiKey]) -> Table:
    """A line for each."""
    table = _columns("key id", "name", "role", "client", "scopes", "made", "expires", "revoked")
    for each in keys:
        role, reaches = v1.Role.Name(each.role).removeprefix("ROLE_"), ", ".join(each.scopes) or "all"
        expires = _time(each.expires_at) if each.HasField("expires_at") else "never"
        revoked = _time(each.revoked_at) if each.HasField("revoked_at") else "no"
        names = (each.key_id, each.display_name, role, each.client_id, reaches)
        _add(table, *names, _time(each.created_at), expires, revoked)
    return table


def rotation_table(rotated: v1.RotateApiKeyResponse) -> Table:
    """All of the new key, and when the old one ends."""
    table = key_table(rotated.api_key)
    old = rotated.old_api_key
    _add(table, "in place of", f"{old.key_id}, good until {_time(old.expires_at)}")
    return table


def enrolment_table(request: v1.CreateEnrolmentRequest, enrolment: v1.CreateEnrolmentResponse) -> Table:
    """What a code is for, without the code."""
    return _details(
        ("tenant", request.tenant_id),
        ("name", request.display_name),
        ("about", _subject(request)),
        ("scopes", _scopes(request)),
        ("client", enrolment.client_id),
        ("expires", _time(enrolment.expires_at)),
    )


def list_of_devices(devices: Iterable[v1.Device]) -> Table:
    """A line for each."""
    table = _columns("device", "name", "about", "client", "seen", "revoked")
    for each in devices:
        seen = _time(each.last_seen_at)
        _add(table, each.device_id, each.display_name, _subject(each), each.client_id, seen, _revoked(each))
    return table


def device_table(device: v1.Device) -> Table:
    """All of one device."""
    return _details(
        ("device", device.device_id),
        ("tenant", device.tenant_id),
        ("name", device.display_name),
        ("about", _subject(device)),
        ("scopes", _scopes(device)),
        ("client", device.client_id),
        ("made", _time(device.created_at)),
        ("seen", _time(device.last_seen_at)),
        ("revoked", _revoked(device)),
    )


def erasure_table(erasure: v1.EraseSubjectResponse) -> Table:
    """What was erased, and which devices may still hold copies."""
    receipt = erasure.receipt
    pending = [f"{one.display_name or one.client_id} ({one.device_id})" for one in erasure.pending_devices]
    return _details(
        ("erased", _time(receipt.finished_at)),
        ("swept", ", ".join(f"{each.count} {each.place}" for each in receipt.swept)),
        ("may hold copies", ", ".join(pending) or "no device"),
    )


def list_of_operations(operations: Iterable[v1.TenantOperation]) -> Table:
    """A line for each."""
    table = _columns("operation", "what", "tenant", "state", "phase", "done", "begun", "ended")
    for each in operations:
        one = each.operation
        ended = _time(one.ended_at) if one.HasField("ended_at") else ""
        state = v1.OperationState.Name(one.state).removeprefix("OPERATION_STATE_")
        _add(
            table, one.id, one.kind, one.tenant_id, state, one.phase, _done(one), _time(one.created_at), ended
        )
    return table


def operation_table(operation: v1.TenantOperation) -> Table:
    """All of one operation, and what came of it."""
    one = operation.operation
    lines = [
        ("operation", one.id),
        ("what", one.kind),
        ("tenant", one.tenant_id or "(platform)"),
        ("state", v1.OperationState.Name(one.state).removeprefix("OPERATION_STATE_")),
        *((("phase", f"{one.phase}, {_done(one)}"),) if one.phase else ()),
        *((("error", one.error.message),) if one.HasField("error") else ()),
        ("begun", _time(one.created_at)),
        *((("ended", _time(one.ended_at)),) if one.HasField("ended_at") else ()),
    ]
    for _, result in operation.result.ListFields():
        lines += [(field.name.replace("_", " "), _result(value)) for field, value in result.ListFields()]
    return _details(*lines)


def _result(value: Any) -> str:
    """What came of an operation, a field of it."""
    if isinstance(value, Timestamp):
        return _time(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{count} {name}" for name, count in sorted(value.items()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "\n".join(f"line {one.line} {one.description}" for one in value)
    return str(value)


def _done(operation: v1.LongRunningOperation) -> str:
    of = f" of {operation.total_count}" if operation.total_count else ""
    rate = f", {operation.parts_per_second:.0f} a second" if operation.parts_per_second else ""
    return f"{operation.done_count}{of}{rate}"


def list_of_shards(shards: Iterable[v1.Shard]) -> Table:
    """A line for each."""
    table = _columns("shard", "database", "tenants", "memories", "bytes", "")
    for each in shards:
        kind = v1.ShardKind.Name(each.kind).removeprefix("SHARD_KIND_")
        held = (str(each.memory_count), str(each.byte_count)) if each.reachable else ("?", "?")
        stands = [word for word, so in (("away", not each.reachable), ("drained", each.draining)) if so]
        _add(table, each.name, kind, str(each.tenant_count), *held, ", ".join(stands))
    return table


def list_of_events(events: Iterable[v1.AuditEvent]) -> Table:
    """A line for each."""
    table = _columns("no.", "when", "who", "what", "tenant", "on", "outcome", "detail")
    for each in events:
        role = v1.Role.Name(each.role).removeprefix("ROLE_")
        who = f"{each.actor} ({role})" if each.actor else "the server"
        when = _time(each.occurred_at)
        on = (each.tenant_id or "(platform)", each.resource)
        _add(table, str(each.number), when, who, each.method, *on, each.outcome, each.detail)
    return table


def _columns(*names: str) -> Table:
    table = Table()
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def _details(*lines: tuple[str, str]) -> Table:
    table = Table("", "", show_header=False)
    for column in table.columns:
        column.overflow = "fold"
    for line in lines:
        _add(table, *line)
    return table


def _add(table: Table, *cells: str) -> None:
    """A row of plain text: a name is shown as it is, never obeyed as markup or as a terminal's command."""
    table.add_row(*(Text(printable(cell)) for cell in cells))


def _state(tenant: v1.Tenant) -> str:
    return v1.TenantState.Name(tenant.state).removeprefix("TENANT_STATE_")


def printable(text: str) -> str:
    """The text without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _subject(message: v1.CreateEnrolmentRequest | v1.Device) -> str:
    named = (("user", message.user_id), ("agent", message.agent_id), ("run", message.run_id))
    return ", ".join(f"{kind} {name}" for kind, name in named if name)


def _scopes(message: v1.CreateEnrolmentRequest | v1.Device) -> str:
    return ", ".join(message.scopes) or "all"


def _revoked(device: v1.Device) -> str:
    if not device.HasField("revoked_at"):
        return "no"
    told = f", told to wipe {_time(device.wipe_told_at)}" if device.HasField("wipe_told_at") else ""
    return _time(device.revoked_at) + (told or (", to be wiped" if device.wipe else ""))


def _time(time: Timestamp) -> str:
    return f"{time.ToDatetime(UTC):%Y-%m-%d %H:%M:%S}Z"
