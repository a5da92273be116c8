"""Metrics of evaluation episodes: those that are shipped, and what mistakes of others cost."""

import logging

import numpy as np
import pytest

from rlzoo_plus.config.own_code import is_harmless
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.testing import MetricContract
from rlzoo_plus.training.metrics import ActionChange, Energy, EpisodeMeter, load_metrics


class TestActionChange(MetricContract):
    @pytest.fixture
    def metric(self):
        return ActionChange()


class TestEnergy(MetricContract):
    @pytest.fixture
    def metric(self):
        return Energy()

    def steps(self, seed):
        return [(o, a, r, {"power": 2.0 + seed, "dt": 0.5}) for o, a, r, _ in super().steps(seed)]


class Broken:
    """Fails in the second step of an episode."""

    def begin(self):
        self.count = 0

    def step(self, observation, action, reward, info):
        self.count += 1
        if self.count == 2:
            raise ValueError("no second step")

    def end(self):
        return "text"


def _episode(meter, actions):
    for action in actions:
        meter.step(np.zeros(1), action, 1.0, {"energy": 2.0})
    return meter.end()


def test_the_change_of_the_action_is_its_mean_from_step_to_step():
    meter = EpisodeMeter({"change": ActionChange, "energy": Energy})
    told = _episode(meter, [np.array([0.0, 0.0]), np.array([1.0, 0.0]), np.array([1.0, 1.0])])
    assert told == {"change": 0.5, "energy": 6.0}
    assert _episode(meter, [np.int64(1), np.int64(3), np.int64(3)])["change"] == 0.5
    assert _episode(meter, [np.int64(1)]) == {"energy": 2.0}


def test_a_metric_that_fails_is_left_out_and_the_others_are_not(caplog):
    meter = EpisodeMeter({"mine": Broken, "energy": Energy})
    with caplog.at_level(logging.WARNING):
        assert _episode(meter, [0, 1]) == {"energy": 4.0}
        assert _episode(meter, [0]) == {"energy": 2.0}
    assert "mine is left out of the evaluations: ValueError: no second step" in caplog.text


def test_an_end_that_is_no_number_is_refused(caplog):
    assert _episode(EpisodeMeter({"other": Broken}), [0]) == {}
    assert "end() returned 'text'" in caplog.text


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        (["action_chang"], "Did you mean 'action_change'?"),
        (["test_metrics.Nothing"], "is not in its module"),
        (["test_metrics.TestEnergy"], "has no method begin, step, end"),
        ([{"test_metrics.Broken": {"much": 1}}], "Broken"),
        (["energy", {"energy": {}}], "recorded as energy, which is there already"),
    ],
)
def test_what_is_no_metric_is_refused_in_one_line(entries, told):
    with pytest.raises(ConfigError) as caught:
        load_metrics(entries)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_metrics_are_named_after_their_class():
    assert list(load_metrics(["energy", "test_metrics.Broken"])) == ["energy", "broken"]


def test_what_is_measured_does_not_change_the_hash_of_a_run(resolve_config):
    plain, measured = resolve_config(), resolve_config("eval.metrics=[energy]")
    assert config_hash(plain.config) == config_hash(measured.config)


def test_stored_overrides_may_choose_shipped_metrics_only():
    assert is_harmless("eval.metrics=[energy]")
    assert not is_harmless("eval.metrics=[my_module.Mine]")
    assert not is_harmless("eval.metrics=[{my_module.Mine: {}}]")
