"""The HTTP and WebSocket interface: the Open Inference Protocol, sessions, SageMaker, overrides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.websockets import WebSocket

from rlzoo_plus import __version__
from rlzoo_plus.serving.decision import Decision
from rlzoo_plus.serving.guard import AGENT, LARGEST_BODY, Access, Guard, agent_of, headers_of
from rlzoo_plus.serving.open_inference import (
    HEADER_LENGTH,
    MOST_ROWS,
    Asked,
    describe,
    read_request,
    write_answer,
)
from rlzoo_plus.serving.overriding import WORDS
from rlzoo_plus.serving.request_checks import Refused, number, only, parsed, truth
from rlzoo_plus.serving.request_checks import text as short_text
from rlzoo_plus.serving.service import MOST_SESSIONS, Service, Session, session_key
from rlzoo_plus.serving.web_page import page_of

_FIELDS = ("observation", "action_masks", "state", "reward", "reset")
_MOST_REWARD = 1e12
_CLOSED_RESTART = 1012
_WHOSE = "this policy, or its shield, remembers the episode, and must know whose it is"
_TENSORS = (
    "Takes tensors of the Open Inference Protocol, in JSON or with the binary extension; up to "
    f"{MOST_ROWS} rows. A policy that remembers its episode takes one row at a time, with "
    "`parameters.sequence_id`, and `sequence_start` at the first of an episode."
)
_INVOKE = (
    'Takes `{"observation": ...}`, or `{"instances": [...]}` with several; returns the action. '
    "`session` names a control loop, `reset` begins its episode."
)
_OVERRIDE = (
    f"`word` is one of {', '.join(WORDS)}. It outranks every policy from the next decision on, "
    "for `for_s` seconds; ask again to renew it. `session` limits it to one."
)
_NUMBERS = {"description": "Numbers as the environment gives them"}


def make_app(service: Service, access: Access) -> Guard:
    """Return the ASGI application."""
    title = f"rlzoo-plus serve {service.current.name}"
    app = FastAPI(title=title, version=__version__, docs_url=None, redoc_url=None)
    api = _Api(service)

    def add(method: str, path: str, handler: Any, *schema: Mapping[str, Any], **more: Any) -> None:
        body: dict[str, Any] = {}
        if schema:
            content = {"application/json": {"schema": dict(schema[0])}}
            body = {"openapi_extra": {"requestBody": {"required": True, "content": content}}}
        app.add_api_route(path, handler, methods=[method], **body, **more)

    for prefix in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        add("GET", prefix, api.metadata, summary="What a model takes and gives")
        add("GET", f"{prefix}/ready", api.model_ready, summary="Whether a model is ready")
        add("POST", f"{prefix}/infer", api.infer, _INFER, summary="Decide", description=_TENSORS)
    add("GET", "/v2", api.server, summary="What this server is")
    add("GET", "/v2/health/live", api.live, summary="Whether the server is alive")
    add("GET", "/v2/health/ready", api.ready, summary="Whether it takes new clients")
    add("GET", "/ping", api.ready, summary="The same, for SageMaker")
    add("POST", "/invocations", api.invoke, _OBSERVED, summary="Decide", description=_INVOKE)
    add("POST", "/v1/override", api.override, _WORD, summary="Override", description=_OVERRIDE)
    add("GET", "/metrics", api.metrics, summary="Counters for Prometheus")
    app.add_api_route(
        "/docs", lambda: HTMLResponse(page_of(app.openapi())), include_in_schema=False
    )
    app.add_api_websocket_route("/v1/session", api.session)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(HTTPException, _no_such_page)
    return Guard(app, access, service.metrics)


class _Api:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def server(self) -> Any:
        return JSONResponse(
            {"name": "rlzoo-plus", "version": __version__, "extensions": ["binary_tensor_data"]}
        )

    async def live(self) -> Response:
        return Response()

    async def ready(self) -> Response:
        return Response(status_code=503 if self._service.is_ending else 200)

    async def metadata(self, model: str, version: str = "") -> Response:
        self._check_name(model, version)
        return JSONResponse(describe(self._service.current))

    async def model_ready(self, model: str, version: str = "") -> Response:
        self._check_name(model, version)
        return await self.ready()

    async def metrics(self) -> Response:
        return PlainTextResponse(self._service.metrics.text())

    async def infer(self, request: Request, model: str, version: str = "") -> Response:
        service = self._service
        self._check_name(model, version)
        service.limit.ask(request.scope["rlzoo_plus.client"])
        headers = headers_of(request.scope)
        agent = agent_of(request.scope, headers.get(AGENT))
        body = await _body(request)
        # From here on nothing waits: one whole version answers.
        policy = service.current
        asked = read_request(body, headers.get(HEADER_LENGTH), policy)
        reward = _reward(asked.reward)
        session, paced = self._session_of(asked, agent), asked.sequence is not None
        if session.policy is not policy:
            # It keeps the version that its episode began with, which takes the same.
            policy = session.policy
        decisions = [
            service.decide(session, row, reward=reward, paced=paced) for row in asked.given
        ]
        if asked.ends and asked.sequence is not None:
            service.close(session_key(agent, asked.sequence))
        body, told = write_answer(policy, asked, decisions)
        return Response(body, headers=told)

    def _session_of(self, asked: Asked, agent: str) -> Session:
        if asked.sequence is None:
            if self._service.current.needs_session:
                rule = _WHOSE
                fix = "Send sequence_id, and sequence_start with the first observation"
                raise Refused("parameters.sequence_id", rule, fix)
            return self._kept(session_key(agent, ""), agent, reset=False)
        if asked.rows != 1:
            raise Refused("inputs.shape", "a sequence takes one row at a time", "Send one")
        key = session_key(agent, asked.sequence)
        if not asked.starts and self._service.find(key) is None:
            rule = "no such sequence, or it was idle for too long"
            raise Refused("parameters.sequence_start", rule, "Begin it with sequence_start: true")
        return self._kept(key, agent, reset=asked.starts)

    def _kept(self, key: str, agent: str, *, reset: bool) -> Session:
        session = self._service.find(key) or self._service.open(agent, key)
        self._service.follow(session, begins=reset)
        return session

    async def invoke(self, request: Request) -> Response:
        service = self._service
        service.limit.ask(request.scope["rlzoo_plus.client"])
        asked = parsed(await _body(request))
        only(asked, (*_FIELDS, "session", "instances"))
        name, many = asked.get("session"), asked.get("instances")
        agent = agent_of(request.scope, headers_of(request.scope).get(AGENT))
        if name is not None:
            short_text(name, "session")
        elif service.current.needs_session:
            fix = "Name the session, and send reset: true at first"
            raise Refused("session", _WHOSE, fix)
        is_list = isinstance(many, list) and 0 < len(many) <= MOST_ROWS
        if many is not None and (not is_list or name is not None):
            rule = f"no list of 1 to {MOST_ROWS} observations, or of a session"
            raise Refused("instances", rule, "Send a list, without `session`")
        reset = truth(asked.get("reset", False), "reset")
        session = self._kept(session_key(agent, name or ""), agent, reset=reset)
        rows = [asked.get("observation")] if many is None else many
        masks, reward = asked.get("action_masks"), _reward(asked.get("reward"))
        given = [session.policy.of_json(row, masks, asked.get("state")) for row in rows]
        paced = name is not None
        made = [service.decide(session, one, reward=reward, paced=paced) for one in given]
        if many is None:
            return JSONResponse(made[0].as_json())
        return JSONResponse({"predictions": [one.as_json() for one in made]})

    async def override(self, request: Request) -> Response:
        asked = parsed(await _body(request))
        service = self._service
        taken = service.overrides.set(asked, service.current, service.sessions_of)
        agent = agent_of(request.scope, headers_of(request.scope).get(AGENT))
        if service.audit is not None:
            service.audit.event("override", agent_id=agent, **taken)
        return JSONResponse(taken)

    async def session(self, websocket: WebSocket) -> None:
        """Serve one control loop until it leaves or the server ends."""
        service = self._service
        await websocket.accept()
        try:
            name = headers_of(websocket.scope).get(AGENT) or websocket.query_params.get("agent")
            agent = agent_of(websocket.scope, name)
            if service.is_ending or len(service.loops) >= MOST_SESSIONS:
                rule = "the server ends, or has too many sessions"
                raise Refused("session", rule, "Connect again later", 503, 1.0)
        except Refused as error:
            await websocket.send_text(json.dumps(error.as_json()))
            await websocket.close(_CLOSED_RESTART)
            return
        session = service.open(agent)
        service.loops.add(session.id)
        try:
            hello = {"session": session.id, **describe(session.policy)}
            await websocket.send_text(json.dumps(hello))
            while True:
                message = await websocket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                data = message.get("text")
                data = message.get("bytes") or b"" if data is None else data
                await websocket.send_text(json.dumps(self._said(websocket, session, data)))
        finally:
            service.loops.discard(session.id)

    def _said(self, websocket: WebSocket, session: Session, data: str | bytes) -> Any:
        """Return the answer to one message of a session."""
        try:
            self._service.limit.ask(websocket.scope["rlzoo_plus.client"])
            return self._decided(session, parsed(data, "message")).as_json()
        except Refused as error:
            self._service.metrics.answered("/v1/session", error.status)
            return {"status": error.status, **error.as_json()}

    def _decided(self, session: Session, asked: Mapping[str, Any]) -> Decision:
        only(asked, _FIELDS)
        reset, reward = truth(asked.get("reset", False), "reset"), _reward(asked.get("reward"))
        # Checked before the episode ends: what is refused changes nothing.
        given = session.policy.of_json(
            asked.get("observation"), asked.get("action_masks"), asked.get("state")
        )
        self._service.follow(session, begins=reset)
        return self._service.decide(session, given, reward=reward)

    def _check_name(self, model: str, version: str) -> None:
        current = self._service.current
        if model != current.name:
            raise Refused("model", "no such model here", f"Ask {current.name}", 404)
        if version not in ("", current.version):
            fix = f"Ask {current.version}, or leave it out"
            raise Refused("version", "not the one that is served", fix, 404)


def _reward(value: Any) -> float | None:
    return None if value is None else number(value, "reward", -_MOST_REWARD, _MOST_REWARD)


async def _body(request: Request) -> bytes:
    """Return the body, or refuse one that is too large or compressed."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused("content-encoding", "compressed bodies are not read", "Send it as it is")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST_BODY:
            raise Refused("body", f"larger than {LARGEST_BODY} bytes", "Send fewer observations")
        parts.append(part)
    return b"".join(parts)


async def _refused(_: Request, error: Any) -> Response:
    headers = {}
    if error.retry_s is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_s + 0.5)))
    return JSONResponse(error.as_json(), error.status, headers)


async def _no_such_page(_: Request, error: Any) -> Response:
    return JSONResponse({"error": HTTPStatus(error.status_code).phrase}, error.status_code)


_WORD = {
    "type": "object",
    "required": ["word"],
    "properties": {
        "word": {"enum": list(WORDS)},
        "action": _NUMBERS,
        "for_s": {"type": "number"},
        "session": {"type": "string"},
    },
}
_OBSERVED = {
    "type": "object",
    "properties": {
        "observation": _NUMBERS,
        "instances": {"type": "array", "items": _NUMBERS},
        "session": {"type": "string"},
        "reset": {"type": "boolean"},
        "reward": {"type": "number"},
        "action_masks": {"type": "array", "items": {"type": "boolean"}},
        "state": {"type": "object", "additionalProperties": {"type": "array"}},
    },
}
_INFER = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "parameters": {"type": "object"},
        "inputs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "shape", "datatype"],
                "properties": {
                    "name": {"type": "string"},
                    "shape": {"type": "array", "items": {"type": "integer"}},
                    "datatype": {"type": "string"},
                    "data": {"type": "array", "items": {}},
                },
            },
        },
    },
}
