"""Importing: memories and conversations that other programs, and ``scrubjay export``, wrote to a file."""
