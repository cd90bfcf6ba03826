"""The catalogue: which tenants exist, where they live, and which keys and devices open them."""

from tenants.registry.devices import DeviceToken
from tenants.registry.enrolments import NewEnrolment
from tenants.registry.keys import DEFAULT_OVERLAP_SECONDS, MAX_OVERLAP_SECONDS, NewApiKey, RotatedApiKey
from tenants.registry.once import RequestKey
from tenants.registry.registry import FirstCredentials, Registry, TenantChanges, open_catalogue
from tenants.registry.tables import SCRIPTS, VERSION_TABLE

__all__ = [
    "DEFAULT_OVERLAP_SECONDS",
    "MAX_OVERLAP_SECONDS",
    "SCRIPTS",
    "VERSION_TABLE",
    "DeviceToken",
    "FirstCredentials",
    "NewApiKey",
    "NewEnrolment",
    "Registry",
    "RequestKey",
    "RotatedApiKey",
    "TenantChanges",
    "open_catalogue",
]
