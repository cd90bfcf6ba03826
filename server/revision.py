"""Revision tokens: a write's place in the streams it touched, for a later read to wait on."""

from __future__ import annotations

from collections.abc import Mapping

from scrubjay.errors import InvalidField
from scrubjay.stamp import CommitStamp
from server.store.memory_store import StreamKey
from tenants.page_token import opened, seal
from tenants.tenant import Incarnation


class Revisions:
    """Makes and reads revision tokens; each is sealed for one life of one tenant."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def token(self, heads: Mapping[StreamKey, CommitStamp]) -> str:
        """The token of a write that took these streams, all of one tenant, to these heads."""
        incarnation = next(iter(heads)).incarnation
        values = [part for key, head in heads.items() for part in (key.stream, head)]
        return seal(self._secret, _purpose(incarnation), values)

    def heads(self, incarnation: Incarnation, token: str) -> dict[StreamKey, CommitStamp]:
        """The inverse of ``token``, nothing for an empty one. InvalidField where it is not this tenant's."""
        if not token:
            return {}
        values = opened(self._secret, _purpose(incarnation), token)
        if values is None:
            raise InvalidField.of(
                "min_revision", "is no revision of this tenant; send it as a write returned it"
            )
        return {
            StreamKey(incarnation, str(stream)): CommitStamp(int(head))
            for stream, head in zip(values[::2], values[1::2], strict=True)
        }


def _purpose(incarnation: Incarnation) -> str:
    return f"revision\0{incarnation}"
