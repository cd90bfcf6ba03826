"""``python -m tenants usage``: what a tenant has, and what its keys and devices called."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from scrubjay import v1
from tenants.cli import LOCAL_SERVER, AdminKey, AsJson, Server, TenantId, admin, pages
from tenants.screen import list_of_usage, show, stock_table
from tenants.usage import DEFAULT_DAYS, KEPT_DAYS


def usage(
    tenant_id: TenantId,
    api_key: AdminKey,
    days: Annotated[
        int, typer.Option(min=1, max=KEPT_DAYS, help="So many days, today in UTC included.")
    ] = DEFAULT_DAYS,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Show what a tenant has beside its limits, and what each key and device called on each day."""
    first = datetime.now(UTC).date() - timedelta(days=days - 1)
    request = v1.GetUsageRequest(tenant_id=tenant_id, from_day=first.isoformat())
    with admin(server, api_key) as stub:
        whole, *others = pages(stub.GetUsage, request)
    for page in others:
        whole.rows.extend(page.rows)
    whole.next_page_token = ""
    show(whole, stock_table(whole.stock, whole.quotas), as_json)
    if not as_json:
        show(whole, list_of_usage(whole.rows), as_json)
