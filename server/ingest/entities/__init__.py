"""Who and what memories speak of, and how these belong together; Chinese and English, by rules."""
