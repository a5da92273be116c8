"""The trust file covers what the user's own paths import, and nothing that a run could bring."""

import importlib
import os
import sys
from pathlib import Path

import pytest
from support.training import tiny_config

from rlzoo_plus.analysis.find_run import require_trust
from rlzoo_plus.commands import dispatch
from rlzoo_plus.config.own_code import own_code
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.trusted import (
    add_trusted,
    import_trusted,
    left_to_trust,
    remove_trusted,
    trust_file,
    trusted_paths,
)
from rlzoo_plus.errors import ConfigError

MARK = "import sys; sys.modules['mine_was_here'] = sys\n"
WRAPPER = "import gymnasium\nclass Wrapper(gymnasium.Wrapper): pass\n"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Give the user a configuration folder and a project of their own; forget what is imported."""
    known, paths = set(sys.modules), list(sys.path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    project = tmp_path / "project"
    write(project / "mine_pkg" / "__init__.py", "")
    write(project / "mine_pkg" / "parts.py", WRAPPER)
    write(project / "mine_alone.py", WRAPPER + "from gymnasium.wrappers import ClipReward\n")
    monkeypatch.syspath_prepend(project)
    yield project
    sys.path[:] = paths
    for name in [n for n in sys.modules if n.startswith("mine_") and n not in known]:
        del sys.modules[name]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    importlib.invalidate_caches()
    return path


@pytest.fixture(scope="module")
def plain():
    return tiny_config("ppo", "Pendulum-v1").model_dump()


@pytest.fixture
def run_with(plain):
    """Return a function: packages and wrappers to the configuration of a stored run."""

    def make(*packages, wrappers=(), **values):
        env = {**plain["env"], "packages": list(packages), "wrappers": list(wrappers)}
        return RunConfig.model_validate({**plain, "env": env, **values})

    return make


def test_without_a_file_nothing_is_trusted(run_with):
    config = run_with("mine_pkg", wrappers=["mine_alone.Wrapper"])
    assert left_to_trust(config) == own_code(config) == ["mine_pkg", "mine_alone.Wrapper"]


def test_a_package_is_trusted_with_its_modules_and_once_for_every_run(run_with, home):
    assert add_trusted(home / "mine_pkg")
    assert left_to_trust(run_with("mine_pkg", wrappers=["mine_pkg.parts.Wrapper"])) == []
    assert left_to_trust(run_with("mine_pkg", "mine_alone")) == ["mine_alone"]
    assert "mine_pkg" not in sys.modules
    assert not add_trusted(home / "mine_pkg")
    assert remove_trusted(home / "mine_pkg")
    assert left_to_trust(run_with("mine_pkg")) == ["mine_pkg"]


def test_a_trusted_run_opens_without_asking_and_another_says_how(run_with, home, tmp_path):
    config = run_with("mine_pkg", wrappers=["mine_pkg.parts.Wrapper"])
    with pytest.raises(ConfigError, match="--trust") as refused:
        require_trust(config, tmp_path / "run", trust=False)
    assert f"rlzoo-plus trust {home}/mine_pkg" in str(refused.value)
    add_trusted(home / "mine_pkg")
    require_trust(config, tmp_path / "run", trust=False)
    assert "mine_pkg.parts" in sys.modules


def test_code_in_the_run_itself_is_never_suggested(run_with, tmp_path, monkeypatch):
    write(tmp_path / "run" / "mine_bait.py", MARK)
    monkeypatch.chdir(tmp_path / "run")
    with pytest.raises(ConfigError, match="--trust") as refused:
        require_trust(run_with("mine_bait"), tmp_path / "run", trust=False)
    assert "rlzoo-plus trust" not in str(refused.value)


def test_a_module_of_a_trusted_name_elsewhere_is_not_trusted(run_with, home, tmp_path, monkeypatch):
    add_trusted(home / "mine_pkg")
    write(tmp_path / "run" / "mine_pkg" / "__init__.py", MARK)
    monkeypatch.syspath_prepend(tmp_path / "run")
    assert left_to_trust(run_with("mine_pkg")) == ["mine_pkg"]
    with pytest.raises(ConfigError, match="not the code of that name that you trust") as refused:
        require_trust(run_with("mine_pkg"), tmp_path / "elsewhere", trust=False)
    assert f"from here, it is {tmp_path}/run/mine_pkg." in str(refused.value)
    assert "rlzoo-plus trust" not in str(refused.value)
    assert "mine_was_here" not in sys.modules


def test_of_a_working_folder_only_the_modules_directly_in_it_are_trusted(
    run_with, home, monkeypatch
):
    # A pulled run brings any files, also __init__.py.
    for place in ("outputs/mine_run", "mine_run"):
        write(home / place / "__init__.py", MARK)
        write(home / place / "bait.py", MARK)
    monkeypatch.chdir(home)
    add_trusted(home)
    assert left_to_trust(run_with("mine_alone")) == []
    for name in ("outputs.mine_run.bait", "outputs.mine_run", "mine_run.bait", "mine_run"):
        assert left_to_trust(run_with(name)) == [name]


def test_a_folder_that_is_no_package_is_trusted_in_itself(run_with, home):
    write(home / "mine_folder" / "parts.py", WRAPPER)
    add_trusted(home / "mine_folder")
    wrappers = ["mine_folder.parts.Wrapper", "mine_folder.other.Wrapper"]
    assert left_to_trust(run_with(wrappers=wrappers)) == wrappers[1:]


def test_a_link_into_trusted_code_is_not_trusted(run_with, home, tmp_path, monkeypatch):
    # Python would run the compiled code beside the link.
    add_trusted(home)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine_linked.py").symlink_to(home / "mine_alone.py")
    monkeypatch.syspath_prepend(tmp_path / "run")
    assert left_to_trust(run_with("mine_linked")) == ["mine_linked"]


def test_a_link_out_of_trusted_code_is_not_trusted(run_with, home, tmp_path):
    add_trusted(home / "mine_pkg")
    write(tmp_path / "elsewhere" / "__init__.py", MARK)
    (home / "mine_pkg" / "folder").symlink_to(tmp_path / "elsewhere")
    (home / "mine_pkg" / "file.py").symlink_to(tmp_path / "elsewhere" / "__init__.py")
    names = ["mine_pkg.folder", "mine_pkg.file"]
    assert left_to_trust(run_with(*names)) == names


def test_code_that_anybody_can_write_is_not_trusted(run_with, home):
    add_trusted(home / "mine_alone.py")
    for path, mode in ((home / "mine_alone.py", 0o666), (home, 0o1777)):
        before = path.stat().st_mode
        path.chmod(mode)
        assert left_to_trust(run_with("mine_alone")) == ["mine_alone"]
        path.chmod(before)
    assert left_to_trust(run_with("mine_alone")) == []
    (home / "mine_pkg").chmod(0o777)
    with pytest.raises(ConfigError, match="chmod go-w"):
        add_trusted(home / "mine_pkg")


def test_a_class_that_a_trusted_module_has_imported_is_not_its_own(run_with, home):
    add_trusted(home / "mine_alone.py")
    import_trusted(run_with(wrappers=["mine_alone.Wrapper"]), "play")
    taken = run_with(wrappers=["mine_alone.ClipReward"])
    assert left_to_trust(taken) == []
    with pytest.raises(ConfigError, match=r"mine_alone\.ClipReward is a class of gymnasium"):
        import_trusted(taken, "play")


def test_a_policy_imports_no_package_that_was_not_checked(run_with, home, plain):
    # To act, a policy of a shipped algorithm needs none of the packages.
    write(home / "mine_bait.py", MARK)
    write(home / "mine_acts.py", "from torch.nn import ReLU\nclass Act(ReLU): pass\n")
    add_trusted(home / "mine_acts.py")
    network = {**plain["network"], "activation": "mine_acts.Act"}
    config = run_with(network=network, packages=["mine_bait"])
    assert left_to_trust(config, "act") == []
    import_trusted(config, "act")
    assert "mine_acts" in sys.modules
    assert "mine_was_here" not in sys.modules


def test_variables_and_trackers_of_a_run_still_need_trust(run_with, home, tmp_path, plain):
    add_trusted(home / "mine_pkg")
    tracker = {"name": "wandb", "project": "p", "offline": True, "kwargs": {}}
    with pytest.raises(ConfigError, match=r"not ship: tracker wandb\. .*--trust"):
        require_trust(run_with("mine_pkg", tracker=tracker), tmp_path, trust=False, to_train=True)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda file: file.chmod(0o620), "chmod go-w"),
        (lambda file: file.chmod(0o602), "chmod go-w"),
        (lambda file: file.parent.chmod(0o770), "chmod go-w"),
        (lambda file: file.parent.parent.chmod(0o777), "chmod go-w"),
        (lambda file: file.write_text("mine_pkg\n"), "mine_pkg is not an absolute path"),
        (lambda file: file.write_bytes(b"/\xff\n"), "cannot be read"),
        (lambda file: file.rename(file.with_name("x")) and file.symlink_to("x"), "is a link"),
    ],
)
def test_a_trust_file_that_others_may_have_written_is_refused(run_with, home, spoil, message):
    add_trusted(home / "mine_pkg")
    spoil(trust_file())
    with pytest.raises(ConfigError, match=message) as refused:
        left_to_trust(run_with("mine_pkg"))
    assert str(trust_file()) in str(refused.value)
    # What needs no trust is not kept from running by it.
    assert left_to_trust(run_with()) == []


def test_a_relative_configuration_folder_is_not_used(run_with, home, tmp_path, monkeypatch):
    # The working directory may be somebody else's run.
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "config" / "rlzoo_plus" / "trusted", f"{home}/mine_pkg\n")
    assert trusted_paths() == []


def test_the_file_is_for_its_user_alone(home):
    mask = os.umask(0)
    try:
        add_trusted(home / "mine_pkg")
    finally:
        os.umask(mask)
    assert trust_file().stat().st_mode & 0o777 == 0o600
    assert trust_file().parent.stat().st_mode & 0o777 == 0o700


def test_the_command_adds_lists_and_removes(home, capsys, monkeypatch):
    def trust(*arguments):
        code = dispatch.run("trust", list(arguments))
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    monkeypatch.chdir(home)
    assert "nothing in" in trust()[1]
    assert trust("mine_pkg", "./mine_alone.py")[0] == 0
    assert trust()[1].splitlines() == [f"{home}/mine_pkg", f"{home}/mine_alone.py"]
    (home / "mine_alone.py").unlink()
    assert f"{home}/mine_alone.py  (missing)" in trust()[1]
    assert trust("--remove", "mine_alone", "mine_pkg")[0] == 0
    assert trusted_paths() == []
    for wrong, part in {
        "mine_none": "no module of this name",
        "./none.py": "does not exist",
        "json": "not code of yours",
        "sys": "no module of this name",
    }.items():
        code, text = trust(wrong)
        assert (code, len(text.splitlines())) == (2, 1), text
        assert part in text
    assert "not listed" in trust("--remove", "./mine_pkg")[1]
