"""``import``: a file's memories into this device or a server, a file's conversations before a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from client_sync.device_clock import wall_micros
from client_sync.errors import ReplicaError
from client_sync.exporting import writing
from client_sync.failures import complain, fail, told
from client_sync.importing.chatgpt import from_chatgpt
from client_sync.importing.conversing import Conversations
from client_sync.importing.documents import Document, documents
from client_sync.importing.formats import Format, looks_like
from client_sync.importing.marks import marks_of
from client_sync.importing.memories import Whom, finish, from_line, from_mem0
from client_sync.importing.skipping import Place, Skipped, Unfit, Unreadable
from client_sync.importing.storing import MAX_BATCH, Placed, store
from client_sync.importing.tally import Tally
from client_sync.progress import Show, bar
from client_sync.session import (
    Connection,
    Output,
    Session,
    Settings,
    open_session,
    settings_of,
    takes,
)
from scrubjay import v1
from scrubjay.errors import ScrubjayError
from scrubjay.memory import Subject

Put = Callable[[Iterator[tuple[Place, Document | Skipped]]], None]
"""Imports the documents of a file."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a person asked for; a policy of 0 is the server's choice."""

    file: Path
    policy: v1.WritePolicy.ValueType
    from_user: str
    scope: str
    tags: tuple[str, ...]


@takes(*Connection)
def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What 'scrubjay export' or another wrote.")],
    format_: Annotated[
        Format | None, typer.Option("--format", help="What the file is. Default: what it looks like.")
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            "--policy", metavar="NAME", help="What becomes of messages: rules, raw, … Default: the server's."
        ),
    ] = "",
    from_user: Annotated[
        str,
        typer.Option("--from-user", metavar="NAME", help="Only this user's of the file, as the user here."),
    ] = "",
    scope: Annotated[str, typer.Option("--scope", help="The scope of what names none.")] = "",
    tags: Annotated[list[str] | None, typer.Option("--tag", help="A tag for all; repeatable.")] = None,
    report: Annotated[
        str, typer.Option("--report", metavar="FILE", help="Write what was skipped, a line of JSON each.")
    ] = "",
) -> None:
    """Import memories or conversations. Run again, it goes on where it was cut."""
    settings = settings_of(context)
    options = Options(file, _policy(policy), from_user, scope, tuple(tags or ()))
    with ExitStack() as stack:
        session = stack.enter_context(open_session(settings))
        try:
            chosen = format_ or looks_like(file)
        except Unreadable as error:
            fail(str(error), error)
        tally = Tally("messages" if chosen is Format.CHATGPT else "memories")
        put = _destination(chosen, options, settings, session, tally, stack)
        if report:
            tally.report = stack.enter_context(writing(report))
        _run(file, put, tally, stack.enter_context(bar()), settings)
    _tell(Output(settings.as_json), tally, report)


def _destination(
    chosen: Format, options: Options, settings: Settings, session: Session, tally: Tally, stack: ExitStack
) -> Put:
    if chosen is not Format.CHATGPT:
        if options.policy:
            raise typer.BadParameter("is for conversations; the file holds memories", param_hint="--policy")
        whom = Whom(_subject(session, settings), options.from_user)
        return lambda found: _put_memories(found, chosen, whom, options, session, tally)
    if options.from_user:
        raise typer.BadParameter("is for memories; the file holds conversations", param_hint="--from-user")
    if session.remote is None or not settings.user:
        raise typer.BadParameter(
            "conversations are learnt from by a server: give it with --server, its service key with --api-key"
            " or SCRUBJAY_API_KEY, and the user they are of with --user"
        )
    place = (settings.server, settings.api_key, settings.user, v1.WritePolicy.Name(options.policy))
    template = v1.Memory(user_id=settings.user, scope=options.scope, tags=options.tags)
    marks = stack.enter_context(marks_of(settings.home, *place))
    conversations = Conversations(session.remote, marks, template, options.policy, wall_micros)
    return lambda found: _put_conversations(found, conversations, tally)


def _policy(name: str) -> v1.WritePolicy.ValueType:
    """The policy of this name; 0 for none."""
    known = {
        key.removeprefix("WRITE_POLICY_").lower(): value for key, value in v1.WritePolicy.items() if value
    }
    if name and name.lower() not in known:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint="--policy")
    return known.get(name.lower(), v1.WRITE_POLICY_UNSPECIFIED)


def _subject(session: Session, settings: Settings) -> Subject | None:
    """Whom all of it is about; None: whom each memory names."""
    if session.local is None:
        return Subject("user", settings.user) if settings.user else None
    subject = session.local.replica.identity.subject
    if settings.user and subject != Subject("user", settings.user):
        raise typer.BadParameter(
            f"is {settings.user!r}; this device holds memories of {subject.kind} {subject.name!r} alone",
            param_hint="--user",
        )
    return subject


def _run(file: Path, put: Put, tally: Tally, show: Show, settings: Settings) -> None:
    """Import the file; what cuts it off is told with how far it came."""
    try:
        put(documents(file, lambda read, size: show(tally.words(), read, size)))
    except Unreadable as error:
        fail(f"{error}; {tally.line()}", error)
    except ScrubjayError as error:
        server = settings.server if settings.api_key else ""
        fail(f"{told(error, server)}; {tally.line()}; run it again to go on", error)
    except ReplicaError as error:
        fail(f"{error}; {tally.line()}; run it again to go on", error)


def _put_memories(
    found: Iterable[tuple[Place, Document | Skipped]],
    chosen: Format,
    whom: Whom,
    options: Options,
    session: Session,
    tally: Tally,
) -> None:
    parse = from_mem0 if chosen is Format.MEM0 else from_line
    # What was exported comes back as it was, even where two memories say the same.
    dedup = v1.DEDUP_ON if chosen is Format.MEM0 else v1.DEDUP_OFF
    batch: list[Placed] = []
    for place, document in found:
        try:
            if isinstance(document, Skipped):
                tally.leave_out([document])
                continue
            memory = parse(document)
            finish(memory, whom, wall_micros(), scope=options.scope, tags=options.tags)
        except Unfit as error:
            tally.leave_out([error.at(place)])
            continue
        batch.append((place, memory))
        if len(batch) == MAX_BATCH:
            store(session, batch, tally, dedup)
            batch = []
    if batch:
        store(session, batch, tally, dedup)


def _put_conversations(
    found: Iterable[tuple[Place, Document | Skipped]], conversations: Conversations, tally: Tally
) -> None:
    for place, document in found:
        if isinstance(document, Skipped):
            tally.leave_out([document])
            continue
        try:
            conversation = from_chatgpt(document, place)
        except Unfit as error:
            tally.leave_out([error.at(place)])
            continue
        conversations.put(conversation, tally)


def _tell(output: Output, tally: Tally, report: str) -> None:
    """What came of it, the first faults one by one; 1 where there is one."""
    output.tell(tally.to_json(), tally.line())
    for fault in tally.faults:
        complain(f"{fault.place}: {fault.why}")
    if more := tally.fault_count - len(tally.faults):
        complain(f"and {more} more" + ("" if report else "; --report FILE writes all of them"))
    if tally.fault_count:
        raise typer.Exit(1)
