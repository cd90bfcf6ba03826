"""``python -m tenants operations``, ``operation`` and ``cancel-operation``: long work, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Annotated

import typer
from google.protobuf.duration_pb2 import Duration
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from scrubjay import v1
from tenants.cli import LOCAL_SERVER, PAGE, AdminKey, AsJson, Server, admin, fail, pages
from tenants.screen import list_of_operations, operation_table, show

LOOK_SECONDS = 1
"""How often a bar moves."""

OperationId = Annotated[str, typer.Argument(help="The operation's id.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait for its end.")]


def add_commands(app: typer.Typer) -> None:
    """Add what is about operations of any kind."""
    app.command("operations")(operations)
    app.command("operation")(operation)
    app.command("cancel-operation")(cancel_operation)


def operations(
    api_key: AdminKey,
    tenant: Annotated[
        str, typer.Option(help="Only those on this tenant. A tenant's own admin names its own.")
    ] = "",
    open_only: Annotated[bool, typer.Option("--open", help="Only those that have not ended.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most this many, the newest.")] = 100,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """List long operations, newest first."""
    request = v1.ListTenantOperationsRequest(
        tenant_id=tenant, open_only=open_only, page_size=min(limit, PAGE)
    )
    with admin(server, api_key) as stub:
        listed = pages(stub.ListTenantOperations, request)
        found = list(islice((one for page in listed for one in page.operations), limit))
    show(found, list_of_operations(found), as_json)


def operation(
    operation_id: OperationId,
    api_key: AdminKey,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end.")] = False,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Show how a long operation stands."""
    with admin(server, api_key) as stub:
        request = v1.GetTenantOperationRequest(operation_id=operation_id)
        found = stub.GetTenantOperation(request).operation
        report(stub, found, no_wait=not wait, as_json=as_json)


def cancel_operation(
    operation_id: OperationId,
    api_key: AdminKey,
    no_wait: NoWait = False,
    server: Server = LOCAL_SERVER,
    as_json: AsJson = False,
) -> None:
    """Have a long operation take back what it did."""
    with admin(server, api_key) as stub:
        request = v1.CancelTenantOperationRequest(operation_id=operation_id)
        found = stub.CancelTenantOperation(request).operation
        if not no_wait:
            found = follow(stub, found)
    show(found, operation_table(found), as_json)


def report(
    stub: v1.TenantAdminServiceStub, operation: v1.TenantOperation, *, no_wait: bool, as_json: bool
) -> None:
    """Show an operation, at its end unless told otherwise; one that came to nothing fails the command."""
    found = operation if no_wait else follow(stub, operation)
    show(found, operation_table(found), as_json)
    stands = found.operation
    if stands.state == v1.OPERATION_STATE_FAILED:
        reason = v1.ErrorReason.Name(stands.error.reason).removeprefix("ERROR_REASON_")
        fail(f"{stands.error.message} [{reason}]")
    if stands.state == v1.OPERATION_STATE_CANCELLED:
        fail("it was cancelled, and what it had done is taken back")


def follow(stub: v1.TenantAdminServiceStub, operation: v1.TenantOperation) -> v1.TenantOperation:
    """The operation at its end, with a bar until then."""
    found, timeout = operation, Duration(seconds=LOOK_SECONDS)
    with bar() as progress:
        task = progress.add_task("", total=None)
        while not found.operation.ended_at.ByteSize():
            stands = found.operation
            words = f"{stands.kind} {stands.tenant_id}: {stands.phase or 'waits for its turn'}"
            total = stands.total_count or None
            progress.update(task, description=words, completed=stands.done_count, total=total)
            request = v1.WaitTenantOperationRequest(operation_id=stands.id, timeout=timeout)
            found = stub.WaitTenantOperation(request).operation
    return found


@contextmanager
def bar() -> Iterator[Progress]:
    """Bars on stderr, and for a person at a terminal alone."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress
