"""The catalogue: which tenants exist, where they live, and which keys open them."""

from tenants.registry.once import RequestKey
from tenants.registry.registry import FirstCredentials, NewApiKey, Registry, open_catalogue
from tenants.registry.tables import SCRIPTS, VERSION_TABLE

__all__ = [
    "SCRIPTS",
    "VERSION_TABLE",
    "FirstCredentials",
    "NewApiKey",
    "Registry",
    "RequestKey",
    "open_catalogue",
]
