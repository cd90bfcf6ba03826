"""When relations hold, as far as one client's memories tell.

A relation is over where a memory says so: its own (``valid_to``), one that says it is so no more, one that
says another thing of which there is only one ("I live in Oslo" after "I live in Rome"), one that says the
opposite, or one that replaced its own. That is worked out when relations are read, from the memories that the
asking client may see: so nobody learns of a private one, and a relation is open again when what closed it is
deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from scrubjay.memory import Micros
from server.store.entities import RelationRow, ToldRow

ONE_AT_A_TIME = frozenset(
    ("works_at", "lives_in", "studies_at", "spouse", "wife", "husband", "boss", "landlord")
)
"""Of these a subject has one, so that a newer one closes an older one."""
OPPOSITES = {"likes": "dislikes", "dislikes": "likes"}


def until(row: ToldRow, told: Iterable[ToldRow]) -> Micros | None:
    """When the relation ended, None where it holds still; ``told`` has all that is told of its subject."""
    relation = row.relation
    ends = [end for end in (relation.valid_to, row.replaced_at) if end is not None]
    if relation.valid_from is not None:
        since = relation.valid_from
        ends += (end for other in told if (end := _closes(other.relation, relation, since)) is not None)
    return min(ends, default=None)


def _closes(other: RelationRow, relation: RelationRow, since: Micros) -> Micros | None:
    """When ``other`` says that ``relation``, which began at ``since``, was over."""
    same, is_same_thing = other.relation == relation.relation, other.object_id == relation.object_id
    if other.valid_from is None:
        over = same and is_same_thing and other.valid_to is not None and other.valid_to > since
        return other.valid_to if over else None
    another = same and not is_same_thing and relation.relation in ONE_AT_A_TIME
    opposite = is_same_thing and OPPOSITES.get(relation.relation) == other.relation
    return other.valid_from if (another or opposite) and other.valid_from > since else None


def held_at(row: RelationRow, end: Micros | None, at: Micros) -> bool:
    """Whether a relation that ended so was true at a time."""
    return (row.valid_from is None or row.valid_from <= at) and (end is None or at < end)


class Told:
    """All that is told of some subjects, so grouped that what may end a relation is found at once."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], ToldRow] = {}
        self._of_kind: dict[tuple[str, str], list[ToldRow]] = {}
        self._of_thing: dict[tuple[str, str], list[ToldRow]] = {}

    def add(self, rows: Iterable[ToldRow]) -> None:
        """Take all that is told of further subjects."""
        for row in rows:
            relation = row.relation
            self._rows[relation.memory_id, relation.number] = row
            self._of_kind.setdefault((relation.subject_id, relation.relation), []).append(row)
            self._of_thing.setdefault((relation.subject_id, relation.object_id), []).append(row)

    def until(self, relation: RelationRow) -> Micros | None:
        """When a relation ended whose subject is among them; None where it holds still."""
        if relation.relation in ONE_AT_A_TIME:
            others = self._of_kind[relation.subject_id, relation.relation]
        else:
            others = self._of_thing[relation.subject_id, relation.object_id]
        return until(self._rows[relation.memory_id, relation.number], others)
