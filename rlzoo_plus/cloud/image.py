"""What machines of a project start: the team's image, or a public one that installs rlzoo_plus."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rlzoo_plus.cloud import aws
from rlzoo_plus.cloud.project import Project
from rlzoo_plus.cloud.wheel import EXTRAS, WHEEL, make_wheel, package_files, package_hash
from rlzoo_plus.store.code import FOLDER
from rlzoo_plus.store.contract import open_store

PUBLIC_IMAGE = "public.ecr.aws/docker/library/python:3.11-slim-bookworm"
# PyPI's own build of torch for Linux is the one for CUDA.
TORCH_INDEX = {False: "https://download.pytorch.org/whl/cpu", True: "https://pypi.org/simple"}
CONSTRAINTS = "rlzoo_plus/docker/constraints.txt"
# What installing costs each machine. Measured on 2026-11-22: 58 wheels for Python 3.11, without the
# network's time; on a machine of two cores with a load of 12, it took 323 s.
INSTALL_CPU_S, INSTALL_MB = 80, 550
# What boto3 itself needs, to fetch the wheel.
_BOTO3 = ("boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3")


@dataclass(frozen=True)
class WorkerImage:
    """What a machine starts."""

    uri: str  # The image; a team's own has a digest
    # What comes before the arguments of `rlzoo-plus worker` in the container's command; empty if
    # the worker is the entry point of the image
    entry: tuple[str, ...]
    note: str  # A line for the user about what this costs, empty if nothing


def worker_image(project: Project, *, gpu: bool = False) -> WorkerImage:
    """Return what machines start; the code that they need is sent to the store if no image has it.

    Raises:
        ConfigError: The images cannot be listed.
        StoreError: The package cannot be sent.
    """
    found = find_image(project, gpu=gpu)
    if found is not None:
        return WorkerImage(found, (), "")
    return _public_image(project, gpu=gpu)


def find_image(project: Project, *, gpu: bool = False) -> str | None:
    """Return the newest image that has this very package and its dependencies, None without one.

    Returns:
        The image by its digest: `REPOSITORY@sha256:...`.
    """
    prefix = tag_prefix(gpu=gpu)
    ours = [image for image in images(project) if any(t.startswith(prefix) for t in image.tags)]
    return max(ours, key=lambda image: image.pushed).uri if ours else None


@dataclass(frozen=True)
class PushedImage:
    """An image in the repository of a project."""

    uri: str  # The image by its digest
    tags: tuple[str, ...]  # Its tags
    pushed: datetime  # When it was pushed


def images(project: Project) -> list[PushedImage]:
    """Return all images in the repository of a project."""
    registry, name = registry_of(project)
    request = {"registryId": registry.partition(".")[0], "repositoryName": name}
    with aws.errors(f"look for images in {name}"):
        pages = aws.client("ecr").get_paginator("describe_images").paginate(**request)
        return [
            PushedImage(
                f"{project.repository}@{image['imageDigest']}",
                tuple(image.get("imageTags", ())),
                image["imagePushedAt"],
            )
            for page in pages
            for image in page["imageDetails"]
        ]


def registry_of(project: Project) -> tuple[str, str]:
    """Return the host of a project's registry, and the name of its repository there."""
    registry, _, name = project.repository.partition("/")
    return registry, name


def tag_prefix(*, gpu: bool) -> str:
    """Return how the tags of images begin that have this package and its dependencies."""
    return f"{'gpu' if gpu else 'cpu'}-{package_hash()[:16]}-"


def constraint(name: str) -> str:
    """Return the line of constraints.txt for a package, such as `torch==2.13.0`."""
    lines = package_files()[CONSTRAINTS].decode().splitlines()
    return next(line for line in lines if line.startswith(f"{name}=="))


def _public_image(project: Project, *, gpu: bool) -> WorkerImage:
    wheel = make_wheel()
    sha = hashlib.sha256(wheel).hexdigest()
    folder = f"{FOLDER}/rlzoo_plus/{sha}/"
    store = open_store(project.store)
    if not any(True for _ in store.list(folder)):
        store.put(f"{folder}{WHEEL}", wheel)
    bucket, _, prefix = project.store.removeprefix("s3://").partition("/")
    how = {
        "bucket": bucket,
        "object": f"{prefix}/{folder}{WHEEL}".lstrip("/"),
        "sha256": sha,
        "boto3": [constraint(name) for name in _BOTO3],
        "torch": constraint("torch"),
        "torch_index": TORCH_INDEX[gpu],
        "extras": ",".join(EXTRAS),
    }
    script = Path(__file__).with_name("bootstrap.py").read_text(encoding="utf-8")
    size = "gigabytes" if gpu else f"{INSTALL_MB} MB"
    note = (
        "there is no image of this rlzoo_plus yet, so each machine installs it first: "
        f"{INSTALL_CPU_S} s of a core and {size} to download. Make one: rlzoo-plus cloud "
        f"build{' --gpu' if gpu else ''}"
    )
    return WorkerImage(PUBLIC_IMAGE, ("python3", "-c", script, json.dumps(how)), note)
