"""Who may not call, or not this."""

from __future__ import annotations

from google.rpc import code_pb2

from scrubjay import v1
from scrubjay.errors.error import ScrubjayError


class CredentialInvalid(ScrubjayError):
    """No credential, an unknown one, a revoked or an expired one: one message for all of them."""

    code = code_pb2.UNAUTHENTICATED
    reason = v1.ERROR_REASON_CREDENTIAL_INVALID

    def __init__(self) -> None:
        super().__init__(
            "the API key is missing, unknown, revoked or expired; send 'authorization: Bearer <key>'"
        )


class TokenExpired(ScrubjayError):
    """The device's token has expired; refreshing takes it and gives the next one."""

    code = code_pb2.UNAUTHENTICATED
    reason = v1.ERROR_REASON_TOKEN_EXPIRED

    def __init__(self) -> None:
        super().__init__("the device's token has expired; call RefreshToken with it")


class DeviceRevoked(ScrubjayError):
    """The device was revoked, or its token was copied."""

    code = code_pb2.UNAUTHENTICATED
    reason = v1.ERROR_REASON_DEVICE_REVOKED

    def __init__(self) -> None:
        super().__init__(
            "this device was signed out by its operator, or its token was used from a copy; "
            "enrol it again: nothing on it is lost"
        )


class RoleNotAllowed(ScrubjayError):
    """The credential's role may not call this RPC, or not for this resource."""

    code = code_pb2.PERMISSION_DENIED
    reason = v1.ERROR_REASON_ROLE_NOT_ALLOWED
