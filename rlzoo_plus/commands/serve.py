"""`rlzoo-plus serve`: a policy answers over HTTP and WebSocket."""

from __future__ import annotations

from pathlib import Path

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.arguments import add_policy, positive
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.errors import ConfigError

_LIBRARIES = ("fastapi", "starlette", "uvicorn", "websockets", "onnxruntime")


def main(arguments: list[str]) -> int:
    """Serve until a signal; return the exit code."""
    parser = command_parser(
        "serve",
        "Let a policy answer over the network: a WebSocket for control loops, the Open Inference "
        "Protocol (tritonclient), SageMaker's /invocations, /metrics for Prometheus, /docs. For "
        "this machine only, unless --host says otherwise, which needs a token in "
        "RLZOO_PLUS_SERVE_TOKEN and TLS. Needs the extra `serve`.",
        "trained/cartpole_bullet --audit audit",
    )
    add_policy(parser)
    add = parser.add_argument
    add("--host", default="127.0.0.1", metavar="ADDRESS", help="default: %(default)s")
    add("--port", type=int, default=8080, help="0 for any free one (default: %(default)s)")
    add("--tls-cert", type=Path, metavar="FILE", help="the certificate, as PEM")
    add("--tls-key", type=Path, metavar="FILE", help="its key")
    add("--behind-proxy", action="store_true", help="a proxy in front has TLS, and says whose the "
        "request is (X-Forwarded-For)")  # fmt: skip
    add("--no-token", action="store_true", help="the proxy knows who asks, as SageMaker does")
    add("--audit", type=Path, metavar="DIR", help="write a line for each decision there")
    add("--audit-full", choices=("stop", "drop"), default="stop", help="while lines cannot be "
        "written fast enough: decide nothing (default), or leave lines out")  # fmt: skip
    add("--audit-queue", type=positive(int), default=10_000, metavar="N", help="lines that may "
        "wait, and are lost if it is killed (default: %(default)s)")  # fmt: skip
    add("--rate", type=positive(float), metavar="N", help="requests a second of a client, above "
        "which it must wait (429)")  # fmt: skip
    add("--interval", type=positive(float), metavar="S", help="least seconds between decisions of "
        "a session; before, its last action is held")  # fmt: skip
    add("--no-shield", action="store_true", help="decide without the shield of the environment: "
        "something else keeps its limits")  # fmt: skip
    add("--shadow", metavar="RUN", help="a candidate that decides beside it, and never answers")
    add("--shadow-file", type=Path, metavar="FILE", default=Path("shadow.jsonl"),
        help="where they are compared (default: %(default)s)")  # fmt: skip
    options = parser.parse_args(arguments)
    if not 0 <= options.port < 2**16:
        raise ConfigError(f"--port {options.port}: must be from 0 to 65535.")
    try:
        from rlzoo_plus.serving import policy_source, server_start
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _LIBRARIES:
            raise
        raise ConfigError(
            f"serve needs {printable(error.name)}: pip install 'rlzoo-plus[serve]'."
        ) from None
    address = server_start.Address(
        *(options.host, options.port, options.tls_cert, options.tls_key),
        *(options.behind_proxy, not options.no_token),
    )
    # Before anything is exported.
    address.access()
    allowed = policy_source.Allowed(options.trust, options.other_env)
    source = policy_source.source_of(options.run, options.which, allowed)
    shadow = None
    if options.shadow is not None:
        shadow = policy_source.source_of(options.shadow, None, allowed)
    plan = server_start.Plan(
        *(source, options.audit, options.audit_full, options.audit_queue, options.rate),
        *(options.interval or 0.0, shadow, options.shadow_file),
        is_shielded=not options.no_shield,
    )
    return server_start.serve(plan, address, tell)
