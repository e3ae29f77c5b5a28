"""Who is calling? Issues access tokens and checks the Authorization header of a request."""

from __future__ import annotations

import secrets

from starlette.requests import Request

from infra.localcloud.clock import CloudClock
from infra.localcloud.http.errors import ApiError, error_info
from infra.localcloud.store import Document, Store

CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
TOKEN_LIFETIME_S = 3600
_CAN_COMPUTE = (CLOUD_PLATFORM, "https://www.googleapis.com/auth/compute")


class Tokens:
    """Access tokens, valid for an hour on the cloud's clock; those of a VM end with the VM."""

    def __init__(self, store: Store, clock: CloudClock) -> None:
        self._store = store
        self._clock = clock

    def issue(self, email: str, scopes: list[str], vm_id: str = "") -> str:
        """A new token. A VM's token names the VM, which makes logs readable."""
        token = f"ya29.local.{vm_id or 'user'}.{secrets.token_urlsafe(18)}"
        body = {"email": email, "scopes": scopes, "vm": vm_id, "expires_at": self._clock.now() + TOKEN_LIFETIME_S}
        self._store.put("tokens", token, body)
        return token

    def look_up(self, token: str) -> Document | None:
        """{email, scopes, vm, expires_at} of a valid token; None when it is unknown or has expired."""
        body = self._store.get("tokens", token)
        return body if body is not None and body["expires_at"] > self._clock.now() else None

    def revoke(self, token: str) -> None:
        """Forget a token."""
        self._store.delete("tokens", token)

    def revoke_vm(self, vm_id: str) -> None:
        """Forget the tokens of a VM that is gone."""
        for token, _ in self._store.list("tokens", f"ya29.local.{vm_id}."):
            self._store.delete("tokens", token)

    def caller(self, request: Request, required: bool) -> Document | None:
        """The caller; None for an anonymous one. Raises ApiError 401 for a bad token, or for none if `required`."""
        header = request.headers.get("authorization", "")
        if not header:
            if required:
                raise _unauthenticated("Request is missing required authentication credential.", "CREDENTIALS_MISSING")
            return None
        scheme, _, token = header.partition(" ")
        found = self.look_up(token) if scheme.lower() == "bearer" else None
        if found is None:
            raise _unauthenticated("Request had invalid authentication credentials.", "ACCESS_TOKEN_INVALID")
        return found

    def authorize(self, request: Request, service: str) -> None:
        """Let a call to the TPU or Compute API pass, or raise ApiError 401 or 403.

        Anonymous calls are accepted on the loopback address only: Google's clients are given AnonymousCredentials
        there, while through the proxy a VM calls the real host name and must bring its own token.
        """
        caller = self.caller(request, required=request.url.scheme == "https")
        if caller is None or any(scope in _CAN_COMPUTE for scope in caller["scopes"]):
            return
        raise ApiError(
            "PERMISSION_DENIED",
            "Request had insufficient authentication scopes.",
            reason="insufficientPermissions",
            details=[error_info("ACCESS_TOKEN_SCOPE_INSUFFICIENT", service=service, method=request.url.path)],
        )


def _unauthenticated(message: str, reason: str) -> ApiError:
    return ApiError("UNAUTHENTICATED", message, reason="authError", details=[error_info(reason)])
