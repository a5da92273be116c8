"""Whether the plugin that steps worlds can be used here."""

import pytest

from robots.engines.bullet.plugin import get_plugin
from robots.engines.compiling import PluginError


def _reason():
    try:
        get_plugin()
    except PluginError as error:
        return str(error)
    return ""


WHY_NOT = _reason()
needs_plugin = pytest.mark.skipif(bool(WHY_NOT), reason=f"worlds are stepped in Python: {WHY_NOT}")
