"""Devices in the catalogue, on SQLite and on PostgreSQL: codes, tokens, rotation, revocation."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, event, func, select, update

from scrubjay.errors import (
    CredentialInvalid,
    DeviceNotFound,
    DeviceRevoked,
    InvalidField,
    RequestIdReused,
    ScrubjayError,
    TenantNotFound,
)
from scrubjay.memory import ClientId, Micros, Subject
from tenants.credentials import SECRET_BYTES, new_code, new_token, parse
from tenants.database import migrate, open_engine
from tenants.registry import SCRIPTS, VERSION_TABLE, DeviceToken, NewEnrolment, Registry, RequestKey
from tenants.registry.devices import TOKEN_MICROS, Rotation, rotation
from tenants.registry.tables import devices, enrolments, metadata
from tenants.tenant import Caller, DeviceBinding, Role

NOW = Micros(1_796_000_000_000_000)
HOUR = 3600
PEPPER = b"p" * 32
INSTALLATION = b"i" * 16
REQUEST = RequestKey("11111111-2222-3333-4444-555555555555")
ALICE = Subject("user", "alice")
SCOPES = ("work", "größe/α")

Result = TypeVar("Result")


def later(seconds: float) -> Micros:
    return Micros(NOW + int(seconds * 1_000_000))


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url, connections=8)
    migrate(engine, SCRIPTS, VERSION_TABLE)
    yield engine
    engine.dispose()


@pytest.fixture
def open_registry(engine: Engine) -> Callable[..., Registry]:
    def open_registry(pepper: bytes = PEPPER) -> Registry:
        return Registry(engine, pepper=pepper, shard_names=["shard-0"], space="lite-1/512")

    return open_registry


@pytest.fixture
def registry(open_registry: Callable[..., Registry]) -> Registry:
    """A catalogue with the tenants acme and rival."""
    registry = open_registry()
    for tenant_id in ("acme", "rival"):
        registry.create_tenant(tenant_id, "", now=NOW)
    return registry


def enrol(registry: Registry, tenant_id: str = "acme", **options: Any) -> NewEnrolment:
    given = {"scopes": SCOPES, "display_name": "Phone", "now": NOW, **options}
    return registry.enrolments.create_enrolment(tenant_id, ALICE, **given)


def register(
    registry: Registry, code: str, installation_id: bytes = INSTALLATION, now: Micros = NOW, **options: Any
) -> DeviceToken:
    """As the door does: the code is the credential."""
    caller = registry.authenticate(code, now)
    assert caller.role is Role.ENROLMENT
    return registry.devices.register_device(caller.key_id, installation_id, now=now, **options)


def refresh(registry: Registry, token: str, now: Micros = NOW) -> DeviceToken:
    """As the door does: the token is the credential, expired or not."""
    caller = registry.authenticate(token, now)
    if caller.role is Role.REVOKED_DEVICE:
        raise DeviceRevoked
    assert caller.device is not None
    return registry.devices.refresh_token(caller.device.device_id, caller.device.generation, now=now)


def role(registry: Registry, token: str, now: Micros = NOW) -> Role:
    return registry.authenticate(token, now).role


@pytest.fixture
def phone(registry: Registry) -> DeviceToken:
    """A device that has just come in."""
    return register(registry, enrol(registry).code)


@pytest.fixture
def statements(engine: Engine) -> list[str]:
    """The statements that ran."""
    seen: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *given: seen.append(given[2]))
    return seen


def at_once(count: int, call: Callable[[int], Result]) -> list[Result | ScrubjayError]:
    """The results of ``count`` threads that call at one moment; errors of ours are results too."""
    start = threading.Barrier(count)

    def run(n: int) -> Result | ScrubjayError:
        start.wait(10)
        try:
            return call(n)
        except ScrubjayError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def row_count(engine: Engine, table: Any) -> int:
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


# --- enrolment ------------------------------------------------------------------------------------


def test_a_code_lets_a_device_in_for_one_subject_client_and_scopes(registry: Registry) -> None:
    acme = registry.get_tenant("acme")
    enrolment = enrol(registry, client_id="desk")
    assert enrolment.expires_at == later(HOUR)
    parsed = parse(enrolment.code)
    assert parsed is not None
    assert registry.authenticate(enrolment.code, NOW) == Caller(
        Role.ENROLMENT, parsed.id, ClientId("desk"), acme
    )

    issued = register(registry, enrolment.code, now=later(5))
    device = issued.device
    assert issued.expires_at == later(5 + HOUR)
    assert (device.tenant_id, device.client_id, device.subject) == ("acme", "desk", ALICE)
    assert (device.scopes, device.display_name, device.created_at) == (SCOPES, "Phone", later(5))
    assert (device.seen_at, device.revoked_at, device.wipe) == (later(5), None, False)
    assert registry.devices.list_devices("acme", 10) == [device]
    binding = DeviceBinding(device.device_id, ALICE, SCOPES, generation=1)
    caller = Caller(Role.DEVICE, device.device_id, ClientId("desk"), acme, binding)
    assert registry.authenticate(issued.token, later(5)) == caller


def test_a_client_is_new_unless_it_is_named_and_a_name_may_come_from_the_device(registry: Registry) -> None:
    one, other = enrol(registry), enrol(registry)
    assert one.client_id != other.client_id
    device = register(registry, one.code, display_name="Mein Telefon").device
    assert (device.client_id, device.display_name) == (one.client_id, "Mein Telefon")


def test_a_client_may_be_enrolled_again_beside_its_older_device(registry: Registry) -> None:
    first = register(registry, enrol(registry, client_id="desk").code)
    second = register(registry, enrol(registry, client_id="desk").code, b"j" * 16)
    assert first.device.client_id == second.device.client_id == "desk"
    assert first.device.device_id != second.device.device_id
    assert role(registry, first.token) is role(registry, second.token) is Role.DEVICE


@pytest.mark.parametrize("life", [0, -1, 30 * 24 * HOUR + 1])
def test_a_code_ends_within_thirty_days(registry: Registry, engine: Engine, life: int) -> None:
    with pytest.raises(InvalidField, match="expires_at"):
        enrol(registry, expires_at=later(life))
    assert row_count(engine, enrolments) == 0
    longest = enrol(registry, expires_at=later(30 * 24 * HOUR))
    assert register(registry, longest.code, now=later(30 * 24 * HOUR - 1))


def test_a_code_that_ended_unused_is_no_credential_and_is_forgotten(
    registry: Registry, engine: Engine
) -> None:
    code = enrol(registry).code
    caller = registry.authenticate(code, later(HOUR - 1))
    with pytest.raises(CredentialInvalid):
        registry.authenticate(code, later(HOUR))
    with pytest.raises(CredentialInvalid):  # it passed the door in the last moment
        registry.devices.register_device(caller.key_id, INSTALLATION, now=later(HOUR))
    enrol(registry, now=later(HOUR))
    assert row_count(engine, enrolments) == 1


def test_a_repeat_of_a_request_gives_the_same_code_and_another_body_does_not(registry: Registry) -> None:
    made = enrol(registry, request=REQUEST)
    assert enrol(registry, request=REQUEST, now=later(60)) == made
    for change in ({"client_id": "x"}, {"scopes": ()}, {"display_name": "x"}, {"expires_at": later(9)}):
        with pytest.raises(RequestIdReused):
            enrol(registry, request=REQUEST, **change)
    with pytest.raises(RequestIdReused):
        enrol(registry, "rival", request=REQUEST)
    with pytest.raises(TenantNotFound):
        enrol(registry, "nobody")


# --- registration ---------------------------------------------------------------------------------


def test_a_repeat_after_a_lost_answer_gives_the_same_device_and_token(
    registry: Registry, engine: Engine
) -> None:
    code = enrol(registry).code
    first = register(registry, code)
    enrol(registry, now=later(3 * HOUR))  # forgets old codes, but for those that were used
    again = register(registry, code, now=later(3 * HOUR), display_name="another name")
    assert (again.token, again.device) == (first.token, replace(first.device, seen_at=later(3 * HOUR)))
    assert again.expires_at == later(4 * HOUR)
    assert role(registry, again.token, later(3.5 * HOUR)) is Role.DEVICE
    assert row_count(engine, devices) == 1


def test_another_installation_does_not_get_in_by_a_used_code(registry: Registry, engine: Engine) -> None:
    code = enrol(registry).code
    register(registry, code)
    with pytest.raises(CredentialInvalid):
        register(registry, code, b"x" * 16)
    assert row_count(engine, devices) == 1


def test_many_at_once_with_one_code_are_one_device(registry: Registry, engine: Engine) -> None:
    code = enrol(registry).code
    answers = at_once(8, lambda n: register(registry, code, bytes([n % 2]) * 16))
    issued = [answer for answer in answers if isinstance(answer, DeviceToken)]
    assert [type(answer) for answer in answers if answer not in issued] == [CredentialInvalid] * 4
    assert len(issued) == 4
    assert len({each.token for each in issued}) == 1
    assert row_count(engine, devices) == 1


def test_a_code_is_forgotten_once_its_device_has_refreshed(registry: Registry, engine: Engine) -> None:
    code = enrol(registry).code
    token = register(registry, code).token
    refresh(registry, token)
    assert row_count(engine, enrolments) == 0
    with pytest.raises(CredentialInvalid):
        register(registry, code)


def test_the_code_of_a_revoked_device_says_that_it_is_revoked(registry: Registry) -> None:
    code = enrol(registry).code
    registry.devices.revoke_device("acme", register(registry, code).device.device_id, now=NOW)
    with pytest.raises(DeviceRevoked):
        register(registry, code)


# --- credentials that are none --------------------------------------------------------------------


def test_all_that_is_no_credential_gets_one_answer(
    registry: Registry, open_registry: Callable[..., Registry], phone: DeviceToken
) -> None:
    device_id = phone.device.device_id
    code = enrol(registry).code
    parsed = parse(code)
    assert parsed is not None
    secret = b"y" * SECRET_BYTES
    wrong = {
        "mistyped code": code[:-1] + ("0" if code[-1] != "0" else "1"),
        "mistyped token": phone.token[:-1] + ("0" if phone.token[-1] != "0" else "1"),
        "another secret of the device": new_token(device_id, 1, secret),
        "a generation that was not given out": new_token(device_id, 2, secret),
        "an unknown device": new_token("0" * 16, 1, secret),
        "another secret of the code": new_code(parsed.id, secret),
        "an unknown code": new_code("0" * 16, secret),
        "a device's id as a code": new_code(device_id, secret),
    }
    for kind, key in wrong.items():
        for _ in range(2):
            with pytest.raises(CredentialInvalid) as caught:
                registry.authenticate(key, NOW)
            assert str(caught.value) == str(CredentialInvalid()), kind
    for good in (code, phone.token):
        with pytest.raises(CredentialInvalid):
            open_registry(b"q" * 32).authenticate(good, NOW)
        assert registry.authenticate(good, NOW)


def test_no_secret_is_in_the_database_or_in_a_repr(registry: Registry, engine: Engine) -> None:
    enrolment = enrol(registry, request=REQUEST)
    first = register(registry, enrolment.code)
    second = refresh(registry, first.token)
    with engine.connect() as connection:
        stored = [repr(row) for table in metadata.sorted_tables for row in connection.execute(select(table))]
    for secret in (enrolment.code, first.token, second.token):
        assert not any(secret.rpartition("_")[2][:32] in text for text in stored)
    assert enrolment.code not in repr(enrolment)
    assert first.token not in repr(first)


# --- rotation -------------------------------------------------------------------------------------


def test_a_token_lives_an_hour_and_refreshes_for_ever(registry: Registry, phone: DeviceToken) -> None:
    assert phone.expires_at == NOW + TOKEN_MICROS == later(HOUR)
    assert role(registry, phone.token, later(HOUR - 1)) is Role.DEVICE
    assert role(registry, phone.token, later(HOUR)) is Role.EXPIRED_DEVICE  # also where it was cached
    year = later(365 * 24 * HOUR)
    expired = registry.authenticate(phone.token, year)
    assert (expired.role, expired.key_id) == (Role.EXPIRED_DEVICE, phone.device.device_id)
    next_one = refresh(registry, phone.token, year)
    assert next_one.token != phone.token
    assert next_one.expires_at == year + TOKEN_MICROS
    assert next_one.device == replace(phone.device, seen_at=year)
    assert role(registry, next_one.token, year) is Role.DEVICE


def test_a_token_before_stays_good_for_calls_on_their_way(registry: Registry, phone: DeviceToken) -> None:
    second = refresh(registry, phone.token, later(HOUR / 2))
    assert role(registry, second.token, later(HOUR / 2)) is Role.DEVICE
    assert role(registry, phone.token, later(HOUR - 1)) is Role.DEVICE
    assert role(registry, phone.token, later(HOUR)) is Role.EXPIRED_DEVICE


def test_a_token_before_the_last_but_one_is_over(registry: Registry, phone: DeviceToken) -> None:
    second = refresh(registry, phone.token)
    assert role(registry, phone.token) is Role.DEVICE
    third = refresh(registry, second.token)
    assert role(registry, phone.token) is Role.EXPIRED_DEVICE  # though it was cached a moment ago
    assert role(registry, second.token) is role(registry, third.token) is Role.DEVICE


def test_a_lost_answer_is_given_again_as_often_as_asked(registry: Registry, phone: DeviceToken) -> None:
    first = refresh(registry, phone.token, later(60))
    for hours in (0.5, 2, 1000):
        at = later(hours * HOUR)
        again = refresh(registry, phone.token, at)
        assert again.token == first.token
        assert (again.device.seen_at, again.expires_at) == (at, at + TOKEN_MICROS)
    assert role(registry, again.token, later(1000.5 * HOUR)) is Role.DEVICE


def test_refreshes_at_once_give_one_next_token(registry: Registry, phone: DeviceToken) -> None:
    answers = at_once(8, lambda _: refresh(registry, phone.token).token)
    assert len(set(answers)) == 1
    assert role(registry, str(answers[0])) is Role.DEVICE


@pytest.mark.parametrize("use", ["a call", "an expired call", "a refresh"])
def test_an_older_token_that_comes_back_ends_the_device(
    registry: Registry, phone: DeviceToken, use: str
) -> None:
    second = refresh(registry, phone.token)
    if use == "a call":
        assert role(registry, second.token) is Role.DEVICE
    elif use == "an expired call":
        assert role(registry, second.token, later(2 * HOUR)) is Role.EXPIRED_DEVICE
    else:
        refresh(registry, second.token)
    for _ in range(2):
        with pytest.raises(DeviceRevoked):
            refresh(registry, phone.token, later(9))
    (device,) = registry.devices.list_devices("acme", 10)
    assert (device.revoked_at, device.wipe) == (later(9), False)
    for token in (phone.token, second.token):
        caller = registry.authenticate(token, later(9))
        assert (caller.role, caller.wiped) == (Role.REVOKED_DEVICE, False)
    for generation in (1, 2):  # as one that passed the door a moment before
        with pytest.raises(DeviceRevoked):
            registry.devices.refresh_token(device.device_id, generation, now=later(9))


def test_a_copied_token_is_noticed_whoever_refreshes_first(registry: Registry, phone: DeviceToken) -> None:
    copied = refresh(registry, phone.token).token
    thiefs = refresh(registry, copied).token
    assert role(registry, thiefs) is Role.DEVICE
    with pytest.raises(DeviceRevoked):
        refresh(registry, copied)
    assert role(registry, thiefs) is Role.REVOKED_DEVICE


def test_a_first_use_elsewhere_is_seen_here(
    registry: Registry, open_registry: Callable[..., Registry], phone: DeviceToken
) -> None:
    elsewhere = open_registry()
    assert role(registry, phone.token) is role(elsewhere, phone.token) is Role.DEVICE
    second = refresh(elsewhere, phone.token)
    assert role(elsewhere, second.token) is Role.DEVICE
    with pytest.raises(DeviceRevoked):
        refresh(registry, phone.token)
    assert role(registry, second.token) is Role.REVOKED_DEVICE
    assert role(elsewhere, second.token, later(30)) is Role.REVOKED_DEVICE


def test_tokens_given_out_after_the_backup_of_a_restored_catalogue_still_work(
    registry: Registry, engine: Engine, phone: DeviceToken
) -> None:
    with engine.begin() as connection:
        saved = dict(connection.execute(select(devices)).mappings().one())
    token = phone.token
    older = [token := refresh(registry, token).token for _ in range(4)]
    with engine.begin() as connection:
        connection.execute(update(devices).values(saved))
    assert role(registry, token) is Role.EXPIRED_DEVICE
    newest = refresh(registry, token)
    assert newest.token not in older
    assert role(registry, newest.token) is Role.DEVICE
    with pytest.raises(DeviceRevoked):
        refresh(registry, older[1])


@pytest.mark.parametrize("seed", range(3))
def test_a_device_whose_answers_get_lost_is_never_taken_for_a_thief(
    registry: Registry, phone: DeviceToken, seed: int
) -> None:
    source = random.Random(seed)
    held, now = phone.token, NOW
    for _ in range(60):
        now = Micros(now + source.choice((1, 10**6, TOKEN_MICROS, 50 * TOKEN_MICROS)))
        if source.random() < 0.5:
            answer = refresh(registry, held, now)
            if source.random() < 0.5:  # it arrived
                held = answer.token
                assert role(registry, held, now) is Role.DEVICE
        else:
            assert role(registry, held, now) in (Role.DEVICE, Role.EXPIRED_DEVICE)


@given(st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_the_law_of_rotation(asking: int, newest: int, used: bool) -> None:
    turn = rotation(asking, newest, newest if used else newest - 1)
    if asking >= newest:
        assert turn is Rotation.NEXT
    elif asking == newest - 1 and not used:
        assert turn is Rotation.AGAIN
    else:
        assert turn is Rotation.COPIED


# --- the list, and revocation ---------------------------------------------------------------------


def test_pages_of_devices_join_to_the_whole_list_of_one_tenant(registry: Registry) -> None:
    mine = [register(registry, enrol(registry).code).device.device_id for _ in range(5)]
    register(registry, enrol(registry, "rival").code)
    found = [device.device_id for device in registry.devices.list_devices("acme", 2)]
    while page := registry.devices.list_devices("acme", 2, found[-1]):
        found += [device.device_id for device in page]
    assert found == sorted(mine)
    with pytest.raises(TenantNotFound):
        registry.devices.list_devices("nobody", 10)


def test_a_revoked_device_is_refused_at_once_here_and_soon_elsewhere(
    registry: Registry, open_registry: Callable[..., Registry], phone: DeviceToken
) -> None:
    second = refresh(registry, phone.token)
    elsewhere = open_registry()
    tokens = (phone.token, second.token)
    for token in tokens:
        assert role(registry, token) is role(elsewhere, token) is Role.DEVICE
    revoked = registry.devices.revoke_device("acme", phone.device.device_id, now=later(5))
    assert (revoked.revoked_at, revoked.wipe) == (later(5), False)
    for token in tokens:
        caller = registry.authenticate(token, later(5))
        assert (caller.role, caller.wiped) == (Role.REVOKED_DEVICE, False)
        assert role(elsewhere, token, later(30)) is Role.REVOKED_DEVICE
        with pytest.raises(DeviceRevoked):
            refresh(registry, token, later(5))
    assert role(registry, phone.token, later(9 * HOUR)) is Role.REVOKED_DEVICE


def test_revoking_again_changes_nothing_but_may_order_a_wipe(registry: Registry, phone: DeviceToken) -> None:
    device_id = phone.device.device_id
    revoke = registry.devices.revoke_device
    revoked = revoke("acme", device_id, now=later(5))
    assert revoke("acme", device_id, now=later(6)) == revoked
    wiped = revoke("acme", device_id, now=later(7), wipe=True, request=REQUEST)
    assert wiped == replace(revoked, wipe=True)
    assert registry.authenticate(phone.token, later(7)).wiped
    assert revoke("acme", device_id, now=later(8)) == wiped
    assert revoke("acme", device_id, now=later(9), wipe=True, request=REQUEST) == wiped
    with pytest.raises(RequestIdReused):
        revoke("acme", device_id, now=later(9), request=REQUEST)
    assert registry.devices.list_devices("acme", 10) == [wiped]


def test_another_tenants_device_is_byte_for_byte_an_unknown_one(
    registry: Registry, phone: DeviceToken
) -> None:
    device_id = phone.device.device_id
    for tenant_id, asked in (("rival", device_id), ("acme", "0" * 16), ("acme", "x")):
        with pytest.raises(DeviceNotFound) as caught:
            registry.devices.revoke_device(tenant_id, asked, now=NOW, wipe=True)
        unknown = DeviceNotFound(asked)
        assert (str(caught.value), caught.value.metadata) == (str(unknown), unknown.metadata)
    with pytest.raises(TenantNotFound):
        registry.devices.revoke_device("nobody", device_id, now=NOW)
    assert role(registry, phone.token, later(60)) is Role.DEVICE


def test_a_device_is_never_accepted_after_its_revocation_returned(registry: Registry) -> None:
    def accepted_late(token: str, revoked: threading.Event) -> bool:
        while True:
            late = revoked.is_set()
            if role(registry, token) is Role.REVOKED_DEVICE:
                return False
            if late:
                return True

    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            issued = register(registry, enrol(registry).code)
            revoked = threading.Event()
            users = [pool.submit(accepted_late, issued.token, revoked) for _ in range(4)]
            registry.devices.revoke_device("acme", issued.device.device_id, now=NOW)
            revoked.set()
            assert not any(user.result(10) for user in users)


# --- what authentication costs --------------------------------------------------------------------


def test_a_token_is_read_once_in_thirty_seconds(
    registry: Registry, phone: DeviceToken, statements: list[str]
) -> None:
    registry.authenticate(phone.token, NOW)
    assert any(statement.startswith("UPDATE") for statement in statements)  # its first use
    read = len(statements)
    for seconds in (0, 10, 29.9):
        registry.authenticate(phone.token, later(seconds))
    assert len(statements) == read
    registry.authenticate(phone.token, later(30))
    assert len(statements) > read
    assert not any(statement.startswith("UPDATE") for statement in statements[read:])
