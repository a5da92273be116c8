"""The page that shows the interface: plain HTML, nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

_STYLE = (
    "body{font:15px system-ui,sans-serif;max-width:50em;margin:2em auto;padding:0 1em}"
    "section{border-top:1px solid #ccc}pre{background:#f5f5f5;padding:.7em;overflow:auto}"
    "b{font-family:monospace;margin-right:.5em}"
)
_SESSION = (
    "A WebSocket for a control loop. The server tells first what the policy takes. Then each "
    'message <code>{"observation": [...]}</code> is answered with the action; '
    '<code>"reset": true</code> begins an episode, <code>"reward"</code> is for the audit log.'
)


def page_of(openapi: Mapping[str, Any]) -> str:
    """Return the page of an OpenAPI description."""
    title = escape(openapi["info"]["title"])
    parts = [f"<section><h3><b>WS</b>/v1/session</h3><p>{_SESSION}</p></section>"]
    for path, methods in openapi["paths"].items():
        parts += [_section(path, method.upper(), about) for method, about in methods.items()]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style><h1>{title}</h1>"
        '<p>For programs: <a href="openapi.json">openapi.json</a></p>' + "".join(parts)
    )


def _section(path: str, method: str, about: Mapping[str, Any]) -> str:
    body = about.get("requestBody", {}).get("content", {}).get("application/json", {})
    shown = f"<pre>{escape(json.dumps(body['schema'], indent=1))}</pre>" if body else ""
    told = escape(about.get("description", ""))
    summary = escape(about.get("summary", ""))
    return (
        f"<section><h3><b>{method}</b>{escape(path)}</h3><p>{summary}. {told}</p>{shown}</section>"
    )
