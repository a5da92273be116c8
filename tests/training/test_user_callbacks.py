"""Callbacks of the user's own: what is built, and what is refused before it is called."""

import pytest
from support.training import make_config

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.training.callbacks import check_user_callbacks

CONFIG = ("algo=ppo", "env=pendulum", "tuned=none")


@pytest.mark.parametrize("entry", ["support.user_callbacks.Typo", "no_such_module.Mine", "nodots"])
def test_what_cannot_be_found_is_named(entry):
    with pytest.raises(ConfigError, match=entry):
        check_user_callbacks(make_config(*CONFIG, f"callbacks=[{entry}]"))


@pytest.mark.parametrize(
    "entry", ["os.system", "{os.system: {command: 'touch /tmp/evil'}}", "{pathlib.Path: {}}"]
)
def test_what_is_no_callback_is_refused_before_it_is_called(entry, monkeypatch):
    monkeypatch.setattr("os.system", lambda *_, **__: pytest.fail("called"))
    with pytest.raises(ConfigError, match="is not a BaseCallback"):
        check_user_callbacks(make_config(*CONFIG, f"callbacks=[{entry}]"))


def test_a_callback_is_built_with_its_arguments():
    path = "stable_baselines3.common.callbacks.StopTrainingOnMaxEpisodes"
    check_user_callbacks(make_config(*CONFIG, f"callbacks=[{{{path}: {{max_episodes: 3}}}}]"))
    with pytest.raises(ConfigError, match="max_episode"):
        check_user_callbacks(make_config(*CONFIG, f"callbacks=[{{{path}: {{max_episode: 3}}}}]"))


def test_a_registered_callback_is_chosen_by_its_name(monkeypatch):
    from stable_baselines3.common.callbacks import StopTrainingOnMaxEpisodes

    import rlzoo_plus as rz
    from rlzoo_plus.config.catalog import CALLBACKS

    with pytest.raises(ConfigError, match="mine"):
        check_user_callbacks(make_config(*CONFIG, "callbacks=[mine]"))
    # Taken away again after the test.
    monkeypatch.setitem(CALLBACKS, "mine", StopTrainingOnMaxEpisodes)
    rz.register_callback("mine", StopTrainingOnMaxEpisodes)
    check_user_callbacks(make_config(*CONFIG, "callbacks=[{mine: {max_episodes: 3}}]"))
    with pytest.raises(ConfigError, match="BaseCallback"):
        rz.register_callback("other", dict)
