"""Whose replica a file is: it never holds, and never sends, anything of another principal."""

from __future__ import annotations

from dataclasses import dataclass

from scrubjay.memory import ClientId, Subject, Viewer


@dataclass(frozen=True, slots=True)
class Identity:
    """What a device was registered as.

    ``principal`` is 8 bytes that name tenant, subject and client together, as the server made them.
    ``scopes`` are the scopes it sees, with what lies below them; empty: all.
    """

    principal: bytes
    client_id: ClientId
    subject: Subject
    scopes: tuple[str, ...] = ()

    @property
    def viewer(self) -> Viewer:
        """This client as the one who looks."""
        return Viewer(self.client_id, self.scopes)
