"""The circuit breaker, alone and around a server that fails."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from scrubjay.errors import ModelUnavailable
from server.providers import breaker
from server.providers.breaker import FAILURES, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Breaker, Open
from server.providers.endpoint import Endpoint, EndpointSettings
from tests.model_server import Answer, ModelServer, silence

KEY = "sk-secret-of-the-operator"


class Clock:
    """Seconds that pass only where a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def fail(breaker: Breaker, times: int = 1) -> None:
    for _ in range(times):
        breaker.enter()
        breaker.leave(failed=True)


def test_it_opens_after_failures_in_a_row_and_not_before(clock: Clock) -> None:
    breaker = Breaker(clock)
    fail(breaker, FAILURES - 1)
    breaker.enter()
    breaker.leave(failed=False)
    fail(breaker, FAILURES - 1)
    breaker.check()
    fail(breaker)
    with pytest.raises(Open) as raised:
        breaker.enter()
    assert raised.value.seconds == FIRST_PAUSE_SECONDS


def test_half_open_it_lets_one_through_whose_end_decides(clock: Clock) -> None:
    breaker = Breaker(clock)
    fail(breaker, FAILURES)
    clock.now += FIRST_PAUSE_SECONDS
    breaker.enter()
    with pytest.raises(Open):
        breaker.enter()
    breaker.leave(failed=True)
    with pytest.raises(Open) as raised:
        breaker.check()
    assert raised.value.seconds == 2 * FIRST_PAUSE_SECONDS
    clock.now += 2 * FIRST_PAUSE_SECONDS
    breaker.enter()
    breaker.leave(failed=False)
    fail(breaker, FAILURES - 1)
    breaker.check()


def test_its_pause_grows_to_a_bound(clock: Clock) -> None:
    breaker = Breaker(clock)
    fail(breaker, FAILURES)
    for _ in range(20):
        clock.now += LONGEST_PAUSE_SECONDS
        fail(breaker)
    with pytest.raises(Open) as raised:
        breaker.check()
    assert raised.value.seconds == LONGEST_PAUSE_SECONDS


def test_failures_of_requests_that_were_under_way_do_not_lengthen_the_pause(clock: Clock) -> None:
    breaker = Breaker(clock)
    for _ in range(3 * FAILURES):
        breaker.enter()
    for _ in range(3 * FAILURES):
        breaker.leave(failed=True)
    with pytest.raises(Open) as raised:
        breaker.check()
    assert raised.value.seconds == FIRST_PAUSE_SECONDS


# --- around a server --------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[ModelServer[dict[str, Any]]]:
    with ModelServer("/model", lambda request: request, lambda _: Answer(body=b"right")) as server:
        yield server


def endpoint(server: ModelServer[dict[str, Any]], **limits: float) -> Endpoint:
    return Endpoint(
        EndpointSettings(url=server.url, model="m", kind="model server", api_key=KEY, **limits)  # type: ignore[arg-type]  # floats, every one of them
    )


def test_an_open_breaker_answers_at_once_and_says_until_when(
    server: ModelServer[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker, "FIRST_PAUSE_SECONDS", 30.0)
    server.script.extend([lambda _: Answer(500)] * 100)
    with closing(endpoint(server, budget_seconds=0.1)) as asked:
        for _ in range(FAILURES):
            with pytest.raises(ModelUnavailable, match="answers 500"):
                asked.post({})
        before = len(server.requests)
        with pytest.raises(ModelUnavailable, match=r"is not asked before 20\d\d-") as raised:
            asked.post({})
        assert len(server.requests) == before
        assert 25 < (raised.value.retry_after_seconds or 0) <= 30


def test_a_request_under_way_waits_for_it_within_its_budget(
    server: ModelServer[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker, "FAILURES", 2)
    monkeypatch.setattr(breaker, "FIRST_PAUSE_SECONDS", 0.3)
    server.script.extend([lambda _: Answer(503)] * 2)
    with closing(endpoint(server)) as asked:
        assert asked.post({}) == b"right"
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_server_that_answers_no_is_there(server: ModelServer[dict[str, Any]], status: int) -> None:
    server.script.extend([lambda _: Answer(status)] * 2 * FAILURES)
    with closing(endpoint(server)) as asked:
        for _ in range(2 * FAILURES):
            with pytest.raises(Exception, match=str(status)):
                asked.post({})
    assert len(server.requests) == 2 * FAILURES


def test_no_key_is_logged_whatever_the_server_does(
    server: ModelServer[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    quoting = f"Incorrect API key provided: {KEY}".encode()
    for step in (
        lambda _: Answer(500, quoting),
        lambda _: Answer(429, quoting, {"retry-after": "60"}),
        lambda _: Answer(401, quoting),
        lambda _: Answer(400, quoting),
        lambda _: silence(),
    ):
        server.script.clear()
        server.script.extend([step] * 9)
        with (
            closing(endpoint(server, timeout_seconds=0.2, budget_seconds=0.2)) as asked,
            pytest.raises(ModelUnavailable) as raised,
        ):
            asked.post({})
        assert KEY not in f"{raised.value}{raised.value.__cause__!r}"
    assert caplog.records
    assert KEY not in caplog.text


TALKATIVE = """
import logging
import sys
from server.__main__ import _log_to_stderr
from server.providers.endpoint import Endpoint, EndpointSettings

_log_to_stderr("DEBUG")
settings = EndpointSettings(url=sys.argv[1], model="m", kind="model server", api_key=sys.argv[2])
try:
    Endpoint(settings).post({})
except Exception:
    logging.getLogger("scrubjay").exception("refused")
"""


def test_no_key_is_logged_where_a_server_quotes_it_in_a_header(server: ModelServer[dict[str, Any]]) -> None:
    server.script.append(lambda _: Answer(401, KEY.encode(), {"location": f"http://127.0.0.1/{KEY}"}))
    ran = subprocess.run(
        [sys.executable, "-c", TALKATIVE, server.url, KEY],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert "answers 401" in ran.stderr
    assert KEY not in ran.stderr
    assert server.authorizations == [f"Bearer {KEY}"]
