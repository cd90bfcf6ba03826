"""One shard: its store, its resident streams, and what can be done with the memories in it.

Functions keep their RPC's verb. Every argument that names a row begins with the tenant's incarnation.
"""

from __future__ import annotations

from server.shard.entities import ShardEntities
from server.shard.erasing import ShardErasing
from server.shard.exporting import ShardExporting
from server.shard.finding import ShardFinding
from server.shard.importing import ShardImporting
from server.shard.jobs import ShardJobs
from server.shard.memories import Got, Listing, ShardMemories
from server.shard.moving import ShardMoving
from server.shard.parts import Request
from server.shard.purging import ShardPurging
from server.shard.reindexing import ShardReindexing
from server.shard.sync import ShardSync

__all__ = ["Got", "Listing", "Request", "Shard"]


class Shard(
    ShardMemories,
    ShardFinding,
    ShardSync,
    ShardJobs,
    ShardPurging,
    ShardEntities,
    ShardErasing,
    ShardExporting,
    ShardImporting,
    ShardReindexing,
    ShardMoving,
):
    """One shard's memories."""
