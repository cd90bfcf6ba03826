"""The commands on memories. Each one asks a server, or this device, and shows the answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf import field_mask_pb2

from client_sync.arguments import parse_filter, parse_metadata, parse_time
from client_sync.device_commands import add_commands
from client_sync.exporting import export
from client_sync.failures import complain, usage
from client_sync.importing.command import import_
from client_sync.rendering import Tables
from client_sync.session import (
    CA_HELP,
    CERT_HELP,
    KEY_HELP,
    CommandGroup,
    Connection,
    Session,
    Settings,
    open_session,
    settings_of,
    show_pages,
    takes,
)
from scrubjay import v1
from scrubjay.tls import TlsFiles
from scrubjay.wire import to_struct

DEFAULT_SERVER = "localhost:7437"
DEFAULT_HOME = Path("~/.scrubjay")
MAX_BATCH = 100
"""Memories in one Add, as the contract has it."""

app = typer.Typer(
    cls=CommandGroup,
    help="Keep memories, on a Scrubjay server and on this device, and find them again.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AgentOption = Annotated[str, typer.Option("--agent", help="The agent the memories belong to.")]
RunOption = Annotated[str, typer.Option("--run", help="The run the memories belong to.")]
ScopesOption = Annotated[
    list[str] | None, typer.Option("--scope", help="Only this scope and what lies below it; repeatable.")
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where", help="Only where 'field op value' holds, such as 'category = TASK'; repeatable, all must."
    ),
]
MetaOption = Annotated[
    list[str] | None,
    typer.Option("--meta", metavar="KEY=VALUE", help="Metadata; repeatable. VALUE is JSON, else text."),
]
LimitOption = Annotated[int | None, typer.Option("--limit", min=1, help="At most this many. Default: all.")]


@app.callback()
def settings(
    context: typer.Context,
    server: Annotated[
        str, typer.Option("--server", envvar="SCRUBJAY_SERVER", help="The server's host:port.")
    ] = DEFAULT_SERVER,
    api_key: Annotated[
        str, typer.Option("--api-key", envvar="SCRUBJAY_API_KEY", help="The API key.", show_default=False)
    ] = "",
    user: Annotated[
        str,
        typer.Option(
            "--user", envvar="SCRUBJAY_USER", help="The user the memories are about.", show_default=False
        ),
    ] = "",
    home: Annotated[
        Path, typer.Option("--home", envvar="SCRUBJAY_HOME", help="The folder of this device.")
    ] = DEFAULT_HOME,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document a line.")] = False,
    ca: Annotated[Path | None, typer.Option("--ca", envvar="SCRUBJAY_CA", help=CA_HELP)] = None,
    cert: Annotated[Path | None, typer.Option("--cert", envvar="SCRUBJAY_CERT", help=CERT_HELP)] = None,
    key: Annotated[Path | None, typer.Option("--key", envvar="SCRUBJAY_KEY", help=KEY_HELP)] = None,
    grpc_verbosity: Annotated[str, typer.Option(envvar="GRPC_VERBOSITY", hidden=True)] = "NONE",
) -> None:
    # What gRPC itself writes of a handshake that failed would stand beside what is said of it here.
    os.putenv("GRPC_VERBOSITY", grpc_verbosity)
    context.obj = Settings(server, api_key, user, home.expanduser(), as_json, TlsFiles(ca, cert, key))


@app.command()
@takes(*Connection)
def add(
    context: typer.Context,
    texts: Annotated[
        list[str],
        typer.Argument(metavar="TEXT", help="Each TEXT is one memory: quote it. '-' reads one a line."),
    ],
    agent: AgentOption = "",
    run: RunOption = "",
    scope: Annotated[str, typer.Option("--scope", help="A path such as work/alpha.")] = "",
    category: Annotated[str, typer.Option("--category", help="FACT, PREFERENCE, TASK, EVENT or other.")] = "",
    tags: Annotated[list[str] | None, typer.Option("--tag", help="A tag; repeatable.")] = None,
    metadata: MetaOption = None,
    private: Annotated[bool, typer.Option("--private", help="For this client alone.")] = False,
    local: Annotated[bool, typer.Option("--local", help="For this device alone: never sent.")] = False,
    at: Annotated[str, typer.Option("--at", metavar="TIME", help="When it was; local time, ISO 8601.")] = "",
    memory_id: Annotated[str, typer.Option("--id", help="A UUID of your own, for one TEXT.")] = "",
) -> None:
    """Store memories."""
    if memory_id and (len(texts) > 1 or texts == ["-"]):
        raise typer.BadParameter("is for one TEXT", param_hint="--id")
    if local and private:
        raise typer.BadParameter("give --private or --local, not both")
    with open_session(settings_of(context)) as session:
        if local and session.local is None:
            raise typer.BadParameter("is for a device, and --api-key is given", param_hint="--local")
        draft = v1.Memory(
            id=memory_id,
            user_id=session.user,
            agent_id=agent,
            run_id=run,
            scope=scope,
            category=category,
            tags=tags or [],
            privacy_level=_privacy_level(private, local),
        )
        with usage("--meta"):
            draft.metadata.CopyFrom(to_struct(parse_metadata(metadata or [])))
        if at:
            with usage("--at"):
                draft.created_at.CopyFrom(parse_time(at))
        failed = False
        lines = _lines(texts)
        while batch := list(islice(lines, MAX_BATCH)):
            failed |= not _add_batch(session, draft, batch)
        if failed:
            raise typer.Exit(1)


def _privacy_level(private: bool, local: bool) -> v1.PrivacyLevel.ValueType:
    if local:
        return v1.PRIVACY_LEVEL_LOCAL_ONLY
    return v1.PRIVACY_LEVEL_PRIVATE if private else v1.PRIVACY_LEVEL_UNSPECIFIED


def _lines(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        if text == "-":
            yield from (line.rstrip("\r\n") for line in sys.stdin if line.strip())
        else:
            yield text


def _add_batch(session: Session, draft: v1.Memory, texts: Sequence[str]) -> bool:
    """Store one batch and show it; whether all of it was stored."""
    request = v1.AddRequest()
    for text in texts:
        memory = request.memories.add()
        memory.CopyFrom(draft)
        memory.content = text
    results = session.call(session.memories.Add, request).results
    stored = [result.memory for result in results if result.HasField("memory")]
    if stored:
        session.show(stored, lambda tables: tables.memories(stored))
    for text, result in zip(texts, results, strict=True):
        if result.HasField("error"):
            complain(f"{text[:60]!r} was not stored: {result.error.message}")
    return len(stored) == len(texts)


@app.command()
@takes(*Connection)
def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for, in any words.")],
    top_k: Annotated[int, typer.Option("-k", "--top-k", help="At most this many.")] = 10,
    agent: AgentOption = "",
    run: RunOption = "",
    scopes: ScopesOption = None,
    where: WhereOption = None,
    recipe: Annotated[str, typer.Option("--recipe", help="default or semantic.")] = "",
    as_of: Annotated[
        str, typer.Option("--as-of", metavar="TIME", help="Search what was known then; ISO 8601.")
    ] = "",
    explain: Annotated[bool, typer.Option("--explain", help="Say why each one is there.")] = False,
) -> None:
    """Find memories by meaning and by words."""
    with open_session(settings_of(context)) as session:
        request = v1.SearchRequest(
            user_id=session.user,
            agent_id=agent,
            run_id=run,
            query=query,
            top_k=top_k,
            scopes=scopes or [],
            filter=_filter(where),
            recipe=recipe,
            explain=explain,
        )
        if as_of:
            with usage("--as-of"):
                request.as_of.CopyFrom(parse_time(as_of))
        hits = session.call(session.memories.Search, request).hits
        session.show(hits, lambda tables: tables.hits(hits))


def _filter(where: list[str] | None) -> v1.Filter | None:
    with usage("--where"):
        return parse_filter(where or [])


@app.command()
@takes(*Connection)
def get(
    context: typer.Context,
    memory_id: Annotated[str, typer.Argument(metavar="ID")],
) -> None:
    """Show one memory."""
    with open_session(settings_of(context)) as session:
        memory = session.call(session.memories.Get, v1.GetRequest(id=memory_id)).memory
        session.show([memory], lambda tables: tables.memory(memory))


@app.command("list")
@takes(*Connection)
def list_(
    context: typer.Context,
    limit: LimitOption = None,
    agent: AgentOption = "",
    run: RunOption = "",
    scopes: ScopesOption = None,
    where: WhereOption = None,
) -> None:
    """List memories, newest first."""
    with open_session(settings_of(context)) as session:
        request = v1.ListRequest(
            user_id=session.user, agent_id=agent, run_id=run, scopes=scopes or [], filter=_filter(where)
        )

        def page(size: int, token: str) -> tuple[Sequence[v1.Memory], str]:
            request.page_size, request.page_token = size, token
            response = session.call(session.memories.List, request)
            return response.memories, response.next_page_token

        show_pages(session, page, limit, Tables.memories)


@app.command()
@takes(*Connection)
def update(
    context: typer.Context,
    memory_id: Annotated[str, typer.Argument(metavar="ID")],
    content: Annotated[str | None, typer.Option("--content", help="The new text.")] = None,
    scope: Annotated[str | None, typer.Option("--scope", help="The new scope.")] = None,
    category: Annotated[str | None, typer.Option("--category", help="The new category.")] = None,
    confidence: Annotated[float | None, typer.Option("--confidence", help="From 0 to 1.")] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="Add this tag; repeatable.")] = None,
    untags: Annotated[list[str] | None, typer.Option("--untag", help="Remove this tag; repeatable.")] = None,
    metadata: MetaOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="FIELD", help="Clear a field, such as metadata.city; repeatable."),
    ] = None,
    etag: Annotated[str, typer.Option("--etag", help="Refuse if the memory changed since this etag.")] = "",
) -> None:
    """Change fields of one memory; what is not named stays."""
    with usage("--meta"):
        pairs = parse_metadata(metadata or [])
    plain_fields = {"content": content, "scope": scope, "category": category, "confidence": confidence}
    changed = {name: value for name, value in plain_fields.items() if value is not None}
    paths = [
        *changed,
        *(f"tags.{tag}" for tag in [*(tags or []), *(untags or [])]),
        *(f"metadata.{key}" for key in pairs),
        *(unset or []),
    ]
    if not paths:
        raise typer.BadParameter("name a field to change, such as --content")
    if len(set(paths)) < len(paths):
        raise typer.BadParameter(f"a field is named twice: {', '.join(paths)}")
    with open_session(settings_of(context)) as session:
        memory = v1.Memory(id=memory_id, tags=tags or [], metadata=to_struct(pairs))
        for name, value in changed.items():
            setattr(memory, name, value)
        request = v1.UpdateRequest(
            memory=memory,
            update_mask=field_mask_pb2.FieldMask(paths=paths),
            etag=etag,
        )
        response = session.call(session.memories.Update, request)

        def told(tables: Tables) -> None:
            tables.results(response.results)
            tables.memories([response.memory], header=False)

        session.show([response], told)


@app.command()
@takes(*Connection)
def delete(
    context: typer.Context,
    memory_ids: Annotated[list[str], typer.Argument(metavar="ID")],
) -> None:
    """Delete memories for ever. Their ids never come back."""
    with open_session(settings_of(context)) as session:
        for memory_id in memory_ids:
            deleted = session.call(session.memories.Delete, v1.DeleteRequest(id=memory_id))
            session.show([deleted], partial(Tables.say, line=f"deleted {memory_id}"))


@app.command()
@takes(*Connection)
def history(
    context: typer.Context,
    memory_id: Annotated[str, typer.Argument(metavar="ID", help="One memory; else all of the user's.")] = "",
    limit: LimitOption = None,
    agent: Annotated[str, typer.Option("--agent", help="All of this agent's, of no user.")] = "",
    run: Annotated[str, typer.Option("--run", help="All of this run's, of no user and agent.")] = "",
) -> None:
    """Show what happened, newest first."""
    with open_session(settings_of(context)) as session:
        request = v1.HistoryRequest(memory_id=memory_id, agent_id=agent, run_id=run)
        if not (memory_id or agent or run):
            request.user_id = session.user

        def page(size: int, token: str) -> tuple[Sequence[v1.HistoryEntry], str]:
            request.page_size, request.page_token = size, token
            response = session.call(session.memories.History, request)
            return response.entries, response.next_page_token

        show_pages(session, page, limit, Tables.history)


@app.command()
@takes(*Connection)
def undo(
    context: typer.Context,
    memory_id: Annotated[str, typer.Argument(metavar="ID")],
    operation: Annotated[
        str,
        typer.Option("--operation", metavar="OPERATION_ID", help="Of its history. Default: the last one."),
    ] = "",
    fields: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="FIELD", help="Only this field, such as tags.work; repeatable."),
    ] = None,
    etag: Annotated[str, typer.Option("--etag", help="Refuse if the memory changed since this etag.")] = "",
) -> None:
    """Write back what was changed last. What was deleted comes back under a new id."""
    with open_session(settings_of(context)) as session:
        request = v1.RestoreRequest(memory_id=memory_id, operation_id=operation, fields=fields, etag=etag)
        if not operation and session.local is None:
            request.operation_id = _last_operation(session, memory_id)
        response = session.call(session.memories.Restore, request)

        def told(tables: Tables) -> None:
            tables.results(response.results)
            tables.memories([response.memory], header=False)

        session.show([response], told)


def _last_operation(session: Session, memory_id: str) -> str:
    """The last operation on the memory that changed anything; empty where there is none."""
    entries = session.call(session.memories.History, v1.HistoryRequest(memory_id=memory_id)).entries
    done = (v1.OUTCOME_APPLIED, v1.OUTCOME_APPLIED_CONCURRENT)
    return next((entry.operation_id for entry in entries if entry.outcome in done), "")


app.command()(export)
app.command("import")(import_)
add_commands(app)
