"""What `verify-resume` takes for the run that it tries."""

import pytest

from rlzoo_plus.commands import verify_resume
from rlzoo_plus.errors import ConfigError


@pytest.fixture
def own(in_process):
    file = in_process / "own" / "experiment" / "mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("# @package _global_\nseed: 77\n")
    return in_process / "own"


def test_files_of_the_users_own_are_found(own):
    options = verify_resume._parse(["--config-dir", str(own), "experiment=mine", "--kills", "2"])
    assert verify_resume._config(options).seed == 77


def test_a_run_takes_no_files_beside_its_own_configuration(own):
    options = verify_resume._parse(["run", "--config-dir", str(own)])
    with pytest.raises(ConfigError, match=r"--config-dir .*: give a run directory or overrides"):
        verify_resume._config(options)


@pytest.mark.training
def test_a_training_that_cannot_begin_is_one_line_with_its_reason(in_process, capfd):
    wrong = ["env=pendulum", "tuned=none", "network.policy=nowhere.MyPolicy"]
    with pytest.raises(ConfigError, match=r"state failed: .*no module nowhere") as raised:
        verify_resume.main([*wrong, "--kills", "1"])
    assert "\n" not in str(raised.value)
    assert "Traceback" not in capfd.readouterr().err
