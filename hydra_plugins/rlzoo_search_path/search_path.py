"""A Hydra search path plugin: a user's directories come before the shipped conf/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hydra.core.config_search_path import SearchPathQuery
from hydra.plugins.search_path_plugin import SearchPathPlugin

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath


class RlzooSearchPath(SearchPathPlugin):
    """Adds the directories of `rlzoo_plus.config.search_path.searched_first`."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Search the user's directories before the primary one."""
        from rlzoo_plus.config.search_path import first_dirs

        for folder in first_dirs():
            search_path.prepend("user", f"file://{folder}", SearchPathQuery(provider="main"))
