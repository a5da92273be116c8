"""Images in a project's repository on moto, and a tool that only writes down what it is told."""

import contextlib
import hashlib
import json
import os
from dataclasses import fields
from pathlib import Path

from support.aws import REGION, aws_account

_TOOL = """#!/bin/sh
# One file for each call: its arguments, and what comes in.
call=$(mktemp "$CALLS/$(date +%s%N)-XXXX")
for argument in "$@"; do echo "$argument" >> "$call"; done
case "$1" in
  login) cat > "$call.stdin" ;;
  build) for folder; do true; done; cp -r "$folder" "$call.context" ;;
esac
case " $FAILING " in *" $1 "*) echo "no $1 today" >&2; exit 3 ;; esac
"""


@contextlib.contextmanager
def project_of_images(monkeypatch, *, server=False):
    """Make a bucket and a repository, without the rest of a stack; yields the `Project`."""
    from rlzoo_plus.cloud import aws, project

    with aws_account(monkeypatch, server=server):
        aws.client("s3").create_bucket(Bucket="lab")
        made = aws.client("ecr").create_repository(repositoryName="lab")["repository"]
        values = {"store": "s3://lab", "repository": made["repositoryUri"]}
        found = project.Project(**{f.name: values.get(f.name, "") for f in fields(project.Project)})
        monkeypatch.setattr(project, "read_project", lambda asked: found)
        yield found


def push_image(project, tag):
    """Put an image into the repository of a project; return its digest."""
    from rlzoo_plus.cloud import aws
    from rlzoo_plus.cloud.image import registry_of

    digest = hashlib.sha256(tag.encode()).hexdigest()
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"digest": f"sha256:{digest}"},
        "layers": [{"digest": f"sha256:{digest}", "size": 1}],
    }
    pushed = aws.client("ecr").put_image(
        repositoryName=registry_of(project)[1], imageManifest=json.dumps(manifest), imageTag=tag
    )
    _date_last(registry_of(project)[1])
    return pushed["image"]["imageId"]["imageDigest"]


def _date_last(repository):
    """Let a second pass between pushes: moto dates them by the second, as ECR does."""
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.ecr.models import ecr_backends

    images = ecr_backends[DEFAULT_ACCOUNT_ID][REGION].repositories[repository].images
    for age_s, image in enumerate(reversed(images)):
        image.image_pushed_at = 1_767_225_600 - age_s


class FakeTools:
    """Tools on a PATH that has nothing else but the system's own.

    Attributes:
        folder: Where they are.
    """

    def __init__(self, folder: Path, monkeypatch, *names, failing=""):
        self.folder, self._calls = folder / "tools", folder / "calls"
        self.folder.mkdir()
        self._calls.mkdir()
        for name in ("cat", "cp", "date", "mktemp"):
            (self.folder / name).symlink_to(_system(name))
        for name in names:
            (self.folder / name).write_text(_TOOL)
            (self.folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(self.folder))
        monkeypatch.setenv("CALLS", str(self._calls))
        monkeypatch.setenv("FAILING", failing)

    def calls(self):
        """Return the arguments of each call, oldest first."""
        found = [path for path in self._calls.iterdir() if not path.suffix]
        return [path.read_text().splitlines() for path in sorted(found)]

    def inputs(self):
        """Return what came in by the standard input."""
        return [path.read_text() for path in self._calls.glob("*.stdin")]

    def contexts(self):
        """Return the folders that were built, as they were then."""
        return list(self._calls.glob("*.context"))


def _system(name):
    return next(
        path
        for folder in os.environ["PATH"].split(os.pathsep)
        if (path := Path(folder) / name).exists()
    )
