"""What can be thrown away: vector indexes and resident streams, rebuilt from SQL at any time."""
