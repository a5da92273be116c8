"""The script of a machine: bash that a linter accepts, and what it does when a worker ends."""

import os
import shutil
import subprocess
import time
from dataclasses import replace

import pytest

from rlzoo_plus.cloud.user_data import LARGEST_BYTES, MachineScript, user_data
from rlzoo_plus.errors import ConfigError

NASTY = 's3://bucket/it\'s $(touch hacked) `touch hacked` "q" ; touch hacked'
SCRIPT = MachineScript(
    worker=[NASTY, "--launch", "000001-0a1b2c3d"],
    leave=[NASTY, "--project", "lab"],
    launch="000001-0a1b2c3d",
    region="us-east-1",
    deadline=2_000_000_000,
)
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/rlzoo-lab@sha256:" + "0" * 64
KINDS = {
    "ami": SCRIPT,
    "image": replace(SCRIPT, image=IMAGE),
    "public image": replace(
        SCRIPT, image="python:3.11", install=["python3", "-c", "print('a')", "{}"]
    ),
    "secrets": replace(SCRIPT, image=IMAGE, secrets={"WANDB_API_KEY": "/rlzoo/lab/a b"}),
}
# Each program notes how it was called.
FAKES = {
    "shutdown": 'echo "shutdown $*" >> calls',
    "sleep": 'echo "sleep $*" >> calls',
    "rlzoo-plus": (
        'echo "$1 ${*: -1}" >> calls\n'
        'n=$(grep -c "^$1 " calls)\n'
        'exit "$(sed -n "${n}p" "$1.codes")"'
    ),
    "aws": 'echo "aws $1 $2" >> calls; [ "$2" != describe-fleets ] || echo fleet-1 fleet-2',
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_linter_finds_nothing_in_the_script(kind):
    if shutil.which("shellcheck") is None:
        pytest.skip("needs shellcheck")
    # It would ask whether what is in quotes was meant to be.
    plain = ["s3://bucket/lab/first", "--launch", SCRIPT.launch]
    text = user_data(replace(KINDS[kind], worker=plain, leave=plain))
    done = subprocess.run(["shellcheck", "-"], input=text, capture_output=True, text=True)
    assert done.stdout == ""


@pytest.mark.parametrize("kind", KINDS)
def test_the_script_is_bash(kind):
    done = subprocess.run(
        ["bash", "-n"], input=user_data(KINDS[kind]), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def run(tmp_path, script=SCRIPT, worker=(), leave=(), fakes=FAKES):
    """Run the script with programs that only note their calls; return these lines."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    for name, body in fakes.items():
        (bin_dir / name).write_text(f"#!/bin/bash\n{body}\n")
        (bin_dir / name).chmod(0o755)
    for verb, codes in (("worker", worker), ("leave-fleet", leave)):
        (tmp_path / f"{verb}.codes").write_text("".join(f"{code}\n" for code in codes))
    text = user_data(script).replace("HOME=/root", f"HOME={tmp_path}")
    environment = {"PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", text], cwd=tmp_path, env=environment, check=False)
    assert not (tmp_path / "hacked").exists()
    return (tmp_path / "calls").read_text().splitlines()


def test_a_machine_arms_its_end_first_and_ends_when_nothing_is_left(tmp_path):
    script = replace(SCRIPT, deadline=int(time.time()) + 3600)
    calls = run(tmp_path, script, worker=[0], leave=[0])
    assert calls[0] in ("shutdown -P +59", "shutdown -P +60")
    assert calls[1:] == [
        "worker 000001-0a1b2c3d",
        "leave-fleet --unless-needed",
        "shutdown -P now",
    ]


def test_an_interrupted_machine_leaves_its_place_to_another_one(tmp_path):
    calls = run(tmp_path, worker=[75])
    assert calls[1:] == ["worker 000001-0a1b2c3d", "shutdown -P now"]


def test_a_machine_that_is_needed_waits_and_works_again(tmp_path):
    calls = run(tmp_path, worker=[0, 0], leave=[75, 0])
    assert calls[1:] == [
        *("worker 000001-0a1b2c3d", "leave-fleet --unless-needed", "sleep 30"),
        *("worker 000001-0a1b2c3d", "leave-fleet --unless-needed", "shutdown -P now"),
    ]


@pytest.mark.parametrize("code", [1, 2, 137])
def test_a_machine_that_cannot_work_is_not_replaced(tmp_path, code):
    calls = run(tmp_path, worker=[code], leave=[0])
    assert calls[1:] == ["worker 000001-0a1b2c3d", "leave-fleet lab", "shutdown -P now"]


def test_a_machine_that_cannot_leave_ends_the_fleet(tmp_path):
    calls = run(tmp_path, worker=[127], leave=[127])
    assert calls[3:] == ["aws ec2 describe-fleets", "aws ec2 delete-fleets", "shutdown -P now"]


def test_a_machine_whose_image_cannot_be_pulled_ends_the_fleet(tmp_path):
    fakes = FAKES | {"docker": "exit 1", "systemctl": "exit 0"}
    calls = run(tmp_path, KINDS["image"], fakes=fakes)
    assert calls[-3:] == ["aws ec2 describe-fleets", "aws ec2 delete-fleets", "shutdown -P now"]


def test_a_machine_that_starts_at_the_end_does_not_work(tmp_path):
    script = replace(SCRIPT, deadline=int(time.time()) + 30)
    calls = run(tmp_path, script, leave=[0])
    assert calls == ["shutdown -P +1", "leave-fleet lab", "shutdown -P now"]


def test_a_secret_gets_to_the_container_by_its_name_only(tmp_path):
    docker = 'echo "docker $1 $WANDB_API_KEY ${*: -1}" >> calls; [ "$1" != run ] || exit 75'
    aws = FAKES["aws"] + '; [ "$1" != ssm ] || echo hunter2'
    fakes = FAKES | {"docker": docker, "systemctl": "exit 0", "aws": aws}
    calls = run(tmp_path, KINDS["secrets"], fakes=fakes)
    assert "docker run hunter2 000001-0a1b2c3d" in calls
    text = user_data(KINDS["secrets"])
    assert "--env WANDB_API_KEY" in text
    assert "--env WANDB_API_KEY=" not in text


def test_a_variable_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="cannot be an environment variable"):
        user_data(replace(SCRIPT, secrets={"A; touch hacked": "/x"}))


def test_a_script_that_aws_would_not_take_is_refused():
    with pytest.raises(ConfigError, match="AWS takes"):
        user_data(replace(SCRIPT, worker=["x" * LARGEST_BYTES]))
