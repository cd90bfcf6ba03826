"""Scrubjay on a person's own machine: the ``scrubjay`` command."""
