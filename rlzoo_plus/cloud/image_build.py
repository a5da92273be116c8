"""Building the image of workers, with the user's own tool, and pushing it to the project."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.cloud import aws
from rlzoo_plus.cloud.image import TORCH_INDEX, registry_of, tag_prefix
from rlzoo_plus.cloud.project import Project
from rlzoo_plus.cloud.wheel import WHEEL, dependencies, make_wheel, package_files
from rlzoo_plus.errors import ConfigError

# Each with the command that says whether it works here: docker needs its daemon, too.
TOOLS = {
    "docker": ("docker", "version"),
    "podman": ("podman", "info"),
    "buildah": ("buildah", "version"),
}
# Of the instance families that projects use.
PLATFORM = "linux/amd64"
_DOCKER_FOLDER = "rlzoo_plus/docker/"
_LONGEST_CHECK_S = 60
_NO_TOOL = (
    "Install docker, podman or buildah, or add --context FOLDER and build that folder elsewhere. "
    "Jobs start without an image, too; they install rlzoo_plus first"
)


@dataclass(frozen=True)
class Recipe:
    """What goes into an image besides the package and its dependencies."""

    gpu: bool = False  # Whether torch uses CUDA
    base: str | None = None  # The image that it is built on, None for the one in the Dockerfile
    torch_index: str | None = None  # Where torch comes from, None for the usual index
    requirements: str = ""  # What the user's own code needs: the text of a requirements file of pip

    @property
    def tag(self) -> str:
        """The tag of the image; another content has another one."""
        content = repr((self.base, self.arguments["TORCH_INDEX"], self.requirements))
        return tag_prefix(gpu=self.gpu) + hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def arguments(self) -> Mapping[str, str]:
        """The arguments of the Dockerfile."""
        found = {"TORCH_INDEX": self.torch_index or TORCH_INDEX[self.gpu]}
        return found if self.base is None else {**found, "BASE": self.base}


def write_context(folder: Path, recipe: Recipe) -> None:
    """Write all that a build of the image reads into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty. Name a new folder.")
    package = package_files()
    for name in package:
        start, _, file = name.rpartition("/")
        if f"{start}/" == _DOCKER_FOLDER:
            (folder / file).write_bytes(package[name])
    (folder / "dependencies.txt").write_text("".join(f"{line}\n" for line in dependencies()))
    (folder / "requirements.txt").write_text(recipe.requirements)
    (folder / WHEEL).write_bytes(make_wheel())


def find_tool(asked: str | None = None) -> str:
    """Return the first tool that works on this machine, or the one that was asked for."""
    problems = []
    for tool in [asked] if asked else TOOLS:
        problem = _problem_of(tool)
        if problem is None:
            return tool
        problems.append(problem)
    raise ConfigError(f"no image can be built here: {'; '.join(problems)}. {_NO_TOOL}.")


def log_in(tool: str, project: Project, authfile: Path) -> None:
    """Log a tool in to the registry of a project, for twelve hours.

    podman and buildah keep the login in `authfile`; docker keeps it where it keeps all.
    """
    registry, _ = registry_of(project)
    with aws.errors("log in to the project's registry"):
        answer = aws.client("ecr").get_authorization_token()
        token = base64.b64decode(answer["authorizationData"][0]["authorizationToken"]).decode()
    user, _, password = token.partition(":")
    # Other users of the machine can read a command line.
    command = [tool, "login", "--username", user, "--password-stdin", registry]
    done = subprocess.run(
        command,
        input=password,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=_environment(authfile),
        check=False,
    )
    if done.returncode != 0:
        said = _last_line(done.stdout)
        raise ConfigError(
            f"{tool} cannot log in to {registry}: {said}. Check AWS_PROFILE, and "
            "that this machine reaches it."
        )


def build(
    tool: str,
    recipe: Recipe,
    reference: str,
    *,
    pip_config: Path | None = None,
    more: Sequence[str] = (),
) -> None:
    """Build the image; the tool prints what it does.

    `reference` is name and tag; `pip_config` is a pip.conf for the build alone, such as one that
    names a mirror: no layer has it, so that it may have a password; `more` are arguments of the
    tool's own.
    """
    arguments = ["build", "--platform", PLATFORM, "--tag", reference]
    # Else buildah makes one layer of all, and nothing is reused.
    arguments += ["--layers"] if tool == "buildah" else []
    for name, value in recipe.arguments.items():
        arguments += ["--build-arg", f"{name}={value}"]
    if pip_config is not None:
        arguments += ["--secret", f"id=pip,src={pip_config.absolute()}"]
    with tempfile.TemporaryDirectory(prefix="rlzoo_plus-image-") as folder:
        write_context(Path(folder), recipe)
        _run("build the image", [tool, *arguments, *more, folder], _environment(None))


def push(tool: str, reference: str, authfile: Path) -> None:
    """Push an image; the tool prints what it does."""
    _run("push the image", [tool, "push", reference], _environment(authfile))


def _problem_of(tool: str) -> str | None:
    """Return why a tool cannot be used, None if it can."""
    if shutil.which(tool) is None:
        return f"{tool} is not installed"
    try:
        done = subprocess.run(
            TOOLS[tool],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=_LONGEST_CHECK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{tool} does not work ({one_line(error)})"
    return None if done.returncode == 0 else f"{tool} does not work ({_last_line(done.stderr)})"


def _last_line(said: str) -> str:
    return printable((said.strip().splitlines() or ["it does not say why"])[-1]).rstrip(".")


def _run(doing: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    try:
        code = subprocess.call(command, stdin=subprocess.DEVNULL, env=environment)
    except OSError as error:
        raise ConfigError(f"cannot {doing}: {one_line(error)}.") from error
    if code != 0:
        raise ConfigError(
            f"cannot {doing}: `{' '.join(command[:2])}` ended with exit code {code}; what it "
            "printed above says why."
        )


def _environment(authfile: Path | None) -> dict[str, str]:
    # An image with attestations is an index of several, which machines need not read.
    found = {**os.environ, "DOCKER_BUILDKIT": "1", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
    return found if authfile is None else {**found, "REGISTRY_AUTH_FILE": str(authfile)}
