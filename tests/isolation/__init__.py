"""Tenants never meet: every RPC, every field that takes an id, ids of every kind of foreign tenant.

``python -m tests.isolation`` takes each guard of the boundary away in turn and says what notices.
"""
