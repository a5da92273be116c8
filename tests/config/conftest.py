"""Fixtures for tests that change single values of a composed configuration."""

import pytest

from rlzoo_plus.config.resolve import resolve
from rlzoo_plus.config.search_path import conf_dir


@pytest.fixture(scope="session")
def defaults():
    """Composed values by algorithm; composing is slow, so each is composed once."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    GlobalHydra.instance().clear()
    known = {}

    def get(algo):
        if algo not in known:
            with initialize_config_dir(str(conf_dir()), version_base="1.3"):
                cfg = compose("config", [f"algo={algo}", "tuned=none"])
            known[algo] = OmegaConf.to_container(cfg, resolve=True)
        return known[algo]

    return get


@pytest.fixture
def check(defaults):
    """Return a function: dotted changes to the untuned defaults of an algorithm, resolved."""
    import copy

    def check_them(algo="ppo", **changes):
        values = copy.deepcopy(defaults(algo))
        for dotted, value in changes.items():
            *path, last = dotted.split("__")
            node = values
            for part in path:
                if not isinstance(node.get(part), dict):
                    node[part] = {}
                node = node[part]
            node[last] = value
        return resolve(values, env_name="cartpole_bullet")

    return check_them
