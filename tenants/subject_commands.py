"""``python -m tenants export-subject`` and ``erase-subject``: a person's data given, or gone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Annotated

import typer

from scrubjay import v1
from scrubjay.memory import SUBJECT_FIELDS
from tenants.cli import (
    LOCAL_SERVER,
    AdminKey,
    AsJson,
    Confirm,
    Server,
    TenantId,
    admin,
    confirm_by_typing,
    fail,
)
from tenants.screen import erasure_table, show

ERASING_SECONDS = 3600
"""How long a command waits: a shard's file is rewritten meanwhile."""

UserId = Annotated[str, typer.Option("--user", help="The user.")]
AgentId = Annotated[str, typer.Option("--agent", help="The agent, for memories without a user.")]
RunId = Annotated[str, typer.Option("--run", help="The run, for memories without a user and an agent.")]


def export_subject(
    tenant_id: TenantId,
    api_key: AdminKey,
    user_id: UserId = "",
    agent_id: AgentId = "",
    run_id: RunId = "",
    server: Server = LOCAL_SERVER,
) -> None:
    """Print all that is held of one subject, as lines of JSON. Needs a key of the tenant's own admin."""
    request = v1.ExportSubjectRequest(tenant_id=tenant_id, user_id=user_id, agent_id=agent_id, run_id=run_id)
    digest, last = hashlib.sha256(), b""
    with admin(server, api_key) as stub:
        for line in _lines(response.text for response in stub.ExportSubject(request)):
            digest.update(last)
            last = line.encode()
            typer.echo(last, nl=False)
    if not _is_manifest(last, digest.hexdigest()):
        fail("the export was cut off: its last line is no manifest of what came before")


def _lines(parts: Iterator[str]) -> Iterator[str]:
    """Text that was cut anywhere, cut into lines."""
    begun = ""
    for part in parts:
        *whole, begun = f"{begun}{part}".split("\n")
        yield from (f"{line}\n" for line in whole)
    if begun:
        yield begun


def _is_manifest(line: bytes, digest: str) -> bool:
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("kind") == "manifest" and found.get("sha256") == digest


def erase_subject(
    tenant_id: TenantId,
    api_key: AdminKey,
    user_id: UserId = "",
    agent_id: AgentId = "",
    run_id: RunId = "",
    confirm: Confirm = None,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Delete all that is held of one subject for ever, and tell its devices to delete what they hold."""
    request = v1.EraseSubjectRequest(tenant_id=tenant_id, user_id=user_id, agent_id=agent_id, run_id=run_id)
    name = next((getattr(request, field) for field in SUBJECT_FIELDS if getattr(request, field)), "")
    if name:
        confirm_by_typing(name, confirm, "delete all that is held of it for ever")
    with admin(server, api_key) as stub:
        answer = stub.EraseSubject(request, timeout=ERASING_SECONDS)
    show(answer, erasure_table(answer), as_json)
