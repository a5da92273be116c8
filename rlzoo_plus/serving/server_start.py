"""Starts the server: what it serves, at which address, for whom; and ends it without a loss."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.processes import signal_handlers
from rlzoo_plus.serving.audit_log import AuditLog
from rlzoo_plus.serving.following import Follower
from rlzoo_plus.serving.guard import LARGEST_BODY, Access
from rlzoo_plus.serving.policy_source import PolicySource
from rlzoo_plus.serving.served_policy import ServedPolicy
from rlzoo_plus.serving.service import Service
from rlzoo_plus.serving.service_metrics import ServiceMetrics
from rlzoo_plus.serving.shadow import Shadow
from rlzoo_plus.serving.web_app import make_app

TOKEN = "RLZOO_PLUS_SERVE_TOKEN"
_LEAST_TOKEN, _DRAIN_S = 16, 10


@dataclass(frozen=True)
class Address:
    """Where the server listens, and who may ask."""

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None
    behind_proxy: bool = False
    needs_token: bool = True

    def access(self) -> Access:
        """Return who may ask.

        Raises:
            ConfigError: Others could reach it, and it has no token, or no TLS.
        """
        token = os.environ.get(TOKEN) or None
        if token is not None and (len(token) < _LEAST_TOKEN or not token.isascii()):
            raise ConfigError(f"{TOKEN}: a token has at least {_LEAST_TOKEN} letters of ASCII.")
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("--tls-cert and --tls-key are given together, or not at all.")
        is_local = _is_loopback(self.host)
        if not self.needs_token and not self.behind_proxy:
            raise ConfigError("--no-token needs --behind-proxy: the proxy must know who asks.")
        if not is_local and token is None and self.needs_token:
            raise ConfigError(
                f"--host {printable(self.host)} lets other machines in: set {TOKEN} in the "
                "environment, which they must send."
            )
        if not is_local and self.certificate is None and not self.behind_proxy:
            raise ConfigError(
                f"--host {printable(self.host)} needs --tls-cert and --tls-key, since a token is "
                "sent; or say --behind-proxy if a proxy in front of it has TLS."
            )
        local_only = is_local and not self.behind_proxy
        return Access(token, local_only=local_only, behind_proxy=self.behind_proxy)

    def listening(self) -> socket.socket:
        """Return the socket.

        Raises:
            ConfigError: The port is taken, or the address is none of this machine.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # With the protocol named, asyncio sends small answers at once (TCP_NODELAY).
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((self.host, self.port))
        except OSError as error:
            made.close()
            where = f"--host {printable(self.host)} --port {self.port}"
            raise ConfigError(f"{where}: {error.strerror}. Choose another.") from None
        return made


@dataclass(frozen=True)
class Plan:
    """What is served, and how."""

    source: PolicySource
    audit: Path | None = None
    audit_full: str = "stop"
    audit_queue: int = 10_000
    rate: float | None = None
    interval_s: float = 0.0
    shadow: PolicySource | None = None
    shadow_file: Path = Path("shadow.jsonl")
    shadow_command: tuple[str, ...] = ()
    is_shielded: bool = True


def serve(plan: Plan, address: Address, tell: Callable[[str], None]) -> int:
    """Serve until a signal ends it; requests that began are answered first.

    Raises:
        ConfigError: Something cannot be served, opened or written.
    """
    access, listening = address.access(), address.listening()
    closes: list[Callable[[], None]] = []
    try:
        service = _service(plan, closes, tell)
        config = _config(service, access, address)
        server = _Server(config, service)
        # The port answers as soon as this is read.
        listening.listen(1024)
        host = f"[{address.host}]" if ":" in address.host else address.host
        scheme = "http" if address.certificate is None else "https"
        about = f"{service.current.name}, version {service.current.version}"
        url = f"{scheme}://{host}:{listening.getsockname()[1]}"
        tell(f"{url}   {about}; {url}/docs   (Ctrl-C ends it)")

        # uvicorn sends itself the signal again as it is done, which then means nothing.
        with signal_handlers(dict.fromkeys((signal.SIGTERM, signal.SIGINT), lambda *_: None)):
            server.run(sockets=[listening])
        tell("ended; what had begun was answered")
        return 0
    finally:
        listening.close()
        for close in reversed(closes):
            close()


class _Server(uvicorn.Server):
    """Tells the service that a signal came."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.is_ending = True
        super().handle_exit(sig, frame)


def _service(plan: Plan, closes: list[Callable[[], None]], tell: Callable[[str], None]) -> Service:
    metrics = ServiceMetrics()
    policy, _ = _loaded(plan, plan.source)
    if other := policy.about.get("other_environment"):
        tell(f"note: another environment than in training: {printable(other, 1000)}")
    audit = None
    if plan.audit is not None:
        audit = AuditLog(plan.audit, full=plan.audit_full, queue=plan.audit_queue)
        closes.append(audit.close)
        if audit.lost:
            tell(f"note: the last server was killed; {audit.lost} lines of the audit log are lost")
        audit.event("serve", **_told(policy))
        metrics.gauges["audit_queue"] = ("Lines that wait.", audit.__len__)
        metrics.gauges["audit_dropped_total"] = ("Left out.", lambda: audit.dropped)
        metrics.gauges["audit_lost"] = ("Lost when the last server died.", lambda: audit.lost)
        metrics.gauges["audit_failing"] = ("Not writable.", lambda: audit.failed is not None)
    shadow = None
    if plan.shadow is not None:
        candidate, folder = _loaded(plan, plan.shadow)
        if not candidate.takes_the_same(policy):
            raise ConfigError("--shadow: it takes other observations, or gives other actions.")
        shadow = Shadow(candidate, folder, plan.shadow_file, plan.shadow_command)
        closes.append(shadow.close)
        metrics.gauges["shadow_up"] = ("Whether it runs.", lambda: shadow.is_up)
        metrics.gauges["shadow_offered_total"] = ("Handed over.", lambda: shadow.offered)
        metrics.gauges["shadow_dropped_total"] = ("Left out.", lambda: shadow.dropped)
        follower = Follower(plan.shadow, candidate, shadow.replace, metrics, "shadow")
        closes.append(follower.close)
    service = Service(
        *(policy, metrics),
        audit=audit,
        shadow=shadow,
        rate=plan.rate,
        interval_s=plan.interval_s,
    )

    def take(new: ServedPolicy, folder: Path) -> None:
        del folder
        service.current = new
        if audit is not None:
            audit.event("serve", **_told(new))

    closes.append(Follower(plan.source, policy, take, metrics, "serving").close)
    metrics.gauges["sessions"] = ("WebSockets that are open.", lambda: len(service.loops))
    metrics.gauges["sequences"] = ("Sequences that are kept.", lambda: service.n_kept)
    metrics.gauges["overrides"] = ("Overrides that count.", lambda: len(service.overrides))
    return service


def _loaded(plan: Plan, source: PolicySource) -> tuple[ServedPolicy, Path]:
    version = source.version()
    folder = source.folder(version)
    return ServedPolicy(folder, source.name, version, is_shielded=plan.is_shielded), folder


def _told(policy: ServedPolicy) -> dict[str, Any]:
    """Return what the audit log says of a policy that decides from now on."""
    keys = ("environment_version", "other_environment")
    found = {key: printable(policy.about[key], 1000) for key in keys if policy.about.get(key)}
    shield = None if policy.shield is None else list(policy.shield.promises)
    return {"name": policy.name, "version": policy.version, "shield": shield, **found}


def _config(service: Service, access: Access, address: Address) -> uvicorn.Config:
    more: dict[str, Any] = {}
    if address.certificate is not None:
        more = {"ssl_certfile": address.certificate, "ssl_keyfile": address.key}
    try:
        config = uvicorn.Config(
            make_app(service, access),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws_max_size=LARGEST_BODY,
            # Messages are small, and wait for nothing.
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=_DRAIN_S,
            **more,
        )
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--tls-cert, --tls-key: {error}.") from None
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    return config


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise ConfigError(
            f"--host {printable(host)} is no IP address. Give one, as 0.0.0.0 or ::."
        ) from None
