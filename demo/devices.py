"""A phone and a browser of one user: they work offline, and agree when they meet again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from local_server import LocalServer
from rich.console import Console
from script import Conversation, Script, TwoDevices
from stage import check, heading, new_table, row

from client_sync import Remote, Replica, SyncReport, synchronize
from scrubjay import connect, v1
from scrubjay.memory import Memory, PrivacyLevel


@dataclass(frozen=True, slots=True)
class Device:
    """One device: its name, its replica, and the server for when there is a network."""

    name: str
    replica: Replica
    remote: Remote

    def sync(self) -> SyncReport:
        """Meet the server."""
        return synchronize(self.replica, self.remote, verify=True)

    def find(self, text: str) -> Memory:
        """The memory of this text, with no network."""
        found = [hit.memory for hit in self.replica.search(text) if hit.memory.content == text]
        check(len(found) == 1, f"the {self.name} holds {text!r}")
        return found[0]

    def texts(self) -> set[str]:
        """Everything that it holds."""
        return {memory.content for memory in self.replica.list(limit=1000)}


def show_devices(console: Console, server: LocalServer, script: Script) -> None:
    """Three stories of two devices; every promise is checked."""
    plan = script.devices
    with two_devices(server, script.conversations[0]) as (phone, web):
        heading(console, "Two devices of one user load what is there, each into a file of its own")
        loads(console, phone, web)
        heading(console, "The phone is offline and the web edits the same memory: both edits stay")
        both_stay(console, phone, web, plan)
        heading(console, "The web deletes what the phone, offline, still edits: it stays deleted")
        stays_deleted(console, phone, web, plan)
        heading(console, "What is private is on one device, and leaves the other")
        goes_private(console, phone, web, plan)


@contextmanager
def two_devices(server: LocalServer, said: Conversation) -> Iterator[tuple[Device, Device]]:
    """A phone and a browser, enrolled for the user, in a folder that is gone afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scrubjay-demo-")))
        admin = v1.TenantAdminServiceStub(stack.enter_context(connect(server.address, server.admin_key)))
        devices = [enrolled(stack, admin, server.address, said, folder, name) for name in ("phone", "web")]
        yield devices[0], devices[1]


def enrolled(
    stack: ExitStack,
    admin: v1.TenantAdminServiceStub,
    address: str,
    said: Conversation,
    folder: Path,
    name: str,
) -> Device:
    """A new device of the user."""
    request = v1.CreateEnrolmentRequest(
        tenant_id=said.tenant_id, user_id=said.user_id, client_id=name, display_name=name
    )
    code = admin.CreateEnrolment(request).enrolment_code
    credentials = Remote.register(address, code, installation_id=os.urandom(16))
    credentials = credentials.save(folder / f"{name}.json")
    replica = stack.enter_context(Replica.create(folder / f"{name}.db", credentials.identity))
    return Device(name, replica, stack.enter_context(Remote(address, credentials)))


def loads(console: Console, phone: Device, web: Device) -> None:
    """Both devices get everything that the user's backend has stored."""
    table = new_table("device", "memories")
    for device in (phone, web):
        report = device.sync()
        check(report.pulled == len(device.texts()) > 0, f"the {device.name} gets every memory")
        row(table, device.name, str(len(device.texts())))
    console.print(table)


def both_stay(console: Console, phone: Device, web: Device, plan: TwoDevices) -> None:
    """Edits of two fields of one memory, made without knowing of each other."""
    memory = phone.find(plan.edited)
    phone.replica.update(memory.id, {f"tags.{plan.tag}": True})
    check(phone.replica.status().unsent == 1, "the phone keeps its edit until it is online")
    web.replica.update(memory.id, {"content": plan.new_text})
    for device in (web, phone, web):
        device.sync()
    table = new_table("", "text", "tags")
    row(table, "before", plan.edited, "")
    row(table, "phone, offline", "", plan.tag)
    row(table, "web", plan.new_text, "")
    for device in (phone, web):
        now = device.replica.get(memory.id)
        check((now.content, now.tags) == (plan.new_text, {plan.tag}), f"both edits are on the {device.name}")
        row(table, f"{device.name}, after both synced", now.content, ", ".join(now.tags))
    console.print(table)


def stays_deleted(console: Console, phone: Device, web: Device, plan: TwoDevices) -> None:
    """A delete on one device against a later edit on the other."""
    memory = phone.find(plan.deleted)
    web.replica.delete(memory.id)
    phone.replica.update(memory.id, {"content": plan.late})
    check(plan.late in phone.texts(), "the phone shows its edit while it is offline")
    web.sync()
    report = phone.sync()
    check(report.conflicts == 1, "the phone is told that its edit came too late")
    table = new_table("web, deleted", "phone, edited later, offline", "on both now")
    for device in (phone, web):
        device.sync()
        check(not {plan.deleted, plan.late} & device.texts(), f"it is gone from the {device.name}")
    row(table, plan.deleted, plan.late, "(nothing of it)")
    console.print(table)


def goes_private(console: Console, phone: Device, web: Device, plan: TwoDevices) -> None:
    """A memory that was never shared, and one that is not any more."""
    secret = phone.replica.add(plan.secret, privacy_level=PrivacyLevel.PRIVATE)
    shared = phone.replica.add(plan.taken_back)
    for device in (phone, web):
        device.sync()
    check(plan.taken_back in web.texts(), "what the phone shares reaches the web")
    phone.replica.update(shared.id, {"privacy_level": int(PrivacyLevel.PRIVATE)})
    for device in (phone, web):
        device.sync()
    table = new_table("memory", "phone", "web")
    for memory, was in ((secret, "never there"), (shared, "was there, taken back")):
        check(memory.content in phone.texts(), "the phone keeps its private memories")
        check(memory.content not in web.texts(), "the web holds nothing of them")
        row(table, memory.content, "private", was)
    console.print(table)
