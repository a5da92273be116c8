"""Fixtures of all tests; makes tests/support importable."""

import gc
import logging
import os
import signal
import sys
import time
import zlib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

# A shell starts what runs in the background with Ctrl-C ignored; tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_BEGUN = time.monotonic()
_LEVELS = {name: logging.getLogger(name).level for name in ("root", "rlzoo_plus", "robots")}


def pytest_addoption(parser):
    parser.addoption(
        "--time-limit", type=float, default=None, help="seconds after which no further test begins"
    )
    parser.addoption(
        "--training", metavar="SEED:PARTS", help="of the tests that train, one part, by a hash"
    )


def pytest_collection_modifyitems(config, items):
    if config.getoption("--training") is None:
        return
    seed, parts = map(int, config.getoption("--training").split(":"))
    left_out = [
        item
        for item in items
        if item.get_closest_marker("training") and (zlib.crc32(item.nodeid.encode()) + seed) % parts
    ]
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    # Modules and tests stay until the end: searching them for garbage takes seconds, each time.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item):
    limit = item.config.getoption("--time-limit")
    if limit is not None and time.monotonic() - _BEGUN > limit:
        pytest.skip(f"no time left of {limit:.0f} s; make check runs it")


@pytest.fixture(autouse=True)
def logging_as_before():
    """Undo what commands in this process do to logging, also those in fixtures of a module."""
    _restore_logging()
    yield
    _restore_logging()


def _restore_logging():
    for name, level in _LEVELS.items():
        logger = logging.getLogger(name)
        if logger.level != level:
            logging.captureWarnings(False)
            logger.setLevel(level)
        own = [it for it in logger.handlers if type(it).__module__.startswith("rlzoo_plus.")]
        for handler in own:
            logger.removeHandler(handler)


@pytest.fixture
def compose_values():
    """Return a function: command-line arguments to composed plain values and group choices."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    from rlzoo_plus.config.overrides import prepare_overrides
    from rlzoo_plus.config.search_path import conf_dir

    GlobalHydra.instance().clear()

    def compose_them(*arguments):
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            overrides = prepare_overrides(list(arguments))
            cfg = compose("config", overrides, return_hydra_config=True)
        choices = dict(cfg.hydra.runtime.choices)
        # Hydra's own node has values that only a started job can fill in.
        values = {key: value for key, value in cfg.items_ex(resolve=False) if key != "hydra"}
        return OmegaConf.to_container(OmegaConf.create(values), resolve=True), choices

    return compose_them


@pytest.fixture
def resolve_config(compose_values):
    """Return a function: command-line arguments to a checked configuration and its warnings."""
    from rlzoo_plus.config.resolve import resolve

    def resolve_them(*arguments):
        values, choices = compose_values(*arguments)
        return resolve(values, env_name=choices.get("env"))

    return resolve_them


@pytest.fixture
def in_process(tmp_path, monkeypatch):
    """Let a command run in this process, in a folder of its own, and undo what it leaves."""
    from hydra.core.global_hydra import GlobalHydra

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setitem(os.environ, "HYDRA_FULL_ERROR", "1")
    GlobalHydra.instance().clear()
    yield tmp_path
    GlobalHydra.instance().clear()


@pytest.fixture
def answer(in_process, capsys):
    """Return a function: verb and arguments to exit code and everything that was printed."""
    from rlzoo_plus.commands import dispatch

    def answer_it(verb, *arguments):
        try:
            code = dispatch.run(verb, list(arguments))
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return answer_it


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in a folder of the test's own, where commands also keep what they cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def say(capsys):
    """Return a function: the words of a command to its exit code, its output and its errors."""
    from rlzoo_plus.commands import dispatch

    def say_it(*words):
        verb, *arguments = map(str, words)
        code = dispatch.run(verb, arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return say_it
