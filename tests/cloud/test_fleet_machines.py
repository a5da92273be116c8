"""A sweep on `infra=ec2_spot` whose machines run for real, each in namespaces of its own.

AWS is moto, with IAM enforced (but conditions, which it does not know), with ModifyFleet and with
what keeps a fleet at its size; see tests/support/fake_ec2.py and tests/support/machines.py.
"""

import json
import math
import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("moto", reason="needs the extra dev")

from support.aws import ask_moto, deployed_project
from support.fake_ec2 import let_moto_check, with_modify_fleet
from support.machines import FleetKeeper, wait_until, why_not
from support.processes import PLUS, environ_of_tests

from rlzoo_plus.cloud import aws
from rlzoo_plus.store.attempts import read_attempts
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.lease import LARGEST_BYTES, lease_name, read_record

pytestmark = [pytest.mark.slow, pytest.mark.training]

# Long enough that a machine which looks for its notice every five seconds is still at work.
RUNS = (
    "env=cartpole_bullet", "algo=ppo", "tuned=none", "seed=0,1", "n_timesteps=40960", "n_envs=2",
    "algo.hyperparams.n_steps=128", "network.net_arch=[32]", "eval.every_steps=8192",
    "eval.episodes=2", "checkpoint.every_steps=1024", "num_threads=1", "device=cpu",
    "log.tensorboard=false", "report.plot=false",
)  # fmt: skip
SAME = ("final/tensors.safetensors", "best/tensors.safetensors", "evaluations.jsonl")


@pytest.fixture
def project(monkeypatch):
    """Yield a project in an account where only what policies allow is done."""
    if reason := why_not():
        pytest.skip(reason)
    with_modify_fleet(monkeypatch)
    with deployed_project(monkeypatch, server=True) as made:
        iam = aws.client("iam")
        iam.create_user(UserName="admin")
        allow = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
        iam.put_user_policy(UserName="admin", PolicyName="all", PolicyDocument=policy)
        profile = made.instance_profile.rpartition("/")[2]
        found = iam.get_instance_profile(InstanceProfileName=profile)["InstanceProfile"]
        let_moto_check(found["Roles"][0]["RoleName"])
        key = iam.create_access_key(UserName="admin")["AccessKey"]
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
        aws.forget_clients()
        endpoint = os.environ["AWS_ENDPOINT_URL"]
        ask_moto(endpoint, "reset-auth", 0)
        try:
            yield made
        finally:
            ask_moto(endpoint, "reset-auth", math.inf)


def rlzoo(folder, *words):
    """Run a command; return what it prints."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [*PLUS, *words], cwd=folder, env=environ_of_tests(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def checkpoints(machine):
    """Return the steps of the whole checkpoints on a machine."""
    found = machine.root.glob("root/outputs/workers/first/*/*/*/checkpoints/[0-9]*/MANIFEST.json")
    return sorted(int(path.parent.name) for path in found)


def key_on(machine):
    """Return the run that a machine trains."""
    (log,) = machine.root.glob("root/outputs/workers/first/*/*/*/config.yaml")
    return "/".join(log.parts[-4:-1])


def test_a_sweep_survives_a_notice_and_a_machine_that_vanishes(project, tmp_path):
    rlzoo(tmp_path / "uninterrupted", "train", "-m", *RUNS, "sweep=first", "infra.workers=2")
    ami = aws.client("ec2").describe_images(
        Filters=[{"Name": "architecture", "Values": ["x86_64"]}]
    )
    chosen = ("infra=ec2_spot", f"infra.ami={ami['Images'][0]['ImageId']}", "infra.slots=1")
    home = tmp_path / "home"
    told = rlzoo(home, "train", "-m", *RUNS, "sweep=first", *chosen)
    assert "2 Spot machines of c7a.medium" in told
    keeper = FleetKeeper(tmp_path / "machines", "123456789012", "us-east-1")
    try:
        keeper.step()
        assert len(keeper.machines) == 2
        interrupted = finish(keeper)
    finally:
        for machine in keeper.machines:
            print(f"--- {machine.id}\n{machine.console()}", file=sys.stderr)
        keeper.close()

    assert set(keeper.states().values()) == {"terminated"}
    assert keeper.fleets("active", "submitted", "modifying") == []
    shown = rlzoo(home, "sweep", "status", f"{project.store}/first")
    assert "2 done" in shown, shown
    found = (tmp_path / "uninterrupted/outputs/sweeps/first").glob("*/*/*/config.yaml")
    keys = ["/".join(path.parts[-4:-1]) for path in found]
    assert len(keys) == 2
    for key in keys:
        run = tmp_path / "pulled" / key
        rlzoo(home, "pull", f"{project.store}/runs/first/{key}", "--to", str(run))
        uninterrupted = tmp_path / "uninterrupted/outputs/sweeps/first" / key
        for name in SAME:
            assert (run / name).read_bytes() == (uninterrupted / name).read_bytes(), (key, name)
    store = open_store(project.store)
    data, _ = store.get(lease_name(f"first/{interrupted}"), LARGEST_BYTES)
    attempts, spent = read_attempts(read_record(data))
    assert [attempt.machine for attempt in attempts] == ["c7a.medium"] * spent.attempts
    # The one that vanished counts only if it had told of itself before.
    assert spent.attempts in (2, 3)


def finish(keeper):
    """Take one machine away, let its successor vanish, and wait for the end; return the run."""

    def stepped(condition):
        def look():
            keeper.step()
            return condition()

        return look

    first, other = keeper.machines
    wait_until(stepped(lambda: len(checkpoints(first)) > 0), 300)
    key = key_on(first)
    noticed = checkpoints(first)[-1]
    first.take_away()
    wait_until(stepped(lambda: first.is_gone), 120)
    assert "the worker ended with 75" in first.console()
    second = wait_until(stepped(lambda: keeper.machines[2:]), 60)[0]
    line = f"{key} goes on from step"
    wait_until(stepped(lambda: line in second.console()), 180)
    begin = int(re.search(rf"{line} ([0-9,]+)", second.console())[1].replace(",", ""))
    assert begin >= noticed
    wait_until(stepped(lambda: checkpoints(second)[-1] > begin), 180)
    second.kill()
    wait_until(stepped(lambda: second.is_gone), 60)
    wait_until(stepped(lambda: keeper.machines[3:]), 60)

    def told(text):
        return [machine for machine in keeper.machines if text in machine.console()]

    # Of the new machine and the other one, one is enough: the lease of the machine that vanished is
    # free after three minutes.
    wait_until(stepped(lambda: told("this machine is needed")), 180)
    wait_until(stepped(lambda: told(f"{line} {begin:,}")), 400)
    wait_until(stepped(keeper.is_idle), 600)
    left = told("the fleet is one machine smaller")
    assert left == [other, *keeper.machines[3:]]
    assert len(keeper.machines) == 4
    return key
