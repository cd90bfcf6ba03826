"""A retrieval evaluation harness run against a real server: how often the right memory comes back.

    python bench/evals.py --evals FOLDER --data locomo madial_zh memorybank_zh --embedder lite e5

FOLDER holds the harness and its data; neither is part of this repository (see docs/evaluation.md), and
EVALS in the environment names it too. One small set is our own and is here: ``no_shared_words``, facts and
questions in English and Chinese that have no word in common but "I", "the", 的 and their like.

Each set gets a fresh tenant; items are added through Add and asked for through Search over a real channel.
The harness's baselines run beside it on the same items and questions. A Markdown table per set shows by how
much each is better than the first baseline, and one the categories of its questions. ``--parts`` also asks
by the default recipe without each of its parts and as it grew out of its first version: this process makes
those recipes, which no server knows otherwise. Every hit is explained, and a run ends where contributions do
not add up to a score.

The harness's own command line takes the factories of this module: ``--system bench.evals:lite``.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import importlib
import itertools
import math
import os
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from scrubjay import connect, v1
from server.app import App
from server.config import Settings
from server.recall.recipes import RECIPES, Recipe

HITS = 20
OWN = Path(__file__).with_name("no_shared_words.tsv")
"""Per line: a fact in English and in Chinese, and a question about it in each."""
COLUMNS = ("any@10", "all@10", "ndcg@10", "mrr")
COMPARED = ("any@10", "ndcg@10")
CALL_SECONDS = 300.0
"""A batch of 100 long texts takes a slow model some 10 s on a core of its own."""
TOLERANCE = 1e-6
"""By how much the contributions of a hit may miss its score."""
ENTITY = 0.03
"""The weight of the entity arm in ``with-entity``."""
GROWN = ("neighbours", "speaker", "time")
"""The arms that joined meaning and words, in this order."""
STEPS = ("default-1", "step-2", "step-3", "step-4", "step-5", "without-newer", "default")
"""The default recipe from its first version on, each with one part more than the one before."""
PARTS = ("lexical", *(f"without-{part}" for part in (*GROWN, "newer", "last-line")))
"""Words alone, which with ``semantic`` are the two arms that can stand alone, and the default less a part."""


class Item(NamedTuple):
    """What there is to remember, as the harness gives it; ``timestamp`` is ISO 8601, read as UTC."""

    user_id: str
    text: str
    timestamp: str
    speaker: str
    evidence_id: str


def trials() -> Mapping[str, Recipe]:
    """The recipes of STEPS and PARTS that are not shipped; ``default`` with the entity arm, and ``hybrid-v3``
    as it was without."""
    default = RECIPES["default"]
    only = dataclasses.replace
    made = {"lexical": only(default, weights={"lexical": 1.0}, last_line=0.0)}
    made["default-1"] = only(default, weights={"dense": 0.6, "lexical": 0.4}, last_line=0.0)
    for n in range(len(GROWN) + 1):
        weights = {arm: default.weights[arm] for arm in ("dense", "lexical", *GROWN[:n])}
        made[f"step-{n + 2}"] = only(default, weights=weights, last_line=0.0)
    for arm in (*GROWN, "newer"):
        weights = {other: weight for other, weight in default.weights.items() if other != arm}
        made[f"without-{arm}"] = only(default, weights=weights)
    made["without-last-line"] = only(default, last_line=0.0)
    others = {
        arm: weight if arm in ("neighbours", "newer") else (1 - ENTITY) * weight
        for arm, weight in default.weights.items()
    }
    made["with-entity"] = only(default, weights={**others, "entity": ENTITY})
    halves = {"dense": 0.5, "bm25": 0.5}
    made["hybrid-v3-1"] = only(RECIPES["hybrid-v3"], weights=halves, threshold=0.1)
    return made


@contextmanager
def trying() -> Iterator[None]:
    """The servers of this process know the trial recipes too."""
    with patch("server.services.finding.RECIPES", {**RECIPES, **trials()}):
        yield


class Sums:
    """Adds up the contributions of every hit."""

    def __init__(self) -> None:
        self.hits = 0
        self.furthest = 0.0

    def check(self, hits: Sequence[v1.SearchHit]) -> None:
        """ArithmeticError where a hit's contributions do not add up to its score."""
        for hit in hits:
            total = math.fsum(part.value for part in hit.explanation.contributions)
            self.hits, self.furthest = self.hits + 1, max(self.furthest, abs(total - hit.score))
            if not abs(total - hit.score) <= TOLERANCE:
                raise ArithmeticError(f"{hit.memory.id}: contributions add up to {total}, not {hit.score}")


class System:
    """A tenant of a running server, as the harness wants a system to be."""

    def __init__(self, memories: v1.MemoryServiceStub, recipe: str, sums: Sums) -> None:
        self.memories = memories
        self._recipe = recipe
        self._sums = sums

    def asking(self, recipe: str) -> System:
        """The same memories, searched by another recipe."""
        return System(self.memories, recipe, self._sums)

    def add(self, items: Sequence[Item]) -> None:
        """Store each item, all of one user, as one memory; what several speakers say is a conversation.
        RuntimeError where the server refuses one."""
        dialogue = any(item.speaker != items[0].speaker for item in items)
        request = v1.AddRequest(memories=[_memory(item, dialogue) for item in items], dedup=v1.DEDUP_OFF)
        response = self.memories.Add(request)
        for result in response.results:
            if result.HasField("error"):
                raise RuntimeError(f"not added: {result.error.message}")

    def search(self, user_id: str, query: str, k: int, as_of: str | None = None) -> list[str]:
        """The evidence ids of the k best memories, best first. ArithmeticError: see Sums."""
        request = v1.SearchRequest(user_id=user_id, query=query, top_k=k, recipe=self._recipe, explain=True)
        if as_of is not None:  # all is written now, so what was known then is what is dated so
            request.filter.condition.field = "created_at"
            request.filter.condition.operator = v1.OPERATOR_LTE
            request.filter.condition.value.string_value = _utc(as_of).isoformat()
        hits = self.memories.Search(request).hits
        self._sums.check(hits)
        return [str(hit.memory.metadata["evidence_id"]) for hit in hits]


def _utc(timestamp: str) -> datetime:
    return datetime.fromisoformat(timestamp).replace(tzinfo=UTC)


def _memory(item: Item, dialogue: bool) -> v1.Memory:
    said = item.text if item.speaker in ("user", "", None) else f"{item.speaker}: {item.text}"
    memory = v1.Memory(user_id=item.user_id, content=said)
    memory.metadata.update({"evidence_id": item.evidence_id})
    memory.created_at.FromDatetime(_utc(item.timestamp))
    memory.source.role = item.speaker or "user"
    if dialogue:
        memory.source.conversation_id = item.user_id
    return memory


class Server:
    """A server of its own on a free port, with embedded databases in a temporary folder; close it."""

    def __init__(self, embedder: str) -> None:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="scrubjay-evals-"))
            settings = Settings.model_validate(
                {
                    "listen": "127.0.0.1:0",
                    "data_dir": Path(folder) / "data",
                    "shards": "",
                    "catalogue": "",
                    "embedder": embedder,
                }
            )
            app = stack.enter_context(App(settings))
            assert app.first_credentials is not None
            self._address = app.address
            admin = stack.enter_context(connect(app.address, app.first_credentials.admin.secret))
            self._admin = v1.TenantAdminServiceStub(admin)
            self._tenants = 0
            self.sums = Sums()
            self._stack = stack.pop_all()

    def system(self) -> System:
        """A fresh tenant."""
        self._tenants += 1
        tenant_id = f"evals-{self._tenants}"
        self._admin.CreateTenant(v1.CreateTenantRequest(tenant_id=tenant_id))
        key = self._admin.CreateApiKey(v1.CreateApiKeyRequest(tenant_id=tenant_id, role=v1.ROLE_SERVICE))
        channel = connect(self._address, key.secret, deadline_seconds=CALL_SECONDS)
        return System(v1.MemoryServiceStub(self._stack.enter_context(channel)), "default", self.sums)

    def close(self) -> None:
        """Stop it and remove its folder."""
        self._stack.close()


def lite() -> System:
    """For the harness's command line: a server with the embedder lite, closed with the system."""
    return _alone("lite")


def e5() -> System:
    """The same with the embedder e5."""
    return _alone("e5")


def _alone(embedder: str) -> System:
    server = Server(embedder)
    system = server.system()
    weakref.finalize(system, server.close)
    return system


class Harness:
    """The modules of the harness in ``folder``."""

    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(folder))
        self.baselines = importlib.import_module("baselines")
        self.probes = importlib.import_module("probes")
        self._runs = importlib.import_module("harness")
        self._load = importlib.import_module("loaders").load

    def load(self, name: str) -> Any:
        """A data set of the harness, or our own, with the questions that count."""
        data = self._own() if name == OWN.stem else self._load(name)
        counting = [query for query in data.queries if not data.headline or query.category in data.headline]
        return dataclasses.replace(data, queries=counting)

    def _own(self) -> Any:
        """Every question asked of a user with the English facts and of one with the Chinese."""
        items, queries = [], []
        with OWN.open(encoding="utf-8", newline="") as lines:
            for n, line in enumerate(csv.DictReader(lines, delimiter="\t")):
                for fact in ("en", "zh"):
                    said = line[f"fact_{fact}"]
                    items.append(self._runs.Item(fact, said, "2025-01-01T09:00:00", "user", str(n)))
                    for question in ("en", "zh"):
                        way, asked = f"{question}-{fact}", line[f"question_{question}"]
                        queries.append(self._runs.Query(f"{way}-{n}", fact, asked, (str(n),), way))
        return self._runs.Dataset(OWN.stem, "en, zh", items, queries)

    def run(self, system: Any, data: Any, name: str, *, added: bool = False) -> Any:
        """The report of one system on one data set; ``added`` where it holds the items already."""
        add = _nothing if added else system.add
        return self._runs.run(add, system.search, HITS, data, system=name)

    def difference(self, base: Any, report: Any, measure: str) -> str:
        """How much better than the base, with the paired 95 % interval over the questions."""
        found = self._runs.compare(base, report, measure)
        return f"{found['diff']:+.3f} ({found['low']:+.3f} to {found['high']:+.3f})"

    def named(self, baseline: str) -> str:
        """A baseline with the tokenizer that it uses here."""
        if baseline != "bm25":
            return baseline
        return f"bm25, {'jieba words' if self.baselines.jieba else 'character pairs'}"


def _nothing(items: Sequence[Item]) -> None:
    """An add for a system that holds the items already."""
    del items


def table(harness: Harness, data: Any, reports: Sequence[Any]) -> str:
    """One row a report; differences are to the first."""
    base = reports[0]
    asked = f"{len(base.rows)} questions, {len(data.items)} memories"
    heads = [f"{data.name}: {asked}", *COLUMNS, *(f"{measure} over {base.system}" for measure in COMPARED)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for report in reports:
        means = report.overall()
        cells = [report.system, *(f"{means[measure]:.3f}" for measure in COLUMNS)]
        cells += ["" if report is base else harness.difference(base, report, one) for one in COMPARED]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


@contextmanager
def serving(embedders: Sequence[str]) -> Iterator[dict[str, Server]]:
    """A server for each embedder."""
    with ExitStack() as stack:
        yield {embedder: stack.enter_context(closing(Server(embedder))) for embedder in embedders}


def by_category(reports: Sequence[Any]) -> str:
    """One row a report, one column a category."""
    groups = reports[0].by_category()
    heads = ["any@10 / ndcg@10", *(f"{category} ({group['n']})" for category, group in groups.items())]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for report in reports:
        means = report.by_category().values()
        cells = [report.system, *(" / ".join(f"{mean[one]:.3f}" for one in COMPARED) for mean in means)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def grown(harness: Harness, reports: Sequence[Any]) -> str:
    """One row a step: by how much it is better than the one before, then the last than the first."""
    heads = [f"step of {reports[0].dataset}", *(f"{measure}" for measure in COMPARED)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    pairs = [*itertools.pairwise(reports), (reports[0], reports[-1])]
    for before, after in pairs:
        cells = [harness.difference(before, after, measure) for measure in COMPARED]
        lines.append(f"| {' | '.join([f'{before.system} → {after.system}', *cells])} |")
    return "\n".join(lines)


def measure(harness: Harness, data: Any, servers: dict[str, Server], chosen: argparse.Namespace) -> str:
    """The tables of one data set."""
    reports = [
        harness.run(harness.baselines.SYSTEMS[name](), data, harness.named(name)) for name in chosen.baselines
    ]
    steps = []
    for embedder, server in servers.items():
        system = server.system()
        recipes = list(dict.fromkeys([*chosen.recipes, *(PARTS + STEPS if chosen.parts else ())]))
        asked = {
            recipe: harness.run(system.asking(recipe), data, f"{embedder}, {recipe}", added=n > 0)
            for n, recipe in enumerate(recipes)
        }
        reports += asked.values()
        if chosen.parts:
            steps.append(grown(harness, [asked[recipe] for recipe in STEPS]))
    return "\n\n".join([table(harness, data, reports), by_category(reports), *steps])


def probe(harness: Harness, embedder: str, server: Server, recipe: str) -> str:
    """The tables of the update and the duplicate probes."""

    def make() -> System:
        return server.system().asking(recipe)

    updates, duplicates = harness.probes.updates(make), harness.probes.duplicates(make)
    found: str = harness.probes.table(f"{embedder}, {recipe}", updates, duplicates)
    return found


def arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """What the command line asks for."""
    parser.add_argument(
        "--evals", type=Path, default=os.environ.get("EVALS"), help="folder of the harness, or EVALS"
    )
    parser.add_argument("--data", nargs="*", default=[OWN.stem], help="names of data sets")
    parser.add_argument("--embedder", nargs="*", default=["lite"], help="lite, e5, hash, or none at all")
    parser.add_argument("--recipes", nargs="+", default=["default", "semantic"])
    parser.add_argument("--parts", action="store_true", help=f"also {', '.join(PARTS)}, and each step")
    parser.add_argument(
        "--baselines",
        nargs="+",
        default=["bm25", "bm25-bigram"],
        help="the first is compared with",
    )
    parser.add_argument("--probes", action="store_true", help="also the probes, by the first recipe")
    chosen = parser.parse_args()
    if not chosen.evals or not Path(chosen.evals).is_dir():
        parser.error("give the harness's folder by --evals, or in the environment as EVALS")
    return chosen


def main() -> None:
    """Run what the command line asks for and print it."""
    parser = argparse.ArgumentParser(description="A retrieval evaluation harness against a real server.")
    chosen = arguments(parser)
    harness = Harness(Path(chosen.evals))
    with trying(), serving(chosen.embedder) as servers:
        for name in chosen.data:
            print(measure(harness, harness.load(name), servers, chosen), end="\n\n", flush=True)
        for embedder, server in servers.items():
            if chosen.probes:
                print(probe(harness, embedder, server, chosen.recipes[0]), end="\n\n")
            sums = server.sums
            print(f"{embedder}: contributions add up to the score of each of {sums.hits} hits", end="")
            print(f", within {sums.furthest:.1e}", flush=True)


if __name__ == "__main__":
    main()
