"""The template of a project's stack, aws/stack.yaml."""

from __future__ import annotations

from pathlib import Path

from rlzoo_plus.errors import ConfigError


def template_path() -> Path:
    """Return aws/stack.yaml: beside the package in a checkout, otherwise inside it.

    Raises:
        ConfigError: The installation lacks it.
    """
    here = Path(__file__).resolve().parents[1]
    for folder in (here / "aws", here.parent / "aws"):
        if (folder / "stack.yaml").is_file():
            return folder / "stack.yaml"
    raise ConfigError("aws/stack.yaml is missing from the installation. Reinstall rlzoo-plus.")
