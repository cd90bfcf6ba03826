"""The service: stores, searches and remembers."""
