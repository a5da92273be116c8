"""Sends packages to the Hub, and finds what others sent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.catalog import ALGORITHM_OF_STEM, ALGORITHMS
from rlzoo_plus.hub.card import LIBRARY
from rlzoo_plus.hub.client import Client, Repository
from rlzoo_plus.hub.package import Package
from rlzoo_plus.hub.repository import largest_of

_MEAN = re.compile(r"\s*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(?:\+/-\s*(\d+(?:\.\d+)?))?\s*")


@dataclass(frozen=True)
class Found:
    """A model that a search has found; everything in it is as its owner says."""

    repo: str
    algo: str
    env: str
    mean_return: str
    downloads: int
    changed: str  # The day


def send(package: Package, repo: str, *, private: bool, message: str) -> str:
    """Send a package, and return its commit.

    Files of an earlier push that this one has not are removed; files of others stay.

    Raises:
        HubError: It is not allowed, or a request failed.
    """
    client, files = Client(), package.files()
    client.create(repo, private=private)
    there = client.files(Repository(repo))
    obsolete = [name for name in there if name not in files and largest_of(name, state=True)]
    return client.push(repo, files, obsolete, message)


def search(
    algo: str | None = None,
    env: str | None = None,
    author: str | None = None,
    library: str = LIBRARY,
    limit: int = 20,
) -> list[Found]:
    """Return policies on the Hub, the most downloaded first.

    Raises:
        HubError: A request failed.
    """
    is_ours = library == LIBRARY
    tags = [library, *filter(None, [env, algo if is_ours else None])]
    # The RL Zoo's repositories have no tag of their algorithm.
    models = Client().search(tags, author, limit if is_ours or algo is None else 10 * limit)
    found = [_found(model) for model in models]
    return [each for each in found if algo in (None, each.algo)][:limit]


def _found(model: Any) -> Found:
    tags = [tag for tag in model.tags or [] if isinstance(tag, str)]
    index = model.model_index if isinstance(model.model_index, list) else []
    try:
        entry: Any = index[0]
        result = entry["results"][0]
        env, stated = result["dataset"]["name"], result["metrics"][0]["value"]
        name = str(entry["name"]).lower()
    except (IndexError, KeyError, TypeError):
        env, stated, name = "-", "-", ""
    name = ALGORITHM_OF_STEM.get(name, name)
    algo = name if name in ALGORITHMS else next((tag for tag in tags if tag in ALGORITHMS), "-")
    score = _MEAN.fullmatch(str(stated)[:100])
    day = model.last_modified
    return Found(
        repo=printable(model.id, 200),
        algo=algo,
        env=printable(env, 60),
        mean_return=printable(stated, 40) if score else "-",
        downloads=model.downloads if isinstance(model.downloads, int) else 0,
        changed="-" if day is None else f"{day:%Y-%m-%d}",
    )
