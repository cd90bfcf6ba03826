"""The embedders that a server offers: one for new tenants, and those that tenants' vectors were made with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from scrubjay.errors import ModelMismatch
from server.providers.embedder import Embedder
from tenants.tenant import Tenant


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

    @property
    def dimensions(self) -> Mapping[str, int]:
        """The numbers of a vector by space id."""
        return {space: embedder.space.dimension for space, embedder in self._by_space.items()}

    def of(self, tenant: Tenant) -> Embedder:
        """The embedder of the tenant's space. Raises ModelMismatch, as ``in_space``."""
        return self.in_space(tenant.space)

    def in_space(self, space: str) -> Embedder:
        """The embedder of a space. Raises ModelMismatch where this server offers none."""
        found = self._by_space.get(space)
        if found is None:
            raise ModelMismatch(
                f"vectors are of the space {space}, and this server makes {', '.join(self._by_space)}; "
                "set SCRUBJAY_EMBEDDERS alike on every server"
            )
        return found
