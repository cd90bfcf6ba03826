"""The truth: memories, graveyard, history, vectors and stream heads of one shard, in SQL."""
