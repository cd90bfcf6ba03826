"""Whose replica a file is: it never holds, and never sends, anything of another principal."""

from __future__ import annotations

from collections.abc import Iterable
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


def read_identity(rows: Iterable[tuple[str, object]]) -> Identity | None:
    """Whose a file is, from its meta rows; None where it does not say."""
    meta = dict(rows)
    principal, client_id = meta.get("principal"), meta.get("client_id")
    kind, name, scopes = (meta.get(key) for key in ("subject_kind", "subject_name", "scopes"))
    if not isinstance(principal, bytes) or not all(
        isinstance(text, str) for text in (client_id, kind, name, scopes)
    ):
        return None
    found = tuple(scope for scope in str(scopes).split("\n") if scope)
    return Identity(principal, ClientId(str(client_id)), Subject(str(kind), str(name)), found)
