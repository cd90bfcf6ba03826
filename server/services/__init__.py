"""The doors: a message becomes a value, the shard answers, the value becomes a message."""
