"""A client without a replica, such as a shortcut or a cron job: it pulls pages and keeps what they say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrubjay import v1
from scrubjay.feed import joined, open_page, read_state, stored_message, unpack
from scrubjay.memory import MemoryId
from scrubjay.merge import State
from scrubjay.stamp import time_text
from tests.sync import occasions
from tests.sync.oracle import Who

if TYPE_CHECKING:
    from tests.sync.device import Device
    from tests.sync.world import World

MOST_PAGES = 500


@dataclass(slots=True)
class SimpleClient:
    """What it knows. It calls with the token of ``device``."""

    device: Device
    rows: dict[MemoryId, State] = field(default_factory=dict)
    cursor: str = ""
    pulled_at: int = 0
    """When its last whole pull ended, in milliseconds."""
    restores: int = 0
    """How often the server had been restored then: a plain time does not tell one life from another."""

    @property
    def who(self) -> Who:
        """As a viewer."""
        return self.device.who

    def pull(self, world: World, *, max_bytes: int, most_pages: int | None, by_time: bool = False) -> None:
        """Pull at most so many pages; ``by_time`` sends when the last whole pull ended, not the token."""
        if by_time and self.pulled_at and self.restores == world.restores:
            self.cursor = time_text(self.pulled_at << 16).rpartition(".")[0]
        for _ in range(most_pages or MOST_PAGES):
            request = v1.SyncRequest(protocol=1, last_sync_at=self.cursor, max_bytes=max_bytes)
            response = world.serve_sync(self.device, self.device.caller, request)
            if response.directive != v1.DIRECTIVE_OK:
                self.rows.clear()
                self.cursor, self.pulled_at = "", 0
                continue
            self._take(response)
            self.cursor = response.last_sync_at
            if not response.more:
                self.pulled_at, self.restores = world.micros // 1000, world.restores
                return
        assert most_pages is not None, f"a pull does not end in {MOST_PAGES} pages"

    def _take(self, response: v1.SyncResponse) -> None:
        page = response.page
        if response.packed_page:
            page = unpack(v1.Page, "packed_page", response.packed_page)
        subject = self.device.place.subject
        for memory_id, _, change in open_page(page):
            if change.kind == v1.CHANGE_KIND_WHOLE:
                message = stored_message(change.memory, memory_id, subject)
                self.rows[memory_id] = read_state(message, change.field_stamps)
            elif change.kind == v1.CHANGE_KIND_PART:
                occasions.a_part_is_of_what_is_there(memory_id in self.rows)
                self.rows[memory_id] = joined(self.rows[memory_id], change)
            else:
                self.rows.pop(memory_id, None)
