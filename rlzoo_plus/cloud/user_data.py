"""The script that a machine of a fleet runs when it starts: work, leave the fleet, end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import join, quote

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError

# AWS takes no more before it is coded.
LARGEST_BYTES = 16 * 1024
# What a worker has for its last checkpoint, before the machine is switched off.
STOP_S = 600
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class MachineScript:
    """What a machine is told; no secret is among it."""

    worker: Sequence[str]  # What follows `rlzoo-plus worker`
    leave: Sequence[str]  # What follows `rlzoo-plus leave-fleet`
    launch: str  # The name of the launch
    region: str  # The region of AWS
    deadline: int  # When the machine is switched off, whatever happens [s since 1970]
    # The image whose `rlzoo-plus` it runs, None for the one of the machine itself
    image: str | None = None
    # The command that installs rlzoo_plus in a container of the image and goes on as `rlzoo-plus
    # worker`; empty if the image has it
    install: Sequence[str] = ()
    # Names of parameters of Systems Manager, by the variables that get their values
    secrets: Mapping[str, str] = field(default_factory=dict)


def user_data(script: MachineScript) -> str:
    """Return the script, for bash; the machine has to terminate when it is shut down."""
    for name in script.secrets:
        if not _VARIABLE.fullmatch(name):
            raise ConfigError(
                f"infra.secrets: {printable(name)!r} cannot be an environment variable."
            )
    prepare = _AMI if script.image is None else _container(script, script.image)
    text = (
        _HEAD.format(
            region=quote(script.region),
            deadline=script.deadline,
            stop=STOP_S,
            # In quotes of its own there; a launch's name has neither quotes nor spaces.
            launch=quote(f"Fleets[?Tags[?Key=='Launch' && Value=='{script.launch}']].FleetId"),
        )
        + prepare
        + "".join(
            _SECRET.format(name=name, parameter=quote(p)) for name, p in script.secrets.items()
        )
        + _WORK.format(worker=join(script.worker), leave=join(script.leave))
    )
    if len(text.encode()) > LARGEST_BYTES:
        raise ConfigError(
            f"the script of a machine has {len(text.encode()):,} bytes, and AWS takes "
            f"{LARGEST_BYTES:,}. Make an image with `rlzoo-plus cloud build`, or set infra.ami."
        )
    return text


def _container(script: MachineScript, image: str) -> str:
    names = ["AWS_REGION", "AWS_DEFAULT_REGION", *script.secrets]
    options = [
        "--rm",
        "--init",
        "--network",
        "host",
        *(w for name in names for w in ("--env", name)),
    ]
    run = ["docker", "run", *options]
    registry = image.partition("/")[0]
    login = _LOGIN.format(registry=quote(registry)) if ".dkr.ecr." in registry else ""
    if script.install:
        setup = ["docker", "run", "--name", "setup", *options[1:], image, *script.install, "--help"]
        install = _INSTALL.format(setup=join(setup))
        # Where it was installed is a folder of a name that is drawn.
        shell = 'exec /tmp/*/bin/python -m rlzoo_plus "$@"'
        words = [*run, "--entrypoint", "sh", "rlzoo_plus:here", "-c", shell, "sh"]
    else:
        install = ""
        words = [*run, "--entrypoint", "rlzoo-plus", image]
    return _CONTAINER.format(image=quote(image), login=login, install=install, words=join(words))


_HEAD = """\
#!/bin/bash
# Trains runs of a sweep of rlzoo_plus, and ends this machine.
set -uo pipefail
export AWS_REGION={region} AWS_DEFAULT_REGION={region} HOME=/root
deadline={deadline}

# First of all: whatever happens below, this machine is switched off then, and so ends.
minutes=$(((deadline - $(date +%s)) / 60))
shutdown -P "+$((minutes > 1 ? minutes : 1))"
trap 'shutdown -P now' EXIT
cd "$HOME" || exit

# Another machine of this launch could do no better: start none.
give_up() {{
    echo "rlzoo_plus: $1; no more machines are started"
    fleets=$(aws ec2 describe-fleets --query {launch} --output text)
    # shellcheck disable=SC2086  # several words
    [ -z "$fleets" ] || aws ec2 delete-fleets --no-terminate-instances --fleet-ids $fleets
    exit 1
}}

seconds_left() {{
    echo $((deadline - {stop} - $(date +%s)))
}}
"""
_AMI = """
rlzoo=(rlzoo-plus)
"""
_CONTAINER = """
image={image}
prepare() {{
    command -v docker || dnf install -y -q docker || return
    systemctl start docker || return
{login}    docker pull -q "$image" || docker pull -q "$image" || return
{install}}}
rlzoo=({words})
prepare || give_up "the image cannot be used"
"""
_LOGIN = """\
    aws ecr get-login-password | docker login --username AWS --password-stdin {registry} || return
"""
# The same installation for all that follows.
_INSTALL = """\
    {setup} >/dev/null || return
    docker commit setup rlzoo_plus:here >/dev/null || return
"""
_SECRET = """
{name}=$(aws ssm get-parameters --with-decryption --names {parameter} \\
    --query 'Parameters[0].Value' --output text)
[ "${name}" != None ] && [ -n "${name}" ] || give_up "a secret cannot be read"
export {name}
"""
_WORK = """
while [ "$(seconds_left)" -gt 60 ]; do
    timeout "$(seconds_left)" "${{rlzoo[@]}}" worker {worker}
    code=$?
    echo "rlzoo_plus: the worker ended with $code"
    case $code in
        75) exit ;; # interrupted: the machine that replaces this one goes on
        0) ;;
        *) break ;;
    esac
    # Nothing is left to take: one machine less, unless runs of one that died become free soon.
    "${{rlzoo[@]}}" leave-fleet {leave} --unless-needed
    case $? in
        75) sleep 30 ;;
        0) exit ;;
        *) break ;;
    esac
done
# What kept the worker from working would keep the next machine from it.
"${{rlzoo[@]}}" leave-fleet {leave} || give_up "the fleet cannot be left"
"""
