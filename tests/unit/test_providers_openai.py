"""The embedder over HTTP against a server that misbehaves."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scrubjay.errors import ModelMismatch, ModelUnavailable, ScrubjayError
from server.providers.embedder import TextKind
from server.providers.endpoint import EndpointSettings
from server.providers.openai import OpenAIEmbedder, OpenAISettings
from server.providers.pieces import normalised
from tests.embedding_server import EmbeddingServer, answer, embeddings, vector_of
from tests.model_server import Answer, silence

KEY = "sk-secret-of-the-operator"


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as server:
        yield server


@pytest.fixture
def settings(server: EmbeddingServer) -> OpenAISettings:
    endpoint = EndpointSettings(
        url=server.url,
        model="test-model",
        kind="embedding server",
        api_key=KEY,
        timeout_seconds=5,
        budget_seconds=5,
    )
    return OpenAISettings(endpoint, dimension=8)


def embed(settings: OpenAISettings, *texts: str) -> NDArray[np.float32]:
    with closing(OpenAIEmbedder(settings)) as embedder:
        return embedder.embed(texts, TextKind.DOCUMENT)


def changed(settings: OpenAISettings, **values: Any) -> OpenAISettings:
    return replace(settings, endpoint=replace(settings.endpoint, **values))


def unit(text: str) -> NDArray[np.float32]:
    (row,) = normalised(np.array([vector_of(text, 8)], dtype=np.float32))
    return np.asarray(row)


def test_a_request_carries_key_model_and_prepared_texts(
    server: EmbeddingServer, settings: OpenAISettings
) -> None:
    rows = embed(settings, "User likes tea", "")
    assert server.authorizations == [f"Bearer {KEY}"]
    assert server.requests == [{"model": "test-model", "input": ["I likes tea", "."]}]
    np.testing.assert_allclose(rows, [unit("I likes tea"), unit(".")], atol=1e-5)


def test_a_server_without_keys_gets_none(server: EmbeddingServer, settings: OpenAISettings) -> None:
    embed(changed(settings, api_key=""), "tea")
    assert server.authorizations == [None]


def test_no_request_is_longer_than_128_texts(server: EmbeddingServer, settings: OpenAISettings) -> None:
    texts = [f"fact {number}" for number in range(300)]
    rows = embed(settings, *texts)
    assert [len(request["input"]) for request in server.requests] == [128, 128, 44]
    np.testing.assert_allclose(rows, [unit(text) for text in texts], atol=1e-5)


def test_rows_are_put_in_the_order_of_their_index(server: EmbeddingServer, settings: OpenAISettings) -> None:
    server.script.append(lambda texts: answer(embeddings(texts, 8)[::-1]))
    rows = embed(settings, "one", "two", "three")
    np.testing.assert_allclose(rows, [unit("one"), unit("two"), unit("three")], atol=1e-5)


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_refusal_that_may_pass_is_tried_again(
    server: EmbeddingServer, settings: OpenAISettings, status: int
) -> None:
    server.script.append(lambda texts: Answer(status))
    np.testing.assert_allclose(embed(settings, "tea"), [unit("tea")], atol=1e-5)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "retry_after",
    ["1", format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)],
    ids=["a second", "tomorrow"],
)
def test_retry_after_is_waited_for_or_the_budget_is_over(
    server: EmbeddingServer, settings: OpenAISettings, retry_after: str
) -> None:
    server.script.append(lambda texts: Answer(429, headers={"retry-after": retry_after}))
    start = time.monotonic()
    if retry_after == "1":
        embed(settings, "tea")
        assert time.monotonic() - start >= 1
    else:
        with pytest.raises(ModelUnavailable, match="answers 429, and the time to try again is over"):
            embed(settings, "tea")
        assert len(server.requests) == 1


def test_attempts_end_with_their_budget(server: EmbeddingServer, settings: OpenAISettings) -> None:
    server.script.extend([lambda texts: Answer(500)] * 100)
    start = time.monotonic()
    with pytest.raises(ModelUnavailable, match="answers 500") as raised:
        embed(changed(settings, budget_seconds=0.6), "tea")
    assert time.monotonic() - start < 2
    assert 2 <= len(server.requests) <= 5
    assert raised.value.retry_after_seconds


def test_silence_ends_with_the_timeout(server: EmbeddingServer, settings: OpenAISettings) -> None:
    server.script.extend([lambda texts: silence()] * 10)
    start = time.monotonic()
    with pytest.raises(ModelUnavailable, match="does not answer in time"):
        embed(changed(settings, timeout_seconds=0.2, budget_seconds=0.5), "tea")
    assert time.monotonic() - start < 2


def test_an_answer_that_drips_ends_with_the_timeout(
    server: EmbeddingServer, settings: OpenAISettings
) -> None:
    server.script.extend([lambda texts: Answer(body=b" " * 1_000, pause_seconds=0.05)] * 10)
    start = time.monotonic()
    with pytest.raises(ModelUnavailable, match=r"answers too slowly|in time"):
        embed(changed(settings, timeout_seconds=0.2, budget_seconds=0.5), "tea")
    assert time.monotonic() - start < 2


def test_silence_is_tried_again(server: EmbeddingServer, settings: OpenAISettings) -> None:
    server.script.append(lambda texts: silence())
    np.testing.assert_allclose(embed(changed(settings, timeout_seconds=0.3), "tea"), [unit("tea")], atol=1e-5)


def test_a_server_that_is_not_there_is_unavailable(settings: OpenAISettings) -> None:
    gone = changed(settings, url="http://127.0.0.1:1/v1/embeddings", budget_seconds=0.3)
    with pytest.raises(ModelUnavailable, match=r"127\.0\.0\.1 cannot be reached"):
        embed(gone, "tea")


MALFORMED: dict[str, Callable[[list[str]], Answer]] = {
    "html": lambda texts: Answer(body=b"<html>Sign in</html>"),
    "not UTF-8": lambda texts: Answer(body=b'{"data": "\xff"}'),
    "empty": lambda texts: Answer(),
    "a list": lambda texts: Answer(body=b"[]"),
    "no data": lambda texts: Answer(body=b'{"data": null}'),
    "a row without index": lambda texts: answer([{"embedding": [1.0] * 8}] * 2),
    "a vector of words": lambda texts: answer([{"index": i, "embedding": ["x"] * 8} for i in range(2)]),
    "a vector of vectors": lambda texts: answer([{"index": i, "embedding": [[1], [1, 2]]} for i in range(2)]),
    "a row too few": lambda texts: answer(embeddings(texts, 8)[:1]),
    "a row too many": lambda texts: answer(embeddings([*texts, "more"], 8)),
    "a row twice": lambda texts: answer([embeddings(texts, 8)[0]] * 2),
    "not a number": lambda texts: answer([{"index": i, "embedding": [float("nan")] * 8} for i in range(2)]),
    "zeros": lambda texts: answer([{"index": i, "embedding": [0.0] * 8} for i in range(2)]),
    "deep": lambda texts: Answer(body=b"[" * 200_000),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_an_answer_that_is_no_list_of_embeddings_is_unavailable(
    server: EmbeddingServer, settings: OpenAISettings, what: str
) -> None:
    server.script.append(MALFORMED[what])
    with pytest.raises(ModelUnavailable, match=r"the embedding server 127\.0\.0\.1 answers "):
        embed(settings, "one", "two")


def test_another_dimension_is_a_mismatch_that_says_which(
    server: EmbeddingServer, settings: OpenAISettings
) -> None:
    server.script.append(lambda texts: answer(embeddings(texts, 6)))
    with pytest.raises(ModelMismatch, match="has dimension 6, the settings say 8"):
        embed(settings, "tea")


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (400, ModelUnavailable, "does not take the request"),
        (401, ModelUnavailable, "does not take the API key"),
        (403, ModelUnavailable, "does not take the API key"),
        (404, ModelMismatch, "'test-model'"),
        (302, ModelUnavailable, "does not take the request"),
    ],
)
def test_a_refusal_that_does_not_pass_is_not_tried_again_and_not_quoted(
    server: EmbeddingServer, settings: OpenAISettings, status: int, error: type[ScrubjayError], message: str
) -> None:
    quoting = json.dumps({"error": f"Incorrect API key provided: {KEY}"}).encode()
    server.script.append(lambda texts: Answer(status, quoting, {"location": f"http://127.0.0.1/{KEY}"}))
    with pytest.raises(error, match=message) as raised:
        embed(settings, "tea")
    assert len(server.requests) == 1
    assert KEY not in str(raised.value)


def test_the_key_is_in_no_repr(settings: OpenAISettings) -> None:
    with closing(OpenAIEmbedder(settings)) as embedder:
        shown = repr(settings) + repr(embedder) + repr(embedder.space)
    assert KEY not in shown


def test_no_more_requests_run_at_once_than_set(server: EmbeddingServer, settings: OpenAISettings) -> None:
    together = threading.Barrier(2)

    def meet(texts: list[str]) -> Answer:
        together.wait(5)  # two requests are here
        return answer(embeddings(texts, 8))

    server.script.extend([meet] * 8)
    with (
        closing(OpenAIEmbedder(changed(settings, concurrency=2))) as embedder,
        ThreadPoolExecutor(8) as threads,
    ):
        list(threads.map(lambda number: embedder.embed([f"fact {number}"], TextKind.QUERY), range(8)))
    assert server.most_at_once == 2


def test_closing_ends_a_pause(server: EmbeddingServer, settings: OpenAISettings) -> None:
    refused = threading.Event()

    def refuse(texts: list[str]) -> Answer:
        refused.set()
        return Answer(429, headers={"retry-after": "60"})

    server.script.append(refuse)
    embedder = OpenAIEmbedder(changed(settings, budget_seconds=100))
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(embedder.embed, ["tea"], TextKind.QUERY)
        assert refused.wait(5)
        embedder.close()
        with pytest.raises(ModelUnavailable):
            call.result(timeout=5)
    with pytest.raises(ModelUnavailable, match="closed"):
        embedder.embed(["tea"], TextKind.QUERY)


def test_the_self_test_refuses_a_model_that_tells_nothing_apart(
    server: EmbeddingServer, settings: OpenAISettings
) -> None:
    server.script.append(lambda texts: answer([{"index": i, "embedding": [1.0] * 8} for i in range(2)]))
    with (
        closing(OpenAIEmbedder(settings)) as embedder,
        pytest.raises(ModelMismatch, match="no embedding model"),
    ):
        embedder.self_test()
