"""Written datasets of the tiny environments."""

import pytest
import support.tiny_envs as tiny
from support.demonstrations import demonstrate

from rlzoo_plus.demonstrations.minari_format import write_dataset


@pytest.fixture
def reach(tmp_path):
    """Return a dataset of TinyReach."""
    path = tmp_path / "reach"
    write_dataset(path, demonstrate(tiny.TinyReach()))
    return path


@pytest.fixture
def reach_discrete(tmp_path):
    """Return a dataset of TinyReach with three actions."""
    path = tmp_path / "reach-discrete"
    write_dataset(path, demonstrate(tiny.TinyReach(discrete=True)))
    return path
