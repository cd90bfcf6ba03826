"""The door of what a tenant has and calls."""

from __future__ import annotations

from scrubjay import v1
from scrubjay.errors import FieldViolation, InvalidField, check
from tenants.audit_door import AuditDoor
from tenants.messages import usage_row_message
from tenants.ownership import check_own
from tenants.page import page_of
from tenants.quotas import to_message
from tenants.tenant import Caller, tenant_id_violation
from tenants.usage import DEFAULT_DAYS, day_of, parse_day


class UsageDoor(AuditDoor):
    """Tells what a tenant has and calls; a part of TenantAdminService."""

    def get_usage(self, request: v1.GetUsageRequest, caller: Caller) -> v1.GetUsageResponse:
        """Raises InvalidField, TenantNotFound."""
        check(tenant_id_violation("tenant_id", request.tenant_id))
        check_own(caller, request.tenant_id)
        now = self._clock()
        last = _day("to_day", request.to_day, day_of(now))
        first = _day("from_day", request.from_day, last - DEFAULT_DAYS + 1)
        check(FieldViolation("from_day", "lies behind to_day; swap them") if first > last else None)
        tenant, book = self._registry.get_tenant(request.tenant_id), self._registry.usage
        life = tenant.incarnation
        purpose = f"usage of {life} from {first} to {last}"
        book.write()
        page, token = page_of(
            request,
            self._secret,
            purpose,
            (int, str, str),
            find=lambda limit, *after: book.list_usage(life, (first, last), limit, after or None),
            key=lambda row: row[0][1:],
            message=lambda row: usage_row_message(*row),
        )
        return v1.GetUsageResponse(
            stock=v1.Stock(**book.stock(life, now), **self._subjects.stock(tenant)),
            quotas=to_message(tenant.quotas),
            rows=page,
            next_page_token=token,
        )


def _day(field: str, text: str, default: int) -> int:
    if not text:
        return default
    try:
        return parse_day(text)
    except ValueError:
        raise InvalidField.of(field, f"{text[:32]!r} is no day; write it like 2026-11-30") from None
