"""The files of aws/: the template of a project's stack, and the table of prices."""

from __future__ import annotations

from pathlib import Path

from rlzoo_plus.errors import ConfigError


def template_path() -> Path:
    """Return aws/stack.yaml; a ConfigError if the installation lacks it."""
    return _path("stack.yaml")


def prices_path() -> Path:
    """Return aws/prices.yaml; a ConfigError if the installation lacks it."""
    return _path("prices.yaml")


def _path(name: str) -> Path:
    """Return a file: beside the package in a checkout, otherwise inside it."""
    here = Path(__file__).resolve().parents[1]
    for folder in (here / "aws", here.parent / "aws"):
        if (folder / name).is_file():
            return folder / name
    raise ConfigError(f"aws/{name} is missing from the installation. Reinstall rlzoo-plus.")
