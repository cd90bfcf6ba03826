"""ReindexTenant: a tenant goes over to another embedding space while it serves.

    embed     memories get vectors of the new space beside the old ones, in rounds, since writes go on by the
              old one; in the last rounds what is written is embedded in both by the call that writes it
    switch    the catalogue names the new space
    settle    other servers, and calls under way, go by the old space a little longer: what they write is
              embedded in the new one, and what others write in the new one is embedded in the old one
    sweep     the old vectors go

A memory that has no vector in the space that is searched is found by its words all the while, see
``server.index.resident``. What is written by the old space even later is found by ``server.mending``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from scrubjay import v1
from scrubjay.errors import Unavailable
from scrubjay.memory import Micros
from server.operations.conductor import Phase, Plan, Task
from server.operations.filling import Filling, making
from server.providers.embedders import Embedders
from server.shard import Shard
from tenants.registry import Registry

FEW = 200
"""Memories that a round may leave to the next one, in which writers embed in both spaces."""
MOST_ROUNDS = 5
"""After so many the writers are slowed down to the new model whatever is left: else it might never end."""
SETTLE_SECONDS = 40
"""Other servers go by a tenant as they read it up to 30 seconds ago; a call that began then takes a while."""
ALONE_SECONDS = 2
"""The same where no other server serves the tenant."""
ROUND_SECONDS = 0.1
"""Between two rounds while it settles: so long what others wrote is found by its words alone."""


class Reindexer:
    """Carries tenants over to another space. ``shards`` are all by name; ``clock`` gives microseconds."""

    def __init__(
        self,
        shards: Mapping[str, Shard],
        registry: Registry,
        embedders: Embedders,
        clock: Callable[[], Micros],
    ) -> None:
        self._shards = shards
        self._registry = registry
        self._embedders = embedders
        self._clock = clock

    def plan(self) -> Plan:
        """The phases of ReindexTenant."""
        return Plan(
            (
                Phase("embed", self.embed),
                Phase("switch", self.switch, cancellable=False),
                Phase("settle", self.settle, cancellable=False),
                Phase("sweep", self.sweep, cancellable=False),
            ),
            self.roll_back,
        )

    def embed(self, task: Task) -> None:
        """Give every memory a vector of the new space."""
        space, shard = _to(task), self._shard(task)
        incarnation = task.operation.incarnation
        task.note(from_space=task.tenant.space)
        done, total = shard.count_embedded(incarnation, space)
        task.report(done, total)

        def report(count: int) -> None:
            nonlocal done, total
            done += count
            total = max(total, done)
            task.report(done, total)

        filling = Filling(shard, incarnation, space, making(self._embedders.in_space(space)))
        for _ in range(MOST_ROUNDS):
            if filling.round(report) <= FEW:
                break
        with self._embedders.ahead(incarnation, space) as ahead:
            filling.make = ahead.make
            for _ in range(MOST_ROUNDS):
                if not filling.round(report):
                    break

    def switch(self, task: Task) -> None:
        """Let the catalogue name the new space."""
        space, shard = _to(task), self._shard(task)
        incarnation = task.operation.incarnation
        with self._embedders.ahead(incarnation, space) as ahead:
            # What a model that is gone leaves behind is found by its words until it is back.
            with suppress(Unavailable):
                Filling(shard, incarnation, space, ahead.make).round(lambda _count: task.report(0))
            task.note(switched_at=self._clock())
            self._registry.reindexing.switch(task.operation, space)

    def settle(self, task: Task) -> None:
        """Embed what is written by the old space still, and for those who search in it what is not."""
        notes, space, shard = task.operation.notes or {}, _to(task), self._shard(task)
        incarnation = task.operation.incarnation
        seconds = ALONE_SECONDS if shard.alone else SETTLE_SECONDS
        began, until = int(str(notes["switched_at"])), int(str(notes["switched_at"])) + seconds * 1_000_000
        with self._embedders.ahead(incarnation, space) as ahead:
            fillings = [Filling(shard, incarnation, space, ahead.make)]
            if not shard.alone and (old := str(notes["from_space"])) in self._embedders.dimensions:
                fillings.append(Filling(shard, incarnation, old, making(self._embedders.in_space(old))))
            over = False
            while not over:
                now = self._clock()
                over = now >= until
                task.report(min(max(now - began, 0) // 1_000_000, seconds), seconds)
                for filling in fillings:
                    filling.round(lambda _count: task.report(task.operation.done, seconds))
                time.sleep(0 if over else ROUND_SECONDS)

    def sweep(self, task: Task) -> None:
        """Delete the old vectors."""
        notes, space = task.operation.notes or {}, _to(task)
        self._drop(task, str(notes["from_space"]))
        self._shard(task).discard_other(task.operation.incarnation, space)
        embedded, _ = self._shard(task).count_embedded(task.operation.incarnation, space)
        result = v1.ReindexTenantResult(
            from_space=str(notes["from_space"]), to_space=space, memory_count=embedded
        )
        task.answer(v1.TenantOperationResult(reindex_tenant=result))

    def roll_back(self, task: Task) -> None:
        """Delete the vectors of the new space."""
        self._drop(task, _to(task))

    def _drop(self, task: Task, space: str) -> None:
        shard, incarnation = self._shard(task), task.operation.incarnation
        count, after = shard.drop_vectors(incarnation, space, None)
        task.report(count)
        while after is not None:
            more, after = shard.drop_vectors(incarnation, space, after)
            count += more
            task.report(count)

    def _shard(self, task: Task) -> Shard:
        return self._shards[task.tenant.shard]


def _to(task: Task) -> str:
    return str(task.operation.asked["space"])
