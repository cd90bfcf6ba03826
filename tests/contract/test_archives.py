"""Files that may come from anywhere: one that is not what an export wrote is refused with the line that is
wrong, and nothing of it is stored."""

from __future__ import annotations

import gzip
import json
import uuid
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scrubjay.errors import InvalidField
from scrubjay.memory import JsonValue
from scrubjay.stamp import time_text
from server.archive import file
from server.archive.lines import Seal
from tests.archiving import Importing, export, lines_of, rows_of
from tests.devices import Server
from tests.planted import add, plant

Line = dict[str, Any]


@pytest.fixture
def backend() -> str:
    """What is judged before anything is stored does not depend on the database."""
    return "sqlite"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, shard_file: Path) -> list[Line]:
    """The lines of an export that has one of every kind at least."""
    folder = tmp_path_factory.mktemp("written")
    path = folder / "shard.db"
    path.write_bytes(shard_file.read_bytes())
    with Server(f"sqlite:///{path}", folder) as server:
        plant(server)
        plant(server, "bob")
        add(server, "Bob works at Acme.")
        return [json.loads(line) for line in lines_of(export(server, folder / "data"))]


def sealed(lines: Sequence[Line | bytes]) -> bytes:
    """A file of these lines, with a manifest that fits them."""
    seal, text = Seal(), b""
    for n, line in enumerate(lines[:-1]):
        encoded = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
        kind = str(line.get("kind", "?")) if isinstance(line, dict) else "?"
        seal.add(encoded, kind if n else "")
        text += encoded
    return gzip.compress(text + json.dumps(seal.manifest()).encode() + b"\n", 1)


def first(lines: list[Line], kind: str) -> int:
    """The place of the first line of a kind."""
    return next(n for n, line in enumerate(lines) if line.get("kind") == kind)


def changed(lines: list[Line], kind: str, **fields: object) -> tuple[list[Line], int]:
    """The lines with fields of the first one of a kind changed, and its number."""
    copied, at = json.loads(json.dumps(lines)), first(lines, kind)
    for path, value in fields.items():
        target, names = copied[at], path.split("__")
        for name in names[:-1]:
            target = target[name]
        target[names[-1]] = value
    return copied, at + 1


FUTURE = time_text(5_000_000_000_000 << 16)
OF_FUTURE = f"{FUTURE}.{'ab' * 16}"
NOBODY = "0199cccc-0000-7000-8000-000000000001"
WRONG: list[tuple[str, dict[str, object], str]] = [
    ("memory", {"memory__content": "x" * (16 * 1024 + 1)}, "content: has 16385 bytes"),
    ("memory", {"memory__content": "a\0b"}, "holds a NUL character"),
    ("memory", {"memory__content": "a\ud800b"}, "holds a NUL character or a lone surrogate"),
    ("memory", {"memory__content": " "}, "content: is blank"),
    ("memory", {"memory__content": 7}, "memory is no Memory"),
    ("memory", {"memory__unheard_of": 7}, "memory is no Memory"),
    ("memory", {"memory__id": "x"}, "id: 'x' is no UUID"),
    ("memory", {"memory__user_id": "eve"}, "is of another subject, 'user:eve'"),
    ("memory", {"memory__privacy_level": "PRIVACY_LEVEL_LOCAL_ONLY"}, "LOCAL_ONLY never leaves"),
    ("memory", {"memory__created_at": "yesterday"}, "memory is no Memory"),
    ("memory", {"memory__metadata": {"user_id": "eve"}}, "set the field user_id instead"),
    ("memory", {"memory__etag": FUTURE}, "in the future"),
    ("memory", {"memory__etag": "1"}, "memory.etag is no commit stamp"),
    ("memory", {"field_stamps": {}}, "field_stamps has none of"),
    ("memory", {"field_stamps__content": OF_FUTURE}, "in the future"),
    ("memory", {"field_stamps__content": "x"}, "field_stamps.content: not a stamp"),
    ("memory", {"field_stamps__unheard": OF_FUTURE}, "'unheard' is no register"),
    ("memory", {"field_commits": {}}, "field_commits has no 'created'"),
    ("memory", {"field_commits__created": FUTURE}, "in the future"),
    ("memory", {"entities": [{"entity_id": NOBODY, "normal": "x", "name": "x", "kind": 9}]}, "kind '9' is"),
    ("memory", {"entities": [{"entity_id": "x", "normal": "x", "name": "x", "kind": 2}]}, "is no UUID"),
    ("memory", {"entities": [7]}, "entities holds what is no object"),
    (
        "memory",
        {"relations": [{"subject_id": NOBODY, "object_id": NOBODY, "relation": "knows"}], "entities": []},
        "relations names what entities does not",
    ),
    ("memory", {"accesses": {"by_replica": [{"replica_id": "x"}]}}, "replica_id is no replica's id"),
    ("memory", {"accesses": {"by_replica": [{"replica_id": "ab" * 16, "count": -1}]}}, "no whole number"),
    ("history", {"entry__commit_stamp": FUTURE}, "in the future"),
    ("history", {"entry__kind": "OPERATION_KIND_UNSPECIFIED"}, "entry.kind '0' is none of"),
    ("history", {"entry__operation_id": "x"}, "operation_id 'x' is no UUID"),
    ("history", {"entry__replica_id": "abcd"}, "replica_id is no replica's id"),
    ("history", {"registers": [["00", "", 1, []]]}, "registers is no stamp"),
    ("history", {"registers": [[7]]}, "no group of writes"),
    ("history", {"registers": [["00" * 24, "", 1, [["privacy_level", None, "x"]]]]}, "can't have had"),
    ("history", {"registers": [["00" * 24, "", 1, [["valid_from", None, 10**18]]]]}, "can't have had"),
    ("history", {"registers": [["00" * 24, "", 1, [["source", None, {"x": 1}]]]]}, "can't have had"),
    ("history", {"registers": [["00" * 24, "", 1, [["x", None, 1]]]]}, "'x' is no register"),
    ("history", {"registers": [["00" * 24, "", 9, []]]}, "registers '9' is none of"),
    ("history", {"deleted": {"content": "x", "user_id": "eve"}}, "is no UUID"),
    ("deletion", {"memory_id": "x"}, "is no UUID"),
    ("deletion", {"stamp": OF_FUTURE}, "in the future"),
    ("deletion", {"commit_stamp": None}, "commit_stamp is no commit stamp"),
    ("waiting", {"operation": {}}, "operation: "),
    ("waiting", {"operation_id": NOBODY}, "operation is no edit of memory_id"),
    ("waiting", {"replica_id": ""}, "replica_id is no replica's id"),
    ("recent_messages", {"messages": [{"role": "user", "text": "x" * 70_000}]}, "text has more than 65536"),
    ("recent_messages", {"messages": [7] * 11}, "messages has 11 members"),
    ("request", {"request": {}}, "request is of another subject"),
    ("request", {"rpc": "Search"}, "is no Add"),
    ("request", {"role": "KING"}, "role 'KING' is no role"),
    ("subject", {"head": FUTURE}, "in the future"),
    ("subject", {"agent_id": "x"}, "names no subject"),
    ("subject", {"user_id": "x" * 300}, "user_id: has 300 bytes"),
    ("subject", {"horizon": FUTURE}, "behind the end of its subject's stream"),
    ("settings", {"write_settings__policy": 7}, "write_settings.policy: is 7"),
    ("settings", {"quotas__memories": "-1"}, "quotas.memories: is -1"),
    ("settings", {"write_settings__custom_instructions": "x" * 9000}, "has 9000 bytes"),
]


@pytest.mark.parametrize(("kind", "fields", "what"), WRONG)
def test_a_line_that_no_export_writes_is_named(
    written: list[Line], server: Server, tmp_path: Path, kind: str, fields: dict[str, object], what: str
) -> None:
    lines, number = changed(written, kind, **fields)
    doing = Importing(server, tmp_path).run(sealed(lines), validate_only=True)
    assert doing.result is not None
    problem = doing.result.import_tenant.problems[0]
    assert problem.line == number, problem
    assert what in problem.description


def moved(lines: list[Line], kind: str, to: int | None = None) -> tuple[list[Line | bytes], int]:
    """The lines with the first one of a kind a second time, and where that is."""
    at = len(lines) - 1 if to is None else to
    return [*lines[:at], lines[first(lines, kind)], *lines[at:]], at + 1


def buried_and_alive(lines: list[Line]) -> tuple[list[Line | bytes], int]:
    found = json.loads(json.dumps(lines))
    found[first(lines, "deletion")]["memory_id"] = lines[first(lines, "memory")]["memory"]["id"]
    return found, first(lines, "deletion") + 1


def of_no_subject(lines: list[Line]) -> tuple[list[Line | bytes], int]:
    at = first(lines, "subject")
    return [*lines[:at], *lines[at + 1 :]], at + 1


def replaced(at: int, line: bytes) -> Callable[[list[Line]], tuple[list[Line | bytes], int]]:
    return lambda lines: ([*lines[:at], line, *lines[at + 1 :]], at + 1)


FILES: list[tuple[Callable[[list[Line]], tuple[list[Line | bytes], int]], str]] = [
    (lambda lines: ([{**lines[0], "version": 2}, *lines[1:]], 1), "is of the version 2; this server reads 1"),
    (lambda lines: ([{**lines[0], "format": "scrubjay.subject"}, *lines[1:]], 1), "no first line"),
    (replaced(5, b'{"kind": "memory"\n'), "is no JSON"),
    (replaced(5, b"[" * 100_000 + b"\n"), "is no JSON"),
    (replaced(5, b'{"kind": "memory", "x": NaN}\n'), "is no JSON"),
    (replaced(5, b'{"kind": "memory", "x": 1e999}\n'), "is no JSON"),
    (replaced(5, b'{"kind": "memory", "x": 99999999999999999999}\n'), "is no JSON"),
    (replaced(5, b"7\n"), "is no JSON object"),
    (replaced(5, b"\xff\xfe\n"), "is no JSON"),
    (replaced(5, b'{"kind": "device"}\n'), "'device' is no kind of line that this version knows"),
    (replaced(5, b'{"kind": 7}\n'), "kind is no text"),
    (lambda lines: moved(lines, "subject"), "is there already"),
    (lambda lines: moved(lines, "settings"), "is a second one"),
    (lambda lines: moved(lines, "memory"), "than the lines it is among"),
    (lambda lines: moved(lines, "memory", 4), "is there already"),
    (lambda lines: moved(lines, "history", first(lines, "history")), "is there already"),
    (lambda lines: moved(lines, "waiting", first(lines, "waiting")), "is there already"),
    (lambda lines: moved(lines, "recent_messages", first(lines, "recent_messages")), "is there already"),
    (lambda lines: moved(lines, "request", first(lines, "request")), "is there already"),
    (buried_and_alive, "is there already"),
    (of_no_subject, "stands behind no line of a subject"),
]


@pytest.mark.parametrize(("change", "what"), FILES)
def test_a_file_that_no_export_writes_is_refused_and_leaves_nothing(
    written: list[Line],
    server: Server,
    shard_url: str,
    tmp_path: Path,
    change: Callable[[list[Line]], tuple[list[Line | bytes], int]],
    what: str,
) -> None:
    lines, number = change(written)
    with pytest.raises(InvalidField) as refused:
        Importing(server, tmp_path).run(sealed(lines))
    said = refused.value.message
    assert said.startswith("upload_id: line "), said
    assert what in said
    assert int(said.removeprefix("upload_id: line ").partition(":")[0]) - number in (0, 1)
    assert rows_of(server, shard_url) == {}
    assert not [path for path in (tmp_path / "imports").rglob("*") if path.is_file()]


def bomb(size: int, unit: bytes = b" ") -> bytes:
    """A small file of a long line."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = unit * (1 << 20)
    return b"".join(packer.compress(block) for _ in range(size >> 20)) + packer.flush()


def test_a_file_that_is_cut_damaged_or_blown_up_is_refused(
    written: list[Line], server: Server, shard_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "MOST_LINE_BYTES", 1 << 22)
    whole = sealed(written)
    text = gzip.decompress(whole)
    lines = text.splitlines(keepends=True)
    last = len(lines)
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0x55
    wrong = {
        "cut": (whole[: len(whole) // 2], "the file is cut off or damaged here"),
        "cut at a line": (gzip.compress(b"".join(lines[:-1])), f"line {last}: is not there"),
        "cut in a line": (gzip.compress(text[:-9]), f"line {last}: "),
        "damaged": (bytes(damaged), "line "),
        "changed": (
            gzip.compress(text.replace(b"I live in", b"I lived in")),
            f"line {last}: has another digest",
        ),
        "counted wrong": (gzip.compress(text.replace(lines[2], b"")), "line "),
        "more behind it": (gzip.compress(text + b"{}\n"), f"line {last + 1}: stands behind the manifest"),
        "another member": (whole + gzip.compress(b"{}\n"), f"line {last + 1}: stands behind the manifest"),
        "rubbish behind it": (whole + b"rubbish", "cut off or damaged"),
        "a bomb": (bomb(1 << 26), "line 1: has more than"),
        "a bomb of lines": (bomb(1 << 23, b"\n"), "line 1: is no JSON"),
        "nothing": (gzip.compress(b""), "line 1: is not there"),
        "no gzip": (b"\x00\x01\x02", "line 1: is no JSON"),
    }
    for name, (data, what) in wrong.items():
        with pytest.raises(InvalidField) as refused:
            Importing(server, tmp_path / name).run(data)
        assert what in refused.value.message, (name, refused.value.message)
        assert rows_of(server, shard_url) == {}
    Importing(server, tmp_path / "plain").run(text)  # that it is packed does not matter
    assert rows_of(server, shard_url)["memories"] == written[-1]["counts"]["memory"]


def test_a_dry_run_names_the_first_problems_and_stores_nothing(
    written: list[Line], server: Server, shard_url: str, tmp_path: Path
) -> None:
    lines = [{**line, "field_commits": {}} if line.get("kind") == "memory" else line for line in written]
    doing = Importing(server, tmp_path).run(sealed(lines), validate_only=True)
    assert doing.result is not None
    problems = doing.result.import_tenant.problems
    memories = [n for n, line in enumerate(lines, 1) if line.get("kind") == "memory"]
    assert [one.line for one in problems] == memories[:20]
    assert rows_of(server, shard_url) == {}
    many = [*lines[:-1], *([{"kind": "x"}] * 100), lines[-1]]
    doing = Importing(server, tmp_path).run(sealed(many), validate_only=True)
    assert doing.result is not None
    assert len(doing.result.import_tenant.problems) == 20


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_changed_in_a_line_is_refused_or_can_be_stored(
    written: list[Line], server: Server, shard_url: str, tmp_path: Path, data: st.DataObject
) -> None:
    lines: list[Line] = json.loads(json.dumps(written))
    for _ in range(data.draw(st.integers(1, 3))):
        target: Any = lines[data.draw(st.integers(0, len(lines) - 2))]
        while True:
            names = sorted(target) if isinstance(target, dict) else range(len(target))
            name = data.draw(st.sampled_from(names))
            inner = target[name]
            if not inner or not isinstance(inner, dict | list) or data.draw(st.booleans()):
                break
            target = inner
        target[name] = data.draw(JSON)
    doing, plan = Importing(server, tmp_path).begin(sealed(lines))
    doing.operation = replace(doing.operation, operation_id=str(uuid.uuid4()))
    task: Any = doing
    with suppress(InvalidField):
        for phase in plan.phases[:3]:
            phase.run(task)
    plan.roll_back(task)
    assert rows_of(server, shard_url) == {}


JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([FUTURE, OF_FUTURE, NOBODY, "00" * 24, "1970-01-01T00:00:00Z"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)
