"""What stands before every request: who may ask, how much they may send, and what is counted."""

from __future__ import annotations

import hmac
import json
import logging
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect
from starlette.websockets import WebSocketDisconnect

from rlzoo_plus.serving.request_checks import Refused, text
from rlzoo_plus.serving.service_metrics import ServiceMetrics

log = logging.getLogger(__name__)

LARGEST_BODY = 2**24
AGENT = "x-agent-id"
_LOCAL = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)
# What a load balancer asks without a token, and it tells nothing but whether this is alive.
_OPEN = ("/ping", "/v2/health/live", "/v2/health/ready")
_ROUTES = ("/v1/session", "/v1/override", "/invocations", "/metrics", "/ping", "/v2/health", "/v2")


@dataclass(frozen=True)
class Access:
    """Who may ask."""

    token: str | None = None
    local_only: bool = True  # Whether only this machine's own names are served
    behind_proxy: bool = False  # Whether the last address of X-Forwarded-For is the client


class Guard:
    """An ASGI application before another one."""

    def __init__(self, app: Any, access: Access, metrics: ServiceMetrics) -> None:
        self._app, self._access, self._metrics = app, access, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse a request or pass it on; count its answer."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = headers_of(scope)
        scope["rlzoo_plus.client"] = self._client(scope, headers)
        route = next((known for known in _ROUTES if scope["path"].startswith(known)), "other")

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                self._metrics.answered(route, message["status"])
            try:
                await send(message)
            except (WebSocketDisconnect, OSError):
                raise
            # uvicorn has refused the rest of the request, and this is one answer too many.
            except Exception as error:
                raise ClientDisconnect from error

        try:
            self._check(scope, headers)
        except Refused as error:
            await refuse(scope, counted, error)
            return
        try:
            await self._app(scope, receive, counted)
        # A client that leaves is nothing to tell.
        except (ClientDisconnect, WebSocketDisconnect):
            log.debug("a client left")

    def _check(self, scope: Any, headers: dict[str, str]) -> None:
        access, host = self._access, headers.get("host", "")
        if access.local_only and _LOCAL.fullmatch(host) is None:
            fix = "Ask 127.0.0.1 or localhost"
            raise Refused("host", "this name is not served", fix, 403)
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise Refused("origin", "pages of other sites are not served", "Ask directly", 403)
        if access.token is not None and scope["path"] not in _OPEN:
            given = headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {access.token}".encode()):
                fix = "Send Authorization: Bearer TOKEN"
                raise Refused("authorization", "the token is missing or wrong", fix, 401)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 12 or int(length) > LARGEST_BODY:
            raise Refused("body", f"larger than {LARGEST_BODY} bytes", "Send fewer observations")

    def _client(self, scope: Any, headers: dict[str, str]) -> str:
        if self._access.behind_proxy and (told := headers.get("x-forwarded-for")):
            return told.rpartition(",")[2].strip()[:64]
        return str(scope["client"][0]) if scope.get("client") else "unknown"


def headers_of(scope: Any) -> dict[str, str]:
    """Return the headers of a request by name; the last of several counts."""
    return {name.decode("latin1"): value.decode("latin1") for name, value in scope["headers"]}


def agent_of(scope: Any, asked: str | None) -> str:
    """Return what a client calls itself, or its address.

    Raises:
        Refused: It is no name.
    """
    return str(scope["rlzoo_plus.client"]) if asked is None else text(asked, AGENT)


async def refuse(scope: Any, send: Any, error: Refused) -> None:
    """Answer with what is wrong, also to a WebSocket that is not open yet."""
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    if scope["type"] == "websocket" and kind not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    start = {"type": f"{kind}.start", "status": error.status, "headers": headers}
    await send(start)
    await send({"type": f"{kind}.body", "body": json.dumps(error.as_json()).encode()})
