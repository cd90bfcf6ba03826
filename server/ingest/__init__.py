"""Writing: how what a caller gives becomes memories."""
