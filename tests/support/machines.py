"""EC2 with machines: moto's instances run their user data, and fleets keep their size.

A machine is a namespace of networks, processes and mounts whose root is an overlay over the root of
this machine: its AMI is what is installed here. It has instance metadata and the credentials of its
role, and reaches moto alone. Needs root and iproute2.
"""

import base64
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from support.processes import ROOT

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_METADATA = "169.254.169.254"


def why_not():
    """Return why machines cannot be made here, empty if they can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "needs root on Linux"
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return "needs iproute2 and util-linux"
    name = f"rlzoo-{secrets.token_hex(4)}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode != 0:
        return "may make no network namespaces"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


class Machine:
    """One instance.

    Attributes:
        id: Its id in moto.
        root: Its root directory, seen from here.
        is_gone: Whether it has ended in any way.
    """

    def __init__(self, instance, role, region, folder):
        from moto.server import ThreadedMotoServer

        self.id, self.is_gone = instance["InstanceId"], False
        self.folder = Path(folder) / self.id
        self.root = self.folder / "root"
        for name in ("upper", "work", "root"):
            (self.folder / name).mkdir(parents=True)
        self._closing = contextlib.ExitStack()
        address = self._make_network()
        server = ThreadedMotoServer(ip_address=address, port=0, verbose=False)
        server.start()
        self._closing.callback(server.stop)
        self._serve_metadata(instance, role)
        self._make_disk()
        data = base64.b64decode(instance["UserData"])
        (self.root / "user-data").write_bytes(data)
        (self.root / "user-data").chmod(0o755)
        settings = {
            "PATH": _PATH,
            "AWS_ENDPOINT_URL": f"http://{address}:{server.get_host_and_port()[1]}",
            # What cloud-init has none of, and what an AMI may set: the package of this checkout.
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }
        start = f"mount -t proc proc /proc && hostname {self.id} && exec /user-data"
        self._process = subprocess.Popen(
            [
                *("ip", "netns", "exec", self._namespace),
                *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts"),
                *("chroot", str(self.root), "/usr/bin/env", "-i"),
                *(f"{name}={value}" for name, value in settings.items()),
                *("/bin/bash", "-c", start),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._closing.enter_context((self.folder / "console").open("w")),
            stderr=subprocess.STDOUT,
        )
        self._closing.callback(self._end_process)

    def take_away(self, notice_s=120.0):
        """Give the notice of a Spot instance; it goes when its time is up, or by itself before."""
        at = datetime.now(UTC) + timedelta(seconds=notice_s)
        notice = {"action": "terminate", "time": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
        (self.folder / "notice").write_text(json.dumps(notice))
        (self.folder / "notice").rename(self.folder / "instance-action.json")

    def kill(self):
        """End all its processes at once, without any notice."""
        self._end_process()
        (self.root / "shut-down").write_text("its host is gone\n")

    def has_ended(self):
        """Return whether it is off; user data that just ends leaves a machine on, which fails."""
        if self._process.poll() is None:
            return False
        assert (self.root / "shut-down").exists(), f"{self.id} was left running:\n{self.console()}"
        return True

    def console(self):
        """Return what it has printed."""
        return (self.folder / "console").read_text()

    def close(self):
        """Remove all that it needed; its console stays."""
        self._closing.close()

    def _end_process(self):
        self._process.kill()
        self._process.wait()

    def _make_network(self):
        for _ in range(100):
            number = secrets.randbelow(60_000)
            address = f"10.{200 + number // 16_384}.{number // 64 % 256}.{number % 64 * 4}"
            first = address.rpartition(".")
            host, own = (f"{first[0]}.{int(first[2]) + more}" for more in (1, 2))
            self._namespace, outside = f"rlzoo-{number}", f"rlzoo{number}"
            if _run(f"ip netns add {self._namespace}", check=False):
                break
        else:
            raise OSError("no network namespace is free")
        self._closing.callback(_run, f"ip netns del {self._namespace}")
        inside = f"ip -n {self._namespace}"
        for command in (
            f"ip link add {outside} type veth peer name eth0 netns {self._namespace}",
            f"ip addr add {host}/30 dev {outside}",
            f"ip link set {outside} up",
            f"{inside} link set lo up",
            f"{inside} addr add {_METADATA}/32 dev lo",
            f"{inside} addr add {own}/30 dev eth0",
            f"{inside} link set eth0 up",
        ):
            _run(command)
        return host

    def _serve_metadata(self, instance, role):
        known = {
            "instance-id": self.id,
            "instance-type": instance["InstanceType"],
            "placement/availability-zone": instance["Placement"]["AvailabilityZone"],
            "iam/security-credentials/": "machine",
            "iam/security-credentials/machine": json.dumps(role),
        }
        (self.folder / "meta-data.json").write_text(json.dumps(known))
        stub = Path(__file__).with_name("metadata_server.py")
        serve = [sys.executable, str(stub), str(self.folder), _METADATA, "80"]
        server = subprocess.Popen(["ip", "netns", "exec", self._namespace, *serve])
        self._closing.callback(lambda: (server.kill(), server.wait()))

    def _make_disk(self):
        folder = self.folder
        layers = f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work"
        _run(f"mount -t overlay overlay -o {layers} {self.root}")
        self._closing.callback(_run, f"umount -l {self.root}")
        _run(f"mount --bind /dev {self.root}/dev")
        self._closing.callback(_run, f"umount -l {self.root}/dev")
        self._program("rlzoo-plus", f'exec {sys.executable} -m rlzoo_plus "$@"')
        self._program("shutdown", 'echo "$*" >>/shutdown.log; [ "$2" != now ] || touch /shut-down')

    def _program(self, name, body):
        path = self.root / "usr/local/sbin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)


class FleetKeeper:
    """What AWS does with fleets and moto does not: runs their machines, and keeps their size.

    Attributes:
        machines: All machines so far, in the order of their start.
    """

    def __init__(self, folder, account, region):
        self.folder, self.region = folder, region
        self._account = account
        self.machines = []

    def step(self):
        """Do what AWS does all the time."""
        from moto.backends import get_backend

        for machine in self._running():
            if machine.has_ended():
                # All fleets are to have machines that terminate when they are shut down.
                self._client("ec2").terminate_instances(InstanceIds=[machine.id])
                machine.is_gone = True
        backend = get_backend("ec2")[self._account][self.region]
        for fleet in self.fleets("active"):
            target = fleet["TargetCapacitySpecification"]["TotalTargetCapacity"]
            ours = {machine.id: machine for machine in self.machines}
            known = backend.get_fleet(fleet["FleetId"])
            there = [request.instance.id for request in known.spot_requests]
            count = sum(not (i in ours and ours[i].is_gone) for i in there)
            if count < target:
                known.create_spot_requests(target - count)
                there = [request.instance.id for request in known.spot_requests]
            for each in there:
                if each not in ours:
                    self.machines.append(self._start(each, fleet))

    def fleets(self, *states):
        """Return the fleets in some states."""
        found = self._client("ec2").describe_fleets()["Fleets"]
        return [fleet for fleet in found if fleet["FleetState"] in states]

    def states(self):
        """Return the states of all instances in moto."""
        pages = self._client("ec2").describe_instances()["Reservations"]
        return {i["InstanceId"]: i["State"]["Name"] for page in pages for i in page["Instances"]}

    def is_idle(self):
        """Return whether no machine runs."""
        return not self._running()

    def close(self):
        """End all machines."""
        for machine in self.machines:
            machine.close()

    def _running(self):
        return [machine for machine in self.machines if not machine.is_gone]

    def _start(self, instance_id, fleet):
        ec2 = self._client("ec2")
        found = ec2.describe_instances(InstanceIds=[instance_id])
        instance = found["Reservations"][0]["Instances"][0]
        spec = fleet["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]
        data = ec2.describe_launch_template_versions(
            LaunchTemplateId=spec["LaunchTemplateId"], Versions=[spec["Version"]]
        )["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
        role = self._credentials(data["IamInstanceProfile"]["Arn"])
        return Machine(instance | {"UserData": data["UserData"]}, role, self.region, self.folder)

    def _credentials(self, profile):
        from moto.backends import get_backend

        name = profile.rpartition("/")[2]
        found = self._client("iam").get_instance_profile(InstanceProfileName=name)
        arn = found["InstanceProfile"]["Roles"][0]["Arn"]
        # EC2 does it for the machine; moto fails at a user who asks while policies are checked.
        keys = get_backend("sts")[self._account]["aws"].assume_role(
            region_name=self.region,
            role_session_name="machine",
            role_arn=arn,
            policy="",
            duration=3600,
            external_id="",
        )
        return {
            "Code": "Success",
            "Type": "AWS-HMAC",
            "LastUpdated": "2026-01-01T00:00:00Z",
            "AccessKeyId": keys.access_key_id,
            "SecretAccessKey": keys.secret_access_key,
            "Token": keys.session_token,
            "Expiration": "2040-01-01T00:00:00Z",
        }

    def _client(self, service):
        from rlzoo_plus.cloud import aws

        return aws.client(service)


def wait_until(condition, timeout_s, step_s=0.5):
    """Call a function again and again until it returns something; return that."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(step_s)
    raise AssertionError(f"not within {timeout_s} s: {condition}")


def _run(command, check=True):
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise OSError(f"{command}: {done.stderr.strip()}")
    return done.returncode == 0
