"""``python -m tenants`` against a real gRPC server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
import pytest
from sqlalchemy import Engine, update
from typer.testing import CliRunner, Result

from scrubjay import v1
from scrubjay.errors import CredentialInvalid
from scrubjay.memory import ClientId, Micros
from server.interceptors import Door
from server.slots import Slots
from tenants.__main__ import app
from tenants.admin_parts import AdminParts
from tenants.database import migrate, open_engine
from tenants.quotas import UNLIMITED
from tenants.registry import SCRIPTS, VERSION_TABLE, FirstCredentials, Registry
from tenants.registry.tables import audit_events
from tenants.retention import Retention
from tenants.tenant import Caller, Role, TenantState
from tenants.tenant_service import ALLOWED, TenantAdminService
from tests.no_subjects import NoSubjects


def now() -> Micros:
    return Micros(time.time_ns() // 1000)


@dataclass(frozen=True)
class Running:
    target: str
    registry: Registry
    first: FirstCredentials
    engine: Engine

    def run(self, *words: str, key: str | None = None, width: str = "200", typed: str = "") -> Result:
        environment = {
            "SCRUBJAY_SERVER": self.target,
            "SCRUBJAY_ADMIN_KEY": key or self.first.admin.secret,
            "COLUMNS": width,
            "TERMINAL_WIDTH": width,
        }
        return CliRunner().invoke(app, words, input=typed, env=environment)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    engine = open_engine(f"sqlite:///{tmp_path_factory.mktemp('catalogue') / 'catalogue.db'}")
    migrate(engine, SCRIPTS, VERSION_TABLE)
    registry = Registry(engine, pepper=b"p" * 32, shard_names=["shard-0"], space="lite-1/512")
    first = registry.bootstrap(now())
    assert first is not None
    descriptor = v1.tenant_service_pb2.DESCRIPTOR.services_by_name["TenantAdminService"]
    service = TenantAdminService(AdminParts(registry, b"s" * 32, now, NoSubjects()))
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        door = Door(registry, ALLOWED, Slots(handlers=4, queued=4, streams=1))
        server.add_generic_rpc_handlers((door.handlers(descriptor, service),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield Running(f"127.0.0.1:{port}", registry, first, engine)
        server.stop(None).wait()
    engine.dispose()


def test_a_tenant_is_made_shown_and_listed(running: Running) -> None:
    made = running.run("create", "acme", "--name", "Acme")
    assert made.exit_code == 0, made.output
    for words in (["get", "acme"], ["list"]):
        shown = running.run(*words)
        assert shown.exit_code == 0
        assert all(text in shown.stdout for text in ("acme", "Acme", "ACTIVE", "shard-0"))
    as_json = json.loads(running.run("get", "acme", "--json").stdout)
    tenant = running.registry.get_tenant("acme")
    assert (as_json["tenant_id"], as_json["incarnation"]) == ("acme", tenant.incarnation)
    assert as_json in json.loads(running.run("list", "--json").stdout)


def test_a_tenant_is_renamed_and_told_what_to_forget(running: Running) -> None:
    running.run("create", "forgetful")
    rules = '{"rules": [{"scope": "work", "unused_days": 30, "below_confidence": 0.25}]}'
    shown = running.run("update", "forgetful", "--name", "Vergesslich", "--forget-policy", rules)
    assert shown.exit_code == 0, shown.output
    forgets = "every category in work, unused for 30 days, confidence below 0.25"
    assert all(text in shown.stdout for text in ("Vergesslich", forgets))
    assert forgets in running.run("get", "forgetful").stdout
    nothing = running.run("update", "forgetful", "--forget-policy", "{}")
    assert all(text in nothing.stdout for text in ("Vergesslich", "only what expired"))
    default = running.run("update", "forgetful", "--forget-policy", "default")
    assert "TASK, unused for 60 days, confidence below 0.5" in default.stdout
    wrong = running.run("update", "forgetful", "--forget-policy", '{"rule": []}')
    assert wrong.exit_code == 2
    assert "--forget-policy" in wrong.stderr


def test_a_tenant_is_told_how_to_write(running: Running) -> None:
    running.run("create", "writer")
    assert "by the default policy" in running.run("get", "writer").stdout
    settings = '{"policy": "WRITE_POLICY_RAW", "custom_instructions": "Keep it short."}'
    shown = running.run("update", "writer", "--write-settings", settings)
    assert shown.exit_code == 0, shown.output
    assert all(text in shown.stdout for text in ("by the policy RAW", "Keep it short."))
    as_json = json.loads(running.run("get", "writer", "--json").stdout)
    assert as_json["write_settings"]["policy"] == "WRITE_POLICY_RAW"
    default = running.run("update", "writer", "--write-settings", "default").stdout
    assert "by the default policy" in default
    assert "instructions" not in default
    wrong = running.run("update", "writer", "--write-settings", '{"policy": "WRITE_POLICY_MAGIC"}')
    assert wrong.exit_code == 2
    assert "--write-settings" in wrong.stderr


def test_a_tenant_is_limited(running: Running) -> None:
    running.run("create", "limited")
    shown = running.run("update", "limited", "--quotas", '{"devices": 3, "calls_per_second": 0.5}')
    assert "devices: 3, calls per second: 0.5" in shown.stdout, shown.output
    assert "none" in running.run("update", "limited", "--quotas", "{}").stdout
    assert running.registry.get_tenant("limited").quotas == UNLIMITED


def test_what_a_tenant_has_and_calls_is_shown(running: Running) -> None:
    running.run("create", "user", "--name", "U")
    running.run("update", "user", "--quotas", '{"devices": 3}')
    counter, tenant = running.registry.usage.counter, running.registry.get_tenant("user")
    caller = Caller(Role.SERVICE, "usedkey", ClientId("web"), tenant)
    counter.count_call(caller, "Search", 1234, 56789)
    counter.count_memories(tenant.incarnation, "usedkey", 42)
    shown = running.run("usage", "user")
    assert shown.exit_code == 0, shown.output
    assert all(
        text in shown.stdout for text in ("devices", "usedkey", "Search", "1234", "56789", "(stored)", "42")
    )
    as_json = json.loads(running.run("usage", "user", "--days", "1", "--json").stdout)
    assert [(row["rpc"], row["calls"], row["memories"]) for row in as_json["rows"]] == [
        ("", "0", "42"),
        ("Search", "1", "0"),
    ]
    assert as_json["quotas"]["devices"] == "3"
    assert running.run("usage", "user", "--days", "401").exit_code == 2


def test_a_tenant_is_told_how_long_its_past_is_kept(running: Running) -> None:
    running.run("create", "keeper")
    assert "history for ever" in running.run("get", "keeper").stdout
    shown = running.run("update", "keeper", "--retention", '{"history_days": 365, "tombstone_days": 30}')
    assert "history for 365 days, tombstones for 30 days" in shown.stdout, shown.output
    assert running.registry.get_tenant("keeper").retention == Retention(365, 30)
    assert "history for ever" in running.run("update", "keeper", "--retention", "{}").stdout
    assert running.run("update", "keeper", "--retention", '{"days": 1}').exit_code == 2


def test_a_tenant_is_suspended_resumed_deleted_and_undeleted(running: Running) -> None:
    running.run("create", "moved")
    shown = running.run("suspend", "moved", "--reason", "invoice 7")
    assert shown.exit_code == 0, shown.output
    assert all(text in shown.stdout for text in ("SUSPENDED", "invoice 7"))
    assert "invoice 7" in running.run("get", "moved").stdout
    assert "ACTIVE" in running.run("resume", "moved").stdout
    shown = running.run("delete", "moved", "--grace-days", "3", "--confirm", "moved")
    assert all(text in shown.stdout for text in ("DELETING", "deleted", "purge"))
    assert "DELETING" in running.run("list").stdout
    again = running.run("delete", "moved", "--confirm", "moved")
    assert again.exit_code == 1
    assert "is DELETING and can't be deleted" in again.stderr
    undeleted = running.run("undelete", "moved", "--json").stdout
    assert json.loads(undeleted)["state"] == "TENANT_STATE_ACTIVE"


@pytest.mark.parametrize("typed", ["dev", "", "keep"])
def test_a_tenant_is_deleted_only_by_who_types_its_id(running: Running, typed: str) -> None:
    running.run("create", "keep")
    answered = running.run("delete", "keep", typed=f"{typed}\n")
    state = running.registry.get_tenant("keep").state
    assert (answered.exit_code == 0) == (state is TenantState.DELETING) == (typed == "keep")


def test_a_key_is_made_used_and_revoked(running: Running) -> None:
    options = ["--tenant", "dev", "--role", "service", "--name", "backend", "--expires", "2999-01-31"]
    made = running.run("create-key", *options)
    secret = made.stdout.strip().splitlines()[-1]
    assert secret.startswith("sj_live_")
    assert all(text in made.stdout for text in ("backend", "SERVICE", "2999-01-31 00:00:00Z"))
    key_id = running.registry.authenticate(secret, now()).key_id
    revoked = json.loads(running.run("revoke-key", key_id, "--tenant", "dev", "--json").stdout)
    assert revoked["revoked_at"]
    with pytest.raises(CredentialInvalid):
        running.registry.authenticate(secret, now())


def test_a_key_is_rotated_and_the_old_one_ends_later(running: Running) -> None:
    made = json.loads(running.run("create-key", "--tenant", "dev", "--role", "reader", "--json").stdout)
    words = ["rotate-key", made["api_key"]["key_id"], "--tenant", "dev", "--overlap-hours", "0.5"]
    shown = running.run(*words)
    assert shown.exit_code == 0, shown.output
    secret = shown.stdout.strip().splitlines()[-1]
    assert all(text in shown.stdout for text in (made["api_key"]["key_id"], "good until", "READER"))
    for moment, good in ((0, True), (1_700, True), (1_900, False)):
        at = Micros(now() + moment * 1_000_000)
        assert running.registry.authenticate(secret, at).role is Role.READER
        if good:
            assert running.registry.authenticate(made["secret"], at).role is Role.READER
        else:
            with pytest.raises(CredentialInvalid):
                running.registry.authenticate(made["secret"], at)


def test_json_of_a_new_key_holds_its_secret(running: Running) -> None:
    made = json.loads(running.run("create-key", "--role", "platform-admin", "--json").stdout)
    assert running.registry.authenticate(made["secret"], now()).key_id == made["api_key"]["key_id"]


def test_a_device_is_enrolled_listed_and_revoked(running: Running) -> None:
    running.run("create", "devices")
    about = ["--tenant", "devices", "--user", "alice", "--scope", "work", "--scope", "home/α"]
    made = running.run("create-enrolment", *about, "--client-id", "phone", "--name", "Telefon")
    code = made.stdout.strip().splitlines()[-1]
    assert code.startswith("sj_enrol_")
    assert all(text in made.stdout for text in ("Telefon", "user alice", "work, home/α", "phone"))
    caller = running.registry.authenticate(code, now())
    token = running.registry.devices.register_device(caller.key_id, b"i" * 16, now=now()).token
    device_id = running.registry.authenticate(token, now()).key_id

    listed = running.run("list-devices", "--tenant", "devices")
    assert all(text in listed.stdout for text in (device_id, "Telefon", "user alice", "phone"))
    revoked = running.run("revoke-device", device_id, "--tenant", "devices")
    assert all(text in revoked.stdout for text in (device_id, "Telefon", "work, home/α"))
    assert "to be wiped" not in revoked.stdout
    words = ("revoke-device", device_id, "--tenant", "devices", "--wipe")
    refused = running.run(*words, typed="another\n")
    assert (refused.exit_code, "nothing was done" in refused.stderr) == (1, True)
    assert '"wipe": false' in running.run("list-devices", "--tenant", "devices", "--json").stdout
    wiped = running.run(*words, "--confirm", device_id)
    assert "to be wiped" in wiped.stdout
    assert running.registry.authenticate(token, now()).wiped
    (as_json,) = json.loads(running.run("list-devices", "--tenant", "devices", "--json").stdout)
    assert (as_json["device_id"], as_json["scopes"], as_json["wipe"]) == (device_id, ["work", "home/α"], True)


def test_json_of_an_enrolment_holds_its_code(running: Running) -> None:
    words = ["create-enrolment", "--tenant", "dev", "--agent", "helper", "--json"]
    made = json.loads(running.run(*words).stdout)
    assert running.registry.authenticate(made["enrolment_code"], now()).client_id == made["client_id"]
    refused = running.run(*words, "--expires", "2999-01-31")
    assert "lies more than 30 days ahead" in refused.stderr


def test_what_admins_did_is_shown_and_checked(running: Running) -> None:
    running.run("create", "watched")
    running.run("revoke-key", "0123456789abcdef", "--tenant", "watched")
    shown = running.run("audit", "--tenant", "watched")
    assert shown.exit_code == 0, shown.output
    admin = running.first.admin.api_key.key_id
    for text in ("CreateTenant", "RevokeApiKey", "API_KEY_NOT_FOUND", f"{admin} (PLATFORM_ADMIN)"):
        assert text in shown.stdout
    newest = json.loads(running.run("audit", "--tenant", "watched", "--limit", "1", "--json").stdout)
    assert [(each["method"], each["resource"]) for each in newest] == [
        ("RevokeApiKey", "keys/0123456789abcdef")
    ]
    whole = running.run("audit", "--verify")
    assert (whole.exit_code, "all as they were written" in whole.stdout) == (0, True)
    with running.engine.begin() as connection:
        tampered = audit_events.c.number == newest[0]["number"]
        connection.execute(update(audit_events).where(tampered).values(outcome="OK"))
    broken = running.run("audit", "--verify")
    assert broken.exit_code == 1
    assert f"error: event {newest[0]['number']} was changed" in broken.stderr
    with running.engine.begin() as connection:
        connection.execute(update(audit_events).where(tampered).values(outcome="API_KEY_NOT_FOUND"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["get", "nobody"], "error: no tenant 'nobody' [TENANT_NOT_FOUND]\n"),
        (["create", "dev"], "error: the tenant 'dev' exists [TENANT_EXISTS]\n"),
        (["create", "No"], "error: tenant_id: 'No' is no tenant id"),
        (["update", "dev"], "error: update_mask: is empty; name the fields to write"),
        (["update", "nobody", "--name", "x"], "error: no tenant 'nobody' [TENANT_NOT_FOUND]\n"),
        (["rotate-key", "x", "--tenant", "dev"], "error: no API key 'x' [API_KEY_NOT_FOUND]\n"),
        (["revoke-key", "x", "--tenant", "dev"], "error: no API key 'x' [API_KEY_NOT_FOUND]\n"),
        (["revoke-device", "x", "--tenant", "dev"], "error: no device 'x' [DEVICE_NOT_FOUND]\n"),
        (["list-devices", "--tenant", "nobody"], "error: no tenant 'nobody' [TENANT_NOT_FOUND]\n"),
        (["create-enrolment", "--tenant", "dev"], "error: user_id: one of user_id, agent_id and run_id"),
        (["list", "--api-key", "sj_live_x"], "[CREDENTIAL_INVALID]\n"),
        (["list", "--api-key", "two words"], "error: api_key holds white space"),
        (["list", "--server", "http://x"], "error: target is 'http://x'"),
        (
            ["list", "--server", "localhost:1"],
            "error: no server answers at localhost:1 (Connection refused)\n",
        ),
        (["list", "--ca", "none.pem"], "error: none.pem can't be read (No such file or directory)\n"),
    ],
)
def test_what_goes_wrong_is_one_line_and_exit_code_1(
    running: Running, words: list[str], message: str
) -> None:
    failed = running.run(*words)
    assert failed.exit_code == 1
    assert failed.stdout == ""
    assert message in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_a_service_key_is_told_that_its_role_may_not(running: Running) -> None:
    failed = running.run("list", key=running.first.service.secret)
    assert failed.exit_code == 1
    assert "[ROLE_NOT_ALLOWED]" in failed.stderr


def test_a_name_is_shown_and_never_obeyed(running: Running) -> None:
    running.run("create", "sly", "--name", "[red]x[/red] \x1b[31m\x1b]0;title\x07y")
    shown = running.run("get", "sly", width="300")
    assert "[red]x[/red]" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert "\x07" not in shown.stdout


def test_ids_are_whole_in_a_narrow_terminal_too(running: Running) -> None:
    shown = running.run("get", "dev", width="40")
    cells = [line.split("│")[2].strip() for line in shown.stdout.splitlines() if line.startswith("│")]
    assert running.first.tenant.incarnation in "".join(cells)


def test_every_page_is_listed(running: Running) -> None:
    for n in range(1_005):
        running.registry.create_tenant(f"many-{n}", "", now=now())
    listed = json.loads(running.run("list", "--json").stdout)
    ids = [tenant["tenant_id"] for tenant in listed]
    assert {f"many-{n}" for n in range(1_005)} < set(ids)
    assert ids == sorted(set(ids))
