"""A replica's memories asked for as a server's are: the same requests and responses, with no server.

A command that can ask MemoryService can ask this. What a device cannot know is left out: etags, the stamps
of fields, revisions, who else made a change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from google.protobuf.struct_pb2 import Value
from google.rpc import code_pb2

from client_sync import journal
from client_sync.copies import updated_at
from client_sync.errors import ReplicaUnwritable
from client_sync.journal import JournalEntry
from client_sync.replica import Replica
from client_sync.search import Hit
from scrubjay import v1
from scrubjay.errors import FieldViolation, InvalidField, ScrubjayError, check
from scrubjay.filters import Matcher, matcher
from scrubjay.filters import from_message as filter_from_message
from scrubjay.memory import (
    SUBJECT_FIELDS,
    JsonValue,
    Memory,
    MemoryId,
    Micros,
    PrivacyLevel,
    canonical_json,
    id_bytes,
)
from scrubjay.merge import KEYED_FIELDS, State, get, is_register
from scrubjay.stamp import CommitStamp, unpack_field_stamps
from scrubjay.validity import is_memory_id
from scrubjay.wire import from_message, to_message, to_timestamp, to_value

_BEHIND_ALL = 1 << 62
_MOST_WORDS = 5
_TIMES = ("valid_from", "valid_to", "expires_at")


@dataclass(frozen=True, slots=True)
class LocalMemories:
    """MemoryService of one replica. Every method raises what the replica raises, and InvalidField for what
    only a server can do."""

    replica: Replica

    def Add(self, request: v1.AddRequest) -> v1.AddResponse:
        """Store memories, each one by itself; a file that can't be written any more ends it."""
        response = v1.AddResponse()
        unwritable: v1.ItemError | None = None
        for draft in request.memories:
            result = response.results.add()
            try:
                if unwritable is None:
                    result.memory.CopyFrom(self._add(draft))
            except ScrubjayError as error:
                result.error.CopyFrom(_item_error(error))
            except ReplicaUnwritable as error:
                unwritable = v1.ItemError(code=code_pb2.UNAVAILABLE, message=str(error))
            if unwritable is not None:
                result.error.CopyFrom(unwritable)
        return response

    def _add(self, draft: v1.Memory) -> v1.Memory:
        check(*self._strangers(draft))
        client = self.replica.identity.client_id
        wanted = from_message(draft, memory_id=MemoryId(""), owner=client, now=Micros(0))
        stored = self.replica.add(
            wanted.content,
            memory_id=wanted.id or None,
            agent_id=wanted.agent_id,
            run_id=wanted.run_id,
            scope=wanted.scope,
            category=wanted.category,
            tags=wanted.tags,
            metadata=wanted.metadata,
            source=wanted.source,
            confidence=wanted.confidence,
            privacy_level=wanted.privacy_level,
            pinned=wanted.pinned,
            created_at=wanted.created_at if draft.HasField("created_at") else None,
            valid_from=wanted.valid_from,
            valid_to=wanted.valid_to,
            expires_at=wanted.expires_at,
            superseded_by=wanted.superseded_by,
        )
        return self._message(stored)

    def Get(self, request: v1.GetRequest) -> v1.GetResponse:
        """One memory, and count that it was looked at."""
        found = self.peek(request.id)
        self.replica.touch(found.id)
        return v1.GetResponse(memory=found)

    def peek(self, memory_id: str) -> v1.Memory:
        """One memory, which counts for nothing."""
        return self._message(self.replica.get(memory_id))

    def List(self, request: v1.ListRequest) -> v1.ListResponse:
        """A page of memories, newest first."""
        before = _read_place(request.page_token) if request.page_token else None
        found = self.replica.list(
            scopes=request.scopes, matches=self._matches(request), limit=request.page_size, before=before
        )
        full = len(found) == request.page_size
        token = f"{found[-1].created_at}.{found[-1].id}" if full else ""
        return v1.ListResponse(memories=map(self._message, found), next_page_token=token)

    def Search(self, request: v1.SearchRequest) -> v1.SearchResponse:
        """The best hits by words."""
        if request.recipe not in ("", "default"):
            raise InvalidField.of(
                "recipe",
                f"is {request.recipe!r}; a device searches by words: leave it out, or ask the server",
            )
        if request.HasField("as_of"):
            raise InvalidField.of("as_of", "is for a server: a device searches what it holds now")
        hits = self.replica.search(
            request.query, top_k=request.top_k, scopes=request.scopes, matches=self._matches(request)
        )
        return v1.SearchResponse(hits=[_hit(hit, request.explain) for hit in hits], scopes=request.scopes)

    def Update(self, request: v1.UpdateRequest) -> v1.UpdateResponse:
        """Change what the mask names."""
        if request.etag:
            raise InvalidField.of("etag", "is for a server: a device writes at once, and merges later")
        check(*(_path_violation(path) for path in request.update_mask.paths))
        old = self.replica.get(request.memory.id)
        new = from_message(request.memory, memory_id=old.id, owner=old.owner_client_id, now=old.created_at)
        changed = {
            register: get(new, register)
            for field in dict.fromkeys(request.update_mask.paths)
            for register in _registers_of(field, old, new)
        }
        changed = {
            register: value
            for register, value in changed.items()
            if canonical_json(get(old, register)) != canonical_json(value)
        }
        stored = self.replica.update(old.id, changed)
        results = [v1.FieldResult(field=register, outcome=v1.OUTCOME_APPLIED) for register in changed]
        return v1.UpdateResponse(memory=self._message(stored), results=results)

    def Delete(self, request: v1.DeleteRequest) -> v1.DeleteResponse:
        """Delete one memory for ever."""
        self.replica.delete(request.id)
        return v1.DeleteResponse()

    def Restore(self, request: v1.RestoreRequest) -> v1.RestoreResponse:
        """Nothing: a device writes an old value again."""
        raise InvalidField.of(
            "memory_id", f"{request.memory_id!r} is on a device; undo it on a server, or write the old value"
        )

    def History(self, request: v1.HistoryRequest) -> v1.HistoryResponse:
        """A page of what happened as this device saw it, to one memory or to all, newest first."""
        check(*self._strangers(request), *self._narrower(request))
        before = int(request.page_token or _BEHIND_ALL)
        memory_id = MemoryId(request.memory_id) if is_memory_id(request.memory_id) else None
        found: Sequence[tuple[int, JournalEntry]] = ()
        if memory_id or not request.memory_id:
            with self.replica.file.reading() as sql:
                found = journal.page(sql, memory_id, before=before, limit=request.page_size)
        if not found and not request.page_token and request.memory_id:
            self.replica.get(request.memory_id)
        token = str(found[-1][0]) if len(found) == request.page_size else ""
        entries = [self._entry(position, entry) for position, entry in found]
        return v1.HistoryResponse(entries=entries, next_page_token=token)

    # --- whose it is ------------------------------------------------------------------------------

    def _strangers(self, request: _Named) -> Iterator[FieldViolation]:
        """What is wrong with a request about somebody else than the one whose replica this is."""
        subject = self.replica.identity.subject
        for field in SUBJECT_FIELDS[: SUBJECT_FIELDS.index(f"{subject.kind}_id") + 1]:
            name = getattr(request, field)
            if name and (field, name) != (f"{subject.kind}_id", subject.name):
                yield FieldViolation(
                    field, f"is {name!r}; this device holds memories of {subject.kind} {subject.name!r} alone"
                )

    def _narrower(self, request: _Named) -> Iterator[FieldViolation]:
        for field, name in self._narrowing(request).items():
            yield FieldViolation(
                field, f"is {name!r}; this device does not keep that one's history apart: leave it out"
            )

    def _narrowing(self, request: _Named) -> dict[str, str]:
        own = f"{self.replica.identity.subject.kind}_id"
        return {field: name for field in SUBJECT_FIELDS if field != own and (name := getattr(request, field))}

    def _matches(self, request: v1.ListRequest | v1.SearchRequest) -> Matcher | None:
        check(*self._strangers(request))
        narrowing = self._narrowing(request)
        passes = matcher(filter_from_message(request.filter)) if request.HasField("filter") else None
        if not narrowing:
            return passes

        def matches(memory: Memory, changed_at: Micros) -> bool:
            mine = all(getattr(memory, field) == name for field, name in narrowing.items())
            return mine and (passes is None or passes(memory, changed_at))

        return matches

    # --- values as messages -----------------------------------------------------------------------

    def _message(self, memory: Memory) -> v1.Memory:
        with self.replica.file.reading() as sql:
            row = sql.execute(
                "SELECT commit_stamp, field_stamps FROM rows WHERE id = ?", (id_bytes(memory.id),)
            ).fetchone()
        if row is None:  # deleted in between, by another program
            return _shown(memory, memory.created_at)
        return _shown(memory, updated_at(row[0], State(memory, unpack_field_stamps(row[1]))))

    def _entry(self, position: int, entry: JournalEntry) -> v1.HistoryEntry:
        return v1.HistoryEntry(
            operation_id=str(position),
            memory_id=entry.memory_id,
            kind=v1.OperationKind.ValueType(entry.kind),
            changes=[
                v1.FieldChange(
                    field=field,
                    old_value=_history_value(field, old),
                    new_value=_history_value(field, new),
                    outcome=v1.Outcome.ValueType(entry.outcome),
                )
                for field, old, new in entry.changes
            ],
            client_id=self.replica.identity.client_id if entry.origin == "here" else "",
            outcome=v1.Outcome.ValueType(entry.outcome),
            commit_time=to_timestamp(entry.at),
        )


_Named = v1.Memory | v1.ListRequest | v1.SearchRequest | v1.HistoryRequest


def _item_error(error: ScrubjayError) -> v1.ItemError:
    return v1.ItemError(code=error.code, reason=error.reason, message=str(error))


def _read_place(token: str) -> tuple[Micros, MemoryId]:
    created_at, _, memory_id = token.partition(".")
    return Micros(int(created_at)), MemoryId(memory_id)


def _path_violation(path: str) -> FieldViolation | None:
    known = is_register(path) or path in KEYED_FIELDS
    return None if known else FieldViolation(path, "is no field to write")


def _registers_of(field: str, old: Memory, new: Memory) -> list[str]:
    """The registers that a path of a mask names: all tags, all keys, or the one."""
    if field not in KEYED_FIELDS:
        return [field]
    keys = old.tags | new.tags if field == "tags" else {*old.metadata, *new.metadata}
    return [f"{field}.{key}" for key in sorted(keys)]


def _shown(memory: Memory, changed_at: Micros) -> v1.Memory:
    message = to_message(memory, CommitStamp(0))
    message.ClearField("etag")
    message.updated_at.CopyFrom(to_timestamp(changed_at))
    return message


def _hit(hit: Hit, explain: bool) -> v1.SearchHit:
    message = v1.SearchHit(memory=_shown(hit.memory, hit.updated_at), score=hit.score)
    if explain:
        message.explanation.CopyFrom(
            v1.Explanation(
                sentence=_sentence(hit),
                contributions=[
                    v1.Contribution(arm=each.arm, measure=each.measure, value=each.value)
                    for each in hit.contributions
                ],
                matched_terms=hit.matched_terms,
                scope=hit.scope,
            )
        )
    return message


def _sentence(hit: Hit) -> str:
    share = next(each.measure for each in hit.contributions if each.arm == "lexical")
    words = ", ".join(hit.matched_terms[:_MOST_WORDS]) + (
        " …" if len(hit.matched_terms) > _MOST_WORDS else ""
    )
    return f"It shares {words} with the query, {share:.0%} of its words by weight."


def _history_value(field: str, value: JsonValue) -> Value | None:
    """A value as people write it: times as RFC 3339, the privacy level by name."""
    if value is None:
        return None
    if field in _TIMES and isinstance(value, int):
        return Value(string_value=to_timestamp(Micros(value)).ToJsonString())
    if field == "privacy_level" and isinstance(value, int):
        return Value(string_value=PrivacyLevel(value).name)
    return to_value(value)
