"""How often clients may ask: a bucket of tokens for each of them."""

from __future__ import annotations

import math
import time
from collections import OrderedDict

from rlzoo_plus.serving.request_checks import Refused

MOST_CLIENTS = 10_000


class RateLimit:
    """Lets each client ask so often, and a second's worth at once."""

    def __init__(self, per_second: float | None) -> None:
        """Set requests a second, None for any number."""
        self._rate = per_second
        self._room = max(per_second or 0.0, 1.0)
        # Tokens left, and when that was; who has not asked for longest is forgotten.
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def ask(self, client: str) -> None:
        """Count a request.

        Raises:
            Refused: The client must wait, and for how long.
        """
        if self._rate is None:
            return
        now = time.monotonic()
        left, since = self._clients.pop(client, (self._room, now))
        left = min(left + (now - since) * self._rate, self._room)
        self._clients[client] = (left - (left >= 1.0), now)
        if len(self._clients) > MOST_CLIENTS:
            self._clients.popitem(last=False)
        if left < 1.0:
            wait = math.ceil(1000.0 * (1.0 - left) / self._rate) / 1000.0
            rule = f"more than {self._rate:g} requests a second"
            raise Refused("rate", rule, f"Wait {wait:g} s", 429, wait)
