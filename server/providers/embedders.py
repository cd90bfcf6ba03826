"""The embedders that a server offers: one for new tenants, and those that tenants' vectors were made with."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from scrubjay.errors import ModelMismatch
from server.providers.beside import Ahead, Beside
from server.providers.embedder import Embedder
from tenants.tenant import Incarnation, Tenant


class Embedders:
    """Embedders by the name that the settings call them, the first one for new tenants.

    Raises ValueError where two make one space. Whoever opened them closes them.
    """

    def __init__(self, named: Mapping[str, Embedder]) -> None:
        self._by_space: dict[str, Embedder] = {}
        for name, embedder in named.items():
            if embedder.space.id in self._by_space:
                raise ValueError(f"the embedder {name!r} makes a space that another one makes already")
            self._by_space[embedder.space.id] = embedder
        self.new = next(iter(named.values()))
        """The embedder of new tenants."""
        self.spaces: Mapping[str, str] = MappingProxyType({n: e.space.id for n, e in named.items()})
        """The ids of their spaces by name."""

        self._lock = threading.Lock()
        self._ahead: dict[Incarnation, Ahead] = {}

    @property
    def dimensions(self) -> Mapping[str, int]:
        """The numbers of a vector by space id."""
        return {space: embedder.space.dimension for space, embedder in self._by_space.items()}

    def of(self, tenant: Tenant) -> Embedder:
        """The embedder of the tenant's space. Raises ModelMismatch, as ``in_space``."""
        embedder = self.in_space(tenant.space)
        ahead = self._ahead.get(tenant.incarnation)
        return embedder if ahead is None or ahead.space == tenant.space else Beside(embedder, ahead)

    @contextmanager
    def ahead(self, incarnation: Incarnation, space: str) -> Iterator[Ahead]:
        """For the block, what is embedded for a tenant in another space is embedded in this one too."""
        ahead = Ahead(self.in_space(space))
        with self._lock:
            self._ahead[incarnation] = ahead
        try:
            yield ahead
        finally:
            with self._lock:
                self._ahead.pop(incarnation, None)

    def in_space(self, space: str) -> Embedder:
        """The embedder of a space. Raises ModelMismatch where this server offers none."""
        found = self._by_space.get(space)
        if found is None:
            raise ModelMismatch(
                f"vectors are of the space {space}, and this server makes {', '.join(self._by_space)}; "
                "set SCRUBJAY_EMBEDDERS alike on every server"
            )
        return found
