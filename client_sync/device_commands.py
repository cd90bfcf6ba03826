"""The commands of a device: enrolling it, bringing it and its server together, how it stands, leaving."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from client_sync import recovery, standing
from client_sync.credentials import CredentialsDamaged, DeviceCredentials
from client_sync.dead_letters import DeadLetter
from client_sync.device_session import Device, changes, open_device
from client_sync.errors import ReplicaDamaged, ReplicaError, ReplicaMissing
from client_sync.failures import fail, failing_in_one_line, note, usage
from client_sync.home import Home
from client_sync.replica_file import is_whole
from client_sync.salvage import salvage
from client_sync.session import Connection, Output, Settings, settings_of, takes
from client_sync.sign_out import SignOut
from client_sync.sign_out import sign_out as leave
from client_sync.sync import SyncReport
from scrubjay.errors import CredentialInvalid

_PANEL = "On a device"


def add_commands(app: typer.Typer) -> None:
    """Give the app these commands."""
    for name, command in (
        ("init", init),
        ("sync", sync),
        ("status", status),
        ("dead-letters", dead_letters),
        ("restore", restore),
        ("sign-out", sign_out),
    ):
        app.command(name, rich_help_panel=_PANEL)(command)


# --- enrolling -----------------------------------------------------------------------------------


@takes(Connection.SERVER, Connection.HOME, Connection.JSON)
def init(
    context: typer.Context,
    code: Annotated[str, typer.Option("--enrol", metavar="CODE", help="The enrolment code.")],
    name: Annotated[str, typer.Option("--name", help="What people call this device.")] = "",
) -> None:
    """Make this a device: its memories are kept here too, and it works offline."""
    settings = settings_of(context)
    place = Home(settings.home)
    with failing_in_one_line(settings.server):
        before = _account(place)
        credentials = _register(settings, place, code, name).save(place.credentials_path)
        device = Device(place, credentials, Output(settings.as_json))
        subject = credentials.subject
        device.output.tell(
            standing.who(credentials),
            f"enrolled as {credentials.client_id}, {subject.kind} {subject.name}, at {credentials.target}",
        )
        if before is not None and before.principal != credentials.principal:
            note(_left_behind(place, before))
        with device.open_replica() as replica:
            _conclude(device, device.synchronize(replica))


def _account(home: Home) -> DeviceCredentials | None:
    """The account in use before, if it can be told."""
    try:
        return DeviceCredentials.load(home.credentials_path) if home.is_enrolled() else None
    except CredentialsDamaged:
        return None


def _register(settings: Settings, home: Home, code: str, name: str) -> DeviceCredentials:
    from client_sync.remote import Remote

    installation_id = home.installation_id()
    with usage(""):
        try:
            tls = settings.tls.absolute()
            credentials = Remote.register(
                settings.server,
                code,
                display_name=name,
                installation_id=installation_id,
                **tls.read(),
            )
            return replace(credentials, tls=tls)
        except CredentialInvalid as error:
            fail("the enrolment code is unknown, was used, or has ended; ask for a new one", error)


def _left_behind(home: Home, before: DeviceCredentials) -> str:
    """What becomes of the account that was in use."""
    path = home.replica_path(before.principal)
    told = f"what {before.subject.name} has here stays in {path}"
    try:
        if path.exists():
            with home.open_replica(before.identity) as replica:
                told += f", with {changes(replica.status().unsent)} unsent"
    except ReplicaError as error:
        told += f" ({error})"
    return f"{told}; enrol as {before.client_id} again to go on with it"


# --- synchronizing -------------------------------------------------------------------------------


@takes(Connection.HOME, Connection.JSON)
def sync(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until ctrl-C; tell what changes.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Compare everything with the server.")] = False,
) -> None:
    """Send what was written here, and fetch what changed elsewhere."""
    if watch and verify:
        raise typer.BadParameter("give --watch or --verify, not both")
    with open_device(settings_of(context)) as device, device.open_replica() as replica:
        if watch:
            from client_sync.watching import watch_replica

            watch_replica(device, replica)
        else:
            _conclude(device, device.synchronize(replica, verify=verify))


def _conclude(device: Device, report: SyncReport) -> None:
    device.output.tell(standing.report_json(report), standing.summary(report))
    if report.refused:
        note(f"{changes(report.refused)} refused for good: 'scrubjay dead-letters' says why")


# --- how it stands -------------------------------------------------------------------------------


@takes(Connection.HOME, Connection.JSON)
def status(context: typer.Context) -> None:
    """Say how this device stands. Asks no server."""
    with open_device(settings_of(context)) as device, device.open_replica() as replica:
        stands, letters = replica.status(), replica.dead_letters()
        others = [str(path) for path in device.home.other_replicas(device.credentials.principal)]
        place = {"file": str(replica.file.path), "other_files": others}
        if device.output.as_json:
            found = standing.who(device.credentials) | place | standing.status_json(stands, letters)
            device.output.document(found)
        else:
            lines = standing.status_lines(device.credentials, replica.file.path, stands, device.output.now)
            lines += standing.letter_lines(letters, device.output.now)
            device.output.tables.pairs([*lines, *(("other file", path) for path in others)])


@takes(Connection.HOME, Connection.JSON)
def dead_letters(
    context: typer.Context,
    discard: Annotated[
        list[int] | None, typer.Option("--discard", metavar="NUMBER", help="Forget this one; repeatable.")
    ] = None,
) -> None:
    """Show what the server refused for good, and why."""
    dropped = set(discard or ())
    with open_device(settings_of(context)) as device, device.open_replica() as replica:
        letters = replica.dead_letters()
        if unknown := dropped - {letter.position for letter in letters}:
            raise typer.BadParameter(f"there is no number {min(unknown)}", param_hint="--discard")
        for number in dropped:
            replica.discard_dead_letter(number)
        _show(device, [letter for letter in letters if letter.position not in dropped])


def _show(device: Device, letters: Sequence[DeadLetter]) -> None:
    if device.output.as_json:
        for letter in letters:
            device.output.document(standing.letter_json(letter))
    elif letters:
        device.output.tables.pairs(standing.letter_lines(letters, device.output.now))
    else:
        device.output.tables.say("nothing is refused")


# --- making whole, and leaving -------------------------------------------------------------------


@takes(Connection.HOME, Connection.JSON)
def restore(
    context: typer.Context,
    anew: Annotated[bool, typer.Option("--anew", help="Load everything anew, damaged or not.")] = False,
) -> None:
    """Make a damaged file whole: what was never sent is kept, the rest is loaded anew."""
    with open_device(settings_of(context)) as device:
        path = device.home.replica_path(device.credentials.principal)
        if not path.exists():
            device.output.tell({"missing": True}, f"there is no {path}; everything is loaded anew")
        elif _is_whole(device):
            device.output.tell({"damaged": False}, f"{path} is whole: nothing is wrong")
            if not anew:
                return
        else:
            saved = salvage(path, device.credentials.identity)
            device.output.tell(standing.salvage_json(saved), standing.salvage_line(saved))
        with device.open_replica() as replica:
            recovery.begin_reload(replica)
            _conclude(device, device.synchronize(replica))


def _is_whole(device: Device) -> bool:
    if not is_whole(device.home.replica_path(device.credentials.principal)):
        return False
    try:
        device.open_replica().close()
    except (ReplicaDamaged, ReplicaMissing):
        return False  # a whole database, but no replica
    return True


@takes(Connection.HOME)
def sign_out(
    context: typer.Context,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the memories here for the next time.")] = False,
    upload: Annotated[bool, typer.Option("--upload", help="Send what waits, then delete all.")] = False,
    wipe: Annotated[bool, typer.Option("--wipe", help="Delete all, sent or not.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Forget who this device is."""
    chosen = [mode for mode, given in zip(SignOut, (keep, upload, wipe), strict=True) if given]
    if len(chosen) != 1:
        raise typer.BadParameter("give one of --keep, --upload and --wipe")
    (mode,) = chosen
    with open_device(settings_of(context)) as device:
        _confirm(f"{_consequence(device, mode)} Sign out?", yes)
        _sign_out(device, mode)
        device.home.sign_out()
        device.output.tables.say(f"signed out of {device.credentials.target}")


def _consequence(device: Device, mode: SignOut) -> str:
    try:
        with device.open_replica() as replica:
            unsent = changes(replica.status().unsent)
    except (ReplicaDamaged, ReplicaMissing):
        unsent = "unknown, the file is damaged"
    return f"Unsent: {unsent}. {_CONSEQUENCES[mode]}"


_CONSEQUENCES = {
    SignOut.KEEP: "Everything stays here until the same account is enrolled again.",
    SignOut.UPLOAD: "It is sent first, then everything here is deleted.",
    SignOut.WIPE: "It is lost: everything here is deleted, sent or not.",
}


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{question} Say so with --yes")
    typer.confirm(question, abort=True, err=True)


def _sign_out(device: Device, mode: SignOut) -> None:
    try:
        replica = device.open_replica()
    except (ReplicaDamaged, ReplicaMissing):
        if mode is SignOut.UPLOAD:
            raise
    else:
        with replica:
            if mode is SignOut.UPLOAD:
                with device.remote() as remote:
                    device.asking(replica, lambda: leave(replica, mode, remote))
            else:
                leave(replica, mode)
    if mode is not SignOut.KEEP:
        device.home.discard(device.credentials.principal)
