"""The files of aws/: the template of a project's stack, and the table of prices."""

from __future__ import annotations

from pathlib import Path

from rlzoo_plus.config.search_path import shipped_folder


def template_path() -> Path:
    """Return aws/stack.yaml; a ConfigError if the installation lacks it."""
    return shipped_folder("aws", "stack.yaml") / "stack.yaml"


def prices_path() -> Path:
    """Return aws/prices.yaml; a ConfigError if the installation lacks it."""
    return shipped_folder("aws", "prices.yaml") / "prices.yaml"
