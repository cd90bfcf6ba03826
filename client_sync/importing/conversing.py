"""Conversations through a server, which learns from them by a policy of writing."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from client_sync.cli import RemoteMemories
from client_sync.importing.chatgpt import Conversation, Message
from client_sync.importing.marks import Mark, Marks, Sending, digest, mark
from client_sync.importing.patience import patiently
from client_sync.importing.skipping import Reason, Skipped
from client_sync.importing.tally import Tally
from scrubjay import v1
from scrubjay.errors import DeadlineExceeded, InvalidField, RequestIdReused, ScrubjayError
from scrubjay.memory import Micros, id_bytes
from scrubjay.validity import MAX_CONTENT_BYTES
from scrubjay.wire import to_timestamp, to_value

MAX_MESSAGES = 100
"""Messages in one Add, as the contract has it."""
MAX_TEXT_BYTES = 1024 * 1024
"""Of one Add: a quarter of what a server takes in one message."""
ADD_SECONDS = 120.0
"""How long one call waits: rules take seconds for the largest. A model may take several calls."""
MODEL_SECONDS = 1200.0
"""How long a model may take for one Add before the import ends; the work goes on all the same."""
REPEATABLE = Micros(23 * 3_600_000_000)
"""How long a repeat with the same request_id is safe, with an hour for clocks that differ."""
_BETWEEN_CALLS_SECONDS = 0.2
_CLOCKS_DIFFER = 3_600_000_000
_MESSAGE = re.compile(r"messages\[(\d+)\]")
_PAGE_SIZE = 1000


class Conversations:
    """Puts conversations before the server, each message once.

    What is known to be done is in ``marks``. A call that was cut off is made again, alike: within a day the
    server knows it by its request_id, later its memories tell.
    """

    def __init__(
        self,
        remote: RemoteMemories,
        marks: Marks,
        template: v1.Memory,
        policy: v1.WritePolicy.ValueType,
        clock: Callable[[], Micros],
    ) -> None:
        self._remote = remote
        self._marks = marks
        self._template = template
        self._policy = policy
        self._clock = clock

    def put(self, conversation: Conversation, tally: Tally) -> None:
        """Have the server learn from what is new in the conversation. ScrubjayError."""
        tally.leave_out(conversation.skipped)
        taken = self._marks.taken(_marks(conversation.id, conversation.messages))
        new = [message for message in conversation.messages if mark(conversation.id, message.id) not in taken]
        tally.already_there += len(conversation.messages) - len(new)
        fit = [message for message in new if self._fits(message)]
        tally.leave_out(_too_long(message) for message in new if not self._fits(message))
        if doubtful := self._marks.sending(_marks(conversation.id, fit)):
            again = [message for message in fit if mark(conversation.id, message.id) in doubtful.marks]
            fit = [message for message in fit if message not in again]
            self._repeat(conversation.id, again, doubtful, tally)
        for piece in _pieces(fit):
            self._send(conversation.id, piece, tally)

    def _repeat(
        self, conversation_id: str, messages: Sequence[Message], doubtful: Sending, tally: Tally
    ) -> None:
        """Make a call again that may have arrived."""
        if self._is_stored(conversation_id, messages, doubtful.began_at):
            self._marks.arrived(doubtful.request_id)
            tally.already_there += len(messages)
        else:
            self._send(conversation_id, messages, tally, doubtful.request_id)

    def _fits(self, message: Message) -> bool:
        raw = self._policy == v1.WRITE_POLICY_RAW
        return not raw or len(message.text.encode()) <= MAX_CONTENT_BYTES

    def _send(
        self, conversation_id: str, piece: Sequence[Message], tally: Tally, request_id: str = ""
    ) -> None:
        """One Add, without what the server refuses of it. With a ``request_id`` it is a repeat."""
        left = list(piece)
        while left:
            # A repeat keeps its mark: it says when the first one may have arrived.
            if not request_id:
                request_id = self._request_id(conversation_id, left)
                self._marks.send(_marks(conversation_id, left), request_id, self._clock())
            try:
                response = self._add(conversation_id, left, request_id)
            except RequestIdReused:
                # It came before, with other options: what was stored then stands.
                self._marks.arrived(request_id)
                tally.already_there += len(left)
                return
            except InvalidField as error:
                self._marks.refused(request_id)
                wrong = _wrong_messages(error, len(left))
                if not wrong:
                    raise
                tally.leave_out(Skipped(left[n].place, Reason.REFUSED, why) for n, why in wrong.items())
                left = [message for n, message in enumerate(left) if n not in wrong]
                request_id = ""
            except ScrubjayError as error:
                if "operation_id" in error.metadata:  # it ended, and a repeat would be told the same
                    self._marks.failed(request_id)
                raise
            else:
                self._marks.arrived(request_id)
                tally.imported += len(left)
                for result in response.results:
                    tally.learnt += result.status == v1.ADD_STATUS_ADDED
                    tally.duplicates += result.status > v1.ADD_STATUS_ADDED
                tally.leave_out(_unused(issue, left) for issue in response.issues)
                return

    def _add(self, conversation_id: str, messages: Sequence[Message], request_id: str) -> v1.AddResponse:
        request = v1.AddRequest(
            request_id=request_id,
            messages=[_spoken(message) for message in messages],
            policy=self._policy,
            template=self._template,
            wait=True,
        )
        request.template.source.conversation_id = conversation_id
        return self._answer(request)

    def _answer(self, request: v1.AddRequest) -> v1.AddResponse:
        """The results, which a model may need several calls for. DeadlineExceeded where it needs too long."""
        add = partial(self._remote.memories.Add, timeout=ADD_SECONDS)
        until = time.monotonic() + MODEL_SECONDS
        while (response := patiently(lambda: self._remote.call(add, request))).operation_id:
            if time.monotonic() > until:
                raise DeadlineExceeded("the server is still at work on what it was sent last")
            time.sleep(_BETWEEN_CALLS_SECONDS)
        return response

    def _request_id(self, conversation_id: str, messages: Sequence[Message]) -> str:
        """The same for the same messages, unless it is known that this one failed for good."""
        policy = v1.WritePolicy.Name(self._policy)
        ids = [message.id for message in messages]
        for attempt in itertools.count():
            made = digest(self._template.user_id, policy, conversation_id, str(attempt), *ids)
            request_id = f"import-{made.hex()}"
            if not self._marks.has_failed(request_id):
                break
        return request_id

    def _is_stored(self, conversation_id: str, messages: Sequence[Message], began_at: Micros) -> bool:
        """Whether a call that began too long ago to be repeated did store its memories."""
        if self._clock() - began_at < REPEATABLE:
            return False
        ids = {message.id for message in messages}
        return any(
            ids.intersection(memory.source.message_ids) and _made_at(memory) >= began_at - _CLOCKS_DIFFER
            for memory in self._memories_of(conversation_id)
        )

    def _memories_of(self, conversation_id: str) -> Iterator[v1.Memory]:
        condition = v1.Condition(
            field="source.conversation_id", operator=v1.OPERATOR_EQ, value=to_value(conversation_id)
        )
        request = v1.ListRequest(
            user_id=self._template.user_id, filter=v1.Filter(condition=condition), page_size=_PAGE_SIZE
        )
        while True:
            response = self._remote.call(self._remote.memories.List, request)
            yield from response.memories
            request.page_token = response.next_page_token
            if not request.page_token:
                return


def _unused(issue: v1.AddIssue, messages: Sequence[Message]) -> Skipped:
    """What of a model's work is not stored, at the message where its part begins."""
    return Skipped(messages[issue.message_index].place, Reason.MODEL, issue.sentence)


def _marks(conversation_id: str, messages: Sequence[Message]) -> list[Mark]:
    return [mark(conversation_id, message.id) for message in messages]


def _made_at(memory: v1.Memory) -> int:
    """When a server made the id of a memory that it learnt, in microseconds since 1970: it is a UUIDv7."""
    return int.from_bytes(id_bytes(memory.id)[:6], "big") * 1000


def _too_long(message: Message) -> Skipped:
    size = len(message.text.encode())
    why = f"has {size} bytes; RAW keeps it whole, and a memory has at most {MAX_CONTENT_BYTES}"
    return Skipped(message.place, Reason.TOO_LONG, why)


def _pieces(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The messages in runs that one Add takes."""
    piece: list[Message] = []
    size = 0
    for message in messages:
        length = len(message.text.encode())
        if piece and (len(piece) == MAX_MESSAGES or size + length > MAX_TEXT_BYTES):
            yield piece
            piece, size = [], 0
        piece.append(message)
        size += length
    if piece:
        yield piece


def _spoken(message: Message) -> v1.ConversationMessage:
    spoken = v1.ConversationMessage(role=message.role, content=message.text, id=message.id)
    if message.at is not None:
        spoken.time.CopyFrom(to_timestamp(message.at))
    return spoken


def _wrong_messages(error: InvalidField, count: int) -> dict[int, str]:
    """What is wrong with which message; empty where it is about something else."""
    found: dict[int, str] = {}
    for violation in error.field_violations:
        match = _MESSAGE.match(violation.field)
        if match is None or int(match[1]) >= count:
            return {}
        found.setdefault(int(match[1]), f"{violation.field}: {violation.description}")
    return found
