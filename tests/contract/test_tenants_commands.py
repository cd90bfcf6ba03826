"""Every RPC of TenantAdminService has a command: a server that takes anything writes down what is called."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
import typer
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from typer.testing import CliRunner, Result

from scrubjay import v1
from tenants.__main__ import app

SERVICE = v1.tenant_service_pb2.DESCRIPTOR.services_by_name["TenantAdminService"]
ID = "0123456789abcdef"
OPERATION = "01890a5d-ac96-774b-bcce-b302099a8057"
FILE = "a file"
"""Stands in a command for one that is there."""
CONTENT = b"lines"

COMMANDS: dict[str, Sequence[str]] = {
    "CreateTenant": ["create", "acme", "--name", "Acme"],
    "GetTenant": ["get", "acme"],
    "ListTenants": ["list"],
    "UpdateTenant": ["update", "acme", "--name", "Acme"],
    "SuspendTenant": ["suspend", "acme", "--reason", "unpaid"],
    "ResumeTenant": ["resume", "acme"],
    "DeleteTenant": ["delete", "acme", "--confirm", "acme"],
    "UndeleteTenant": ["undelete", "acme"],
    "GetUsage": ["usage", "acme"],
    "CreateApiKey": ["create-key", "--tenant", "acme", "--role", "reader"],
    "ListApiKeys": ["list-keys", "--tenant", "acme"],
    "RotateApiKey": ["rotate-key", ID, "--tenant", "acme"],
    "RevokeApiKey": ["revoke-key", ID, "--tenant", "acme"],
    "CreateEnrolment": ["create-enrolment", "--tenant", "acme", "--user", "alice"],
    "ListDevices": ["list-devices", "--tenant", "acme"],
    "RevokeDevice": ["revoke-device", ID, "--tenant", "acme", "--wipe", "--confirm", ID],
    "ExportSubject": ["export-subject", "acme", "--user", "alice"],
    "EraseSubject": ["erase-subject", "acme", "--user", "alice", "--confirm", "alice"],
    "ExportTenant": ["export", "acme", FILE],
    "DownloadExport": ["export", "acme", FILE],
    "UploadImport": ["import", "acme", FILE],
    "ImportTenant": ["import", "acme", FILE],
    "GetTenantOperation": ["operation", OPERATION],
    "ListTenantOperations": ["operations", "--tenant", "acme"],
    "CancelTenantOperation": ["cancel-operation", OPERATION, "--no-wait"],
    "WaitTenantOperation": ["operation", OPERATION, "--wait"],
    "MoveTenant": ["move", "acme", "shard-1", "--no-wait"],
    "ListShards": ["list-shards"],
    "DrainShard": ["drain", "shard-1", "--no-wait"],
    "ReindexTenant": ["reindex", "acme", "--embedder", "lite", "--no-wait"],
    "ListAuditEvents": ["audit", "--tenant", "acme"],
    "VerifyAuditEvents": ["audit", "--verify"],
}
"""By RPC, how it is called from a terminal."""
WRITES_LINES = {"export-subject"}
"""What it prints is JSON lines in any case."""
DESTRUCTIVE: dict[str, Sequence[str]] = {
    "acme": ["delete", "acme"],
    "alice": ["erase-subject", "acme", "--user", "alice"],
    ID: ["revoke-device", ID, "--tenant", "acme", "--wipe"],
}
"""By what has to be typed, commands that nothing takes back."""


@dataclass
class Server:
    """What was called, and where."""

    called: list[tuple[str, Message]] = field(default_factory=list)
    target: str = ""

    def run(self, *words: str, typed: str = "") -> Result:
        """Run one command, as a terminal 300 columns wide would."""
        environment = {
            "SCRUBJAY_SERVER": self.target,
            "SCRUBJAY_ADMIN_KEY": "sj_live_x",
            "COLUMNS": "300",
            "TERMINAL_WIDTH": "300",
        }
        return CliRunner().invoke(app, words, input=typed, env=environment)

    def rpcs(self) -> list[str]:
        """The names of what was called."""
        return [name for name, _ in self.called]


def answered(name: str, kind: type[Message], request: Any) -> Message:
    """An answer that lets a command end."""
    answer: Any = kind()
    if isinstance(answer, v1.UploadImportResponse):
        answer.size_bytes = request.offset + len(request.chunk)
    if isinstance(answer, v1.ExportTenantResponse):
        told = answer.operation.result.export_tenant
        told.sha256, told.size_bytes = hashlib.sha256(CONTENT).hexdigest(), len(CONTENT)
    if "operation" in kind.DESCRIPTOR.fields_by_name:
        waits = name == "GetTenantOperation"
        stands = answer.operation.operation
        stands.state = v1.OPERATION_STATE_RUNNING if waits else v1.OPERATION_STATE_SUCCEEDED
        if not waits:
            stands.ended_at.FromSeconds(1)
    if isinstance(answer, v1.VerifyAuditEventsResponse):
        answer.at_end = True
    return answer


def exported(_request: Message) -> Iterator[v1.ExportSubjectResponse]:
    header = '{"format": "scrubjay.subject"}\n'
    digest = hashlib.sha256(header.encode()).hexdigest()
    yield v1.ExportSubjectResponse(text=header + json.dumps({"kind": "manifest", "sha256": digest}) + "\n")


def downloaded(_request: Message) -> Iterator[v1.DownloadExportResponse]:
    yield v1.DownloadExportResponse(chunk=CONTENT)


STREAMS: dict[str, Callable[[Message], Iterator[Message]]] = {
    "ExportSubject": exported,
    "DownloadExport": downloaded,
}


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    server = Server()

    def handler(method: Any) -> grpc.RpcMethodHandler[Any, Any]:
        asked, kind = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        given = {
            "request_deserializer": asked.FromString,
            "response_serializer": kind.SerializeToString,
        }
        name = method.name

        def unary(request: Message, _context: object) -> Message:
            server.called.append((name, request))
            return answered(name, kind, request)

        def stream(request: Message, _context: object) -> Iterator[Message]:
            server.called.append((name, request))
            yield from STREAMS[name](request)

        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(stream, **given)
        return grpc.unary_unary_rpc_method_handler(unary, **given)

    handlers = {method.name: handler(method) for method in SERVICE.methods}
    with ThreadPoolExecutor(2) as pool:
        listening = grpc.server(pool)
        listening.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE.full_name, handlers),)
        )
        server.target = f"127.0.0.1:{listening.add_insecure_port('127.0.0.1:0')}"
        listening.start()
        yield server
        listening.stop(None).wait()


@pytest.fixture
def server(running: Server) -> Server:
    running.called.clear()
    return running


def test_every_rpc_has_a_command() -> None:
    assert sorted(COMMANDS) == sorted(method.name for method in SERVICE.methods)


def test_every_command_is_in_the_table() -> None:
    assert {words[0] for words in COMMANDS.values()} == set(commands())


@pytest.mark.parametrize("rpc", COMMANDS)
def test_a_command_calls_its_rpc_and_shows_a_table_or_json(server: Server, rpc: str, tmp_path: Path) -> None:
    file = tmp_path / "acme.jsonl"
    file.write_bytes(CONTENT)
    words = [str(file) if word == FILE else word for word in COMMANDS[rpc]]
    shown = server.run(*words)
    assert shown.exit_code == 0, shown.output
    assert rpc in server.rpcs()
    assert shown.stderr == ""
    assert shown.stdout
    if words[0] not in WRITES_LINES:
        as_json = server.run(*words, "--json")
        assert as_json.exit_code == 0, as_json.output
        json.loads(as_json.stdout)


def commands() -> dict[str, set[str]]:
    """The options of each command, by its name."""
    group: Any = typer.main.get_command(app)
    return {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in group.commands.items()
    }


def test_all_commands_name_what_they_share_alike() -> None:
    shared = {"--server", "--api-key", "--ca", "--cert", "--key"}
    for name, options in commands().items():
        assert shared <= options, name
        assert ("--json" in options) != (name in WRITES_LINES), name
        assert not {option for option in options if option.startswith("--") and option != option.lower()}
        assert not options & {"--tenant-id", "--user-id", "--agent-id", "--run-id", "--yes"}, name


def test_what_nothing_takes_back_can_be_confirmed() -> None:
    confirmed = {name for name, options in commands().items() if "--confirm" in options}
    assert confirmed == {words[0] for words in DESTRUCTIVE.values()}


@pytest.mark.parametrize("name", DESTRUCTIVE)
def test_what_nothing_takes_back_is_done_once_its_id_was_typed(server: Server, name: str) -> None:
    words = DESTRUCTIVE[name]
    for wrong in ("", "\n", "y\n", f"{name}x\n"):
        refused = server.run(*words, typed=wrong)
        assert refused.exit_code == 1, wrong
    refused = server.run(*words, "--confirm", f"{name}x")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "nothing was done" in refused.stderr
    assert server.called == []
    assert server.run(*words, typed=f"{name}\n").exit_code == 0
    assert server.run(*words, "--confirm", name).exit_code == 0
    assert len(server.called) == 2


def test_a_device_is_ended_without_being_asked_where_nothing_is_deleted(server: Server) -> None:
    assert server.run("revoke-device", ID, "--tenant", "acme").exit_code == 0
    assert server.rpcs() == ["RevokeDevice"]
