"""What does oauth2.googleapis.com answer? Tokens for users and service accounts, and what a token is."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from infra.localcloud.account.tokens import CLOUD_PLATFORM, TOKEN_LIFETIME_S, Tokens
from infra.localcloud.clock import CloudClock
from infra.localcloud.http.app import answer
from infra.localcloud.http.errors import invalid

_GRANTS = ("refresh_token", "urn:ietf:params:oauth:grant-type:jwt-bearer")


class OAuthService:
    """`/token` believes everybody who asks: there is nothing here to protect, only a protocol to keep."""

    hosts = ("oauth2.googleapis.com", "accounts.google.com")
    host_routes: tuple[Route, ...] = ()

    def __init__(self, tokens: Tokens, clock: CloudClock) -> None:
        self._tokens = tokens
        self._clock = clock
        self.routes = [
            Route("/token", self._token, methods=["POST"], name="oauth2.token"),
            Route("/tokeninfo", self._token_info, methods=["GET", "POST"], name="oauth2.tokeninfo"),
        ]

    async def _token(self, request: Request) -> Response:
        form = parse_qs((await request.body()).decode(errors="replace"))
        grant = form.get("grant_type", [""])[0]
        if grant not in _GRANTS:
            return answer({"error": "unsupported_grant_type", "error_description": f"Invalid grant_type: {grant}"}, 400)
        scopes = " ".join(form.get("scope", [])).split() or [CLOUD_PLATFORM]
        token = self._tokens.issue("user@local.invalid", scopes)
        body = {
            "access_token": token,
            "expires_in": TOKEN_LIFETIME_S - 1,
            "token_type": "Bearer",
            "scope": " ".join(scopes),
        }
        return answer(body)

    async def _token_info(self, request: Request) -> Response:
        body = parse_qs((await request.body()).decode(errors="replace"))
        token = request.query_params.get("access_token") or body.get("access_token", [""])[0]
        found = self._tokens.look_up(token)
        if found is None:
            raise invalid("Invalid Value", "invalid_token")
        left_s = int(found["expires_at"] - self._clock.now())
        return answer({"email": found["email"], "scope": " ".join(found["scopes"]), "expires_in": str(left_s)})
