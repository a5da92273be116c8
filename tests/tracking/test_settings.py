"""What a user is told when a tracker can not work as configured."""

import sys

import pytest

from rlzoo_plus.config.schema import TrackerConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tracking import make_tracker
from rlzoo_plus.tracking.safe import SafeTracker
from rlzoo_plus.tracking.tracker import as_text, flatten


def tracker_config(name, offline=True, **kwargs):
    return TrackerConfig(name=name, project="test", offline=offline, kwargs=kwargs)


def test_an_unknown_tracker_gets_did_you_mean():
    with pytest.raises(ConfigError, match=r"'wandbb'.* Did you mean 'wandb'"):
        make_tracker(tracker_config("wandbb"))


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_names_its_extra(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError) as caught:
        make_tracker(tracker_config(name))
    assert str(caught.value) == (
        f"tracker={name} needs the package {name}. Install it: pip install 'rlzoo-plus[{name}]'"
    )


@pytest.mark.parametrize(
    ("kwargs", "mend"),
    [
        ({"gruop": "a"}, "Did you mean 'group'"),
        ({"project": "a"}, "tracker.project"),
        ({"settings": {"api_key": "a"}}, "WANDB_API_KEY"),
    ],
)
def test_an_argument_of_wandb_that_is_unknown_or_belongs_elsewhere_is_refused(kwargs, mend):
    pytest.importorskip("wandb", reason="needs the extra wandb")
    with pytest.raises(ConfigError, match=mend):
        make_tracker(tracker_config("wandb", **kwargs))


def test_wandb_without_a_key_does_not_ask_for_one(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="needs the extra wandb")
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    monkeypatch.setattr(wandb, "init", lambda **kwargs: pytest.fail("would ask"))
    monkeypatch.setattr("builtins.input", lambda *args: pytest.fail("asked"))
    tracker = make_tracker(tracker_config("wandb", offline=False))
    with pytest.raises(ConfigError, match=r"wandb login.*WANDB_API_KEY.*tracker\.offline=true"):
        tracker.start({}, tmp_path)


def test_a_value_that_wandb_refuses_is_a_mistake_of_the_user(tmp_path):
    pytest.importorskip("wandb", reason="needs the extra wandb")
    tracker = make_tracker(tracker_config("wandb", settings={"finish_timeout": "soon"}))
    with pytest.raises(ConfigError, match="finish_timeout"):
        tracker.start({}, tmp_path)


def test_mlflow_without_a_server_says_so(monkeypatch):
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_URI"):
        make_tracker(tracker_config("mlflow", offline=False))


class Recorder:
    """Notes its calls; `start` raises what it was given."""

    def __init__(self, error):
        self.error, self.calls = error, []

    def start(self, config, run_dir):
        raise self.error

    def log(self, metrics, step):
        self.calls.append("log")

    def finish(self, result, files):
        self.calls.append("finish")

    def fail(self, message):
        self.calls.append(message)


@pytest.mark.parametrize("error", [ConfigError("no key"), KeyboardInterrupt("no key")])
def test_a_mistake_of_the_user_or_an_interrupt_ends_the_start(tmp_path, error):
    with pytest.raises(type(error), match="no key"):
        SafeTracker(Recorder(error), "some").start({}, tmp_path)


def test_a_service_that_can_not_be_reached_does_not_end_the_start(tmp_path):
    recorder = Recorder(OSError("unreachable"))
    safe = SafeTracker(recorder, "some")
    safe.start({}, tmp_path)
    safe.log({"a": 1.0}, 1)
    safe.finish({}, [])
    assert recorder.calls == ["tracking stopped: OSError: unreachable"]


def test_flat_keys_name_every_level_and_lists_stay_whole():
    nested = {"a": {"b": {"c": 1}, "d": [1, {"e": 2}]}, "f": {}}
    assert flatten(nested, ".") == {"a.b.c": 1, "a.d": [1, {"e": 2}], "f": {}}


def test_text_is_cut_to_the_limit():
    assert as_text("abcdefgh", 6) == "abc..."
    assert as_text(True, 6) == "true"
