"""The export of one subject: everything that the server holds of it, and nothing of anybody else."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

import pytest

from scrubjay import v1
from scrubjay.memory import Subject
from scrubjay.stamp import Stamp
from server.archive.lines import MANIFEST
from server.erasing import Eraser
from server.router import Router
from server.services.subjects import Subjects
from tests.devices import ALICE, Server
from tests.planted import MARK, add, counted, plant

DEVICE = v1.Device(device_id="phone-1", display_name="a phone")


def export(server: Server, subject: Subject = ALICE) -> list[str]:
    eraser = Eraser({"main": server.shard}, server.snapshots, server.archives, lambda: server.now)
    subjects = Subjects(Router({"main": server.shard}), eraser, server.archives, lambda: server.now)
    return list(subjects.export(server.tenant, subject, [DEVICE]))


def of_kind(lines: list[str], kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in lines[1:-1]]
    return [line for line in found if line["kind"] == kind]


def test_an_export_says_what_it_is_and_what_is_in_it(server: Server) -> None:
    plant(server)
    lines = export(server)
    head, manifest = json.loads(lines[0]), json.loads(lines[-1])
    assert head == {
        "format": "scrubjay.subject",
        "version": 1,
        "tenant_id": "acme",
        "user_id": "alice",
        "exported_at": head["exported_at"],
    }
    assert manifest["kind"] == MANIFEST
    assert manifest["sha256"] == hashlib.sha256("".join(lines[:-1]).encode()).hexdigest()
    assert manifest["counts"] == Counter(json.loads(line)["kind"] for line in lines[1:-1])
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in lines)


def test_everything_is_in_it_private_memories_too(server: Server, shard_url: str) -> None:
    plant(server)
    plant(server, "bob")
    stored, lines = counted(shard_url), export(server)
    counts = json.loads(lines[-1])["counts"]
    of_table = {"memory": "memories", "history": "history", "deletion": "graveyard", "waiting": "waiting"}
    for kind, table in {**of_table, "recent_messages": "recent_messages", "request": "jobs"}.items():
        assert counts[kind] == stored[table], kind
    assert counts["device"] == 1
    memories = of_kind(lines, "memory")
    levels = {line["memory"]["privacy_level"] for line in memories}
    assert levels == {"PRIVACY_LEVEL_SHARED", "PRIVACY_LEVEL_PRIVATE"}
    assert sum(len(line.get("entities", [])) for line in memories) == stored["mentions"]
    assert sum(len(line.get("relations", [])) for line in memories) == stored["relations"]
    assert sum("accesses" in line for line in memories) == stored["access_counts"]
    assert all(Stamp.parse(stamp) for line in memories for stamp in line["field_stamps"].values())
    assert "bob" not in "".join(lines)
    assert any(MARK in line["deleted"]["content"] for line in of_kind(lines, "history") if "deleted" in line)
    assert MARK in of_kind(lines, "request")[0]["request"]["messages"][0]["content"]
    assert MARK in of_kind(lines, "recent_messages")[0]["messages"][0]["text"]


def test_pages_join_without_a_gap(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.shard.exporting.PAGE", 3)
    made = add(server, *(f"fact {n}" for n in range(20)))
    for memory in made[::4]:
        server.memories.delete(v1.DeleteRequest(id=memory.id), server.service())
    lines = export(server)
    living = {line["memory"]["id"] for line in of_kind(lines, "memory")}
    dead = {line["memory_id"] for line in of_kind(lines, "deletion")}
    assert living | dead == {memory.id for memory in made}
    assert len(of_kind(lines, "history")) == 25


def test_of_nobody_there_is_nothing(server: Server) -> None:
    lines = export(server, Subject("run", "nobody"))
    assert json.loads(lines[-1])["counts"] == {"device": 1}


def test_of_an_erased_subject_only_the_ids_of_its_memories_are_left(server: Server) -> None:
    plant(server)
    before = export(server)
    eraser = Eraser({"main": server.shard}, server.snapshots, server.archives, lambda: server.now)
    eraser.erase(server.tenant, ALICE, server.now)
    lines = export(server)
    assert set(json.loads(lines[-1])["counts"]) == {"deletion", "device"}
    assert MARK in "".join(before)
    assert MARK not in "".join(lines)
