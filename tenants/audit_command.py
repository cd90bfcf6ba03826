"""``python -m tenants audit``: what admins did, and whether the log of it is whole."""

from __future__ import annotations

import json
from itertools import islice
from typing import Annotated

import typer

from scrubjay import v1
from tenants.cli import LOCAL_SERVER, PAGE, AdminKey, AsJson, Server, Target, admin, pages
from tenants.screen import list_of_events, printable, show


def audit(
    api_key: AdminKey,
    tenant: Annotated[
        str, typer.Option(help="Only what is about this tenant. A tenant's own admin names its own.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="At most this many, the newest.")] = 100,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check that nothing in the log was changed or removed.")
    ] = False,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Show what admins did, newest first; or check the log of it."""
    if verify:
        _verify(server, api_key, as_json)
        return
    with admin(server, api_key) as stub:
        request = v1.ListAuditEventsRequest(tenant_id=tenant, page_size=min(limit, PAGE))
        found = pages(stub.ListAuditEvents, request)
        events = list(islice((event for page in found for event in page.events), limit))
    show(events, list_of_events(events), as_json)


def _verify(server: Target, api_key: str, as_json: bool) -> None:
    request, count, faults, part = v1.VerifyAuditEventsRequest(), 0, list[str](), None
    with admin(server, api_key) as stub:
        while part is None or not part.at_end:
            part = stub.VerifyAuditEvents(request)
            request.after_number = part.last_number
            count += part.checked_count
            faults += part.faults
    digest = part.last_digest.hex()
    for fault in faults:
        typer.echo(f"error: {printable(fault)}", err=True)
    if as_json:
        told = {"checked_count": count, "faults": faults, "last_digest": digest}
        typer.echo(json.dumps({**told, "cut_number": part.cut_number}, indent=2))
    elif not faults:
        typer.echo(f"{count} events, all as they were written; digest of the last: {digest}")
        if part.cut_number:
            typer.echo(f"Events up to number {part.cut_number} were old enough for a server to delete them.")
    if faults:
        raise typer.Exit(1)
