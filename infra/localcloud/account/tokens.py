"""Access tokens: issued by OAuth and the metadata server, checked in the Authorization header of a request."""

from __future__ import annotations

import secrets
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from infra.localcloud.clock import CloudClock
from infra.localcloud.http.errors import ApiError, error_info, invalid
from infra.localcloud.http.routes import Service, routes
from infra.localcloud.store import Document, Store

CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
TOKEN_LIFETIME_S = 3600
_GRANTS = ("refresh_token", "urn:ietf:params:oauth:grant-type:jwt-bearer")
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
        """{email, scopes, vm, expires_at} of a valid token; None for an unknown or expired one."""
        body = self._store.get("tokens", token)
        return body if body is not None and body["expires_at"] > self._clock.now() else None

    def revoke(self, token: str) -> None:
        """Revoke a token."""
        self._store.delete("tokens", token)

    def revoke_vm(self, vm_id: str) -> None:
        """Revoke the tokens of a VM that was deleted."""
        for token, _ in self._store.list("tokens", f"ya29.local.{vm_id}."):
            self._store.delete("tokens", token)

    def of(self, request: Request) -> Document | None:
        """What `look_up` finds for the request's bearer token; None without a valid one."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return self.look_up(token) if scheme.lower() == "bearer" else None

    def authorize(self, request: Request, service: str) -> None:
        """Raises ApiError 401 or 403 for a call to the TPU, Compute or Scheduler API that lacks a good token.

        Anonymous calls are accepted on the loopback address only: Google's clients are given AnonymousCredentials
        there, while through the proxy a VM calls the real host name and must bring its own token.
        """
        if "authorization" not in request.headers:
            if request.url.scheme == "https":
                raise _unauthenticated("Request is missing required authentication credential.", "CREDENTIALS_MISSING")
            return
        caller = self.of(request)
        if caller is None:
            raise _unauthenticated("Request had invalid authentication credentials.", "ACCESS_TOKEN_INVALID")
        if any(scope in _CAN_COMPUTE for scope in caller["scopes"]):
            return
        raise ApiError(
            "PERMISSION_DENIED",
            "Request had insufficient authentication scopes.",
            reason="insufficientPermissions",
            details=[error_info("ACCESS_TOKEN_SCOPE_INSUFFICIENT", service=service, method=request.url.path)],
        )


class OAuthService(Service):
    """`/token` believes every caller: there is nothing to protect here, only a protocol to keep."""

    hosts = ("oauth2.googleapis.com", "accounts.google.com")

    def __init__(self, tokens: Tokens, clock: CloudClock) -> None:
        self._tokens = tokens
        self._clock = clock
        table = [
            ("POST /token", "token", self._token),
            ("GET /tokeninfo", "tokeninfo", self._token_info),
            ("POST /tokeninfo", "tokeninfo", self._token_info),
        ]
        self.routes = routes("oauth2", table)

    async def _token(self, request: Request) -> Response:
        form = parse_qs((await request.body()).decode(errors="replace"))
        grant = form.get("grant_type", [""])[0]
        if grant not in _GRANTS:
            error = {"error": "unsupported_grant_type", "error_description": f"Invalid grant_type: {grant}"}
            return JSONResponse(error, 400)
        scopes = " ".join(form.get("scope", [])).split() or [CLOUD_PLATFORM]
        token = self._tokens.issue("user@local.invalid", scopes)
        body = {"access_token": token, "expires_in": TOKEN_LIFETIME_S - 1, "token_type": "Bearer"}
        return JSONResponse({**body, "scope": " ".join(scopes)})

    async def _token_info(self, request: Request) -> Response:
        body = parse_qs((await request.body()).decode(errors="replace"))
        token = request.query_params.get("access_token") or body.get("access_token", [""])[0]
        found = self._tokens.look_up(token)
        if found is None:
            raise invalid("Invalid Value", "invalid_token")
        left_s = int(found["expires_at"] - self._clock.now())
        return JSONResponse({"email": found["email"], "scope": " ".join(found["scopes"]), "expires_in": str(left_s)})


def _unauthenticated(message: str, reason: str) -> ApiError:
    return ApiError("UNAUTHENTICATED", message, reason="authError", details=[error_info(reason)])
