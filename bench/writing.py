"""Add of conversations against the embedder alone, in one run, as ratios.

    python bench/writing.py                 # RAW and RULES with 100 messages a call, RULES with one
    python bench/writing.py --pairs 15 --embedder e5

One server in a process of its own, and the same embedder in this one: it embeds the contents of the memories
that the call has stored, all at once, as the server does. The two are measured in turn, A B A B, and the
median of the pairs is printed. Messages are the labelled sentences of tests/evals; every call is of a user of
its own, so that nothing is said twice.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import cycle, islice
from pathlib import Path

from threadpoolctl import threadpool_limits

from demo.local_server import local_server
from scrubjay import connect, v1
from server.providers.embedder import Embedder, TextKind, open_embedder

SENTENCES = Path(__file__).parent.parent / "tests" / "evals" / "sentences.tsv"
CASES = (
    ("RAW, 100 messages", v1.WRITE_POLICY_RAW, 100),
    ("RULES, 100 messages", v1.WRITE_POLICY_RULES, 100),
    ("RULES, 1 message", v1.WRITE_POLICY_RULES, 1),
)
WARM_UP = 2


def sentences() -> list[str]:
    """What people said in the labelled set that is worth remembering, each once."""
    with SENTENCES.open(encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        texts = [row["text"] for row in rows if row["role"] == "user" and row["category"] != "NONE"]
    return list(dict.fromkeys(texts))


def seconds_of_add(
    memories: v1.MemoryServiceStub, texts: Sequence[str], policy: v1.WritePolicy.ValueType, user_id: str
) -> tuple[float, list[str]]:
    """How long one Add takes, and what it stored."""
    request = v1.AddRequest(
        messages=[v1.ConversationMessage(role="user", content=text) for text in texts],
        policy=policy,
        template=v1.Memory(user_id=user_id),
    )
    began = time.perf_counter()
    response = memories.Add(request)
    return time.perf_counter() - began, [result.memory.content for result in response.results]


def seconds_of_embedding(embedder: Embedder, texts: Sequence[str]) -> float:
    """How long the embedder alone takes."""
    began = time.perf_counter()
    embedder.embed(texts, TextKind.DOCUMENT)
    return time.perf_counter() - began


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--embedder", default="lite")
    options = parser.parse_args()
    pool = cycle(sentences())
    threadpool_limits(limits=1, user_api="blas")  # as the server does
    with (
        closing(open_embedder(options.embedder)) as embedder,
        local_server(options.embedder) as server,
        connect(server.address, server.service_key) as channel,
    ):
        memories = v1.MemoryServiceStub(channel)
        print(f"{'case':22}  ratio  Add ms  embedder ms  stored")
        for name, policy, count in CASES:
            pairs = []
            for n in range(WARM_UP + options.pairs):
                texts = list(islice(pool, count))
                add, stored = seconds_of_add(memories, texts, policy, f"{name} {n}")
                pairs.append((add, seconds_of_embedding(embedder, stored), len(stored)))
            measured = pairs[WARM_UP:]
            ratio = statistics.median(add / alone for add, alone, _ in measured)
            add_ms = 1000 * statistics.median(add for add, _, _ in measured)
            alone_ms = 1000 * statistics.median(alone for _, alone, _ in measured)
            stored_count = statistics.median(count for _, _, count in measured)
            print(f"{name:22}  {ratio:5.2f}  {add_ms:6.0f}  {alone_ms:11.0f}  {stored_count:6.0f}")


if __name__ == "__main__":
    main()
