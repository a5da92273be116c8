"""`rlzoo-plus cloud build`: build the image of workers, and push it to the project."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.untrusted import one_line, printable, read_plain_file
from rlzoo_plus.cloud import image_build
from rlzoo_plus.cloud import project as projects
from rlzoo_plus.cloud.image import find_image, images
from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console


_LARGEST_FILE_BYTES = 1_000_000
_DESCRIPTION = (
    "Build the image of workers with docker, podman or buildah, and push it to the project's "
    "repository; jobs use it by its digest. It is needed again when rlzoo_plus or its "
    "dependencies change; your own code goes through the store."
)


def add_to(verbs: Any) -> None:
    """Add `build` to the sub-commands of `cloud`."""
    parser = verbs.add_parser(
        "build", help="build and push the image of workers", description=_DESCRIPTION
    )
    parser.set_defaults(action=_build_image)
    add = parser.add_argument
    add("--project", metavar="NAME", help="the project (default: that of `cloud use`)")
    add(
        "--tool",
        choices=image_build.TOOLS,
        help="what builds (default: the first of these that works)",
    )
    add("--gpu", action="store_true", help="with torch for CUDA, for infra.gpus")
    add("--requirements", type=Path, metavar="FILE", help="what your own code needs, for pip")
    add("--base", metavar="IMAGE", help="build on this image, which has Python 3.11 or newer")
    add("--torch-index", metavar="URL", help="where pip finds torch (default: PyTorch's own)")
    pip_config = "a pip.conf for the build alone, as of a mirror; it may have a password"
    add("--pip-config", type=Path, metavar="FILE", help=pip_config)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--no-push", action="store_true", help="keep the image on this machine")
    context = "only write what a build reads, to build elsewhere: docker build FOLDER"
    instead.add_argument("--context", type=Path, metavar="FOLDER", help=context)
    more = "more arguments for the tool, after two hyphens: -- --network host"
    add("more", nargs="*", metavar="ARGUMENT", help=more)


def _build_image(options: argparse.Namespace, console: Console) -> int:
    """Build the image unless the project has it; return the exit code."""
    recipe = _recipe(options)
    if options.context is not None:
        image_build.write_context(options.context, recipe)
        given = [f"--build-arg {name}={value}" for name, value in recipe.arguments.items()]
        _tell(console, f"docker build {' '.join(given)} {printable(options.context)}")
        return 0
    if options.no_push:
        tool = image_build.find_tool(options.tool)
        _build(tool, f"localhost/rlzoo_plus:{recipe.tag}", recipe, options, console)
        _tell(console, f"built localhost/rlzoo_plus:{recipe.tag}; it was not pushed")
        return 0
    _build_and_push(recipe, options, console)
    return 0


def _build_and_push(
    recipe: image_build.Recipe, options: argparse.Namespace, console: Console
) -> None:
    project = projects.read_project(options.project)

    def find() -> str | None:
        return next((each.uri for each in images(project) if recipe.tag in each.tags), None)

    uri = find()
    if uri is not None:
        _tell(console, f"nothing has changed, the project has this image: {uri}")
    else:
        tool, reference = image_build.find_tool(options.tool), f"{project.repository}:{recipe.tag}"
        with tempfile.TemporaryDirectory(prefix="rlzoo_plus-login-") as folder:
            authfile = Path(folder) / "auth.json"
            # Before the build, which takes minutes.
            image_build.log_in(tool, project, authfile)
            _build(tool, reference, recipe, options, console)
            image_build.push(tool, reference, authfile)
        uri = find()
        _tell(console, f"pushed {uri}")
    newest = find_image(project, gpu=recipe.gpu)
    if newest == uri:
        _tell(console, "jobs of this rlzoo_plus use it from now on")
    else:
        more = "which was pushed later with other options. Delete that one to use this one"
        _tell(console, f"jobs use {newest}, {more}")


def _build(
    tool: str,
    reference: str,
    recipe: image_build.Recipe,
    options: argparse.Namespace,
    console: Console,
) -> None:
    _tell(console, f"{tool} builds {reference}")
    image_build.build(tool, recipe, reference, pip_config=options.pip_config, more=options.more)


def _recipe(options: argparse.Namespace) -> image_build.Recipe:
    requirements, pip_config = options.requirements, options.pip_config
    if pip_config is not None and not pip_config.is_file():
        raise ConfigError(f"--pip-config: {printable(pip_config)} is not a file.")
    text = ""
    if requirements is not None:
        try:
            text = read_plain_file(requirements, _LARGEST_FILE_BYTES).decode()
        except (OSError, ValueError) as error:
            raise ConfigError(f"--requirements cannot be read: {one_line(error)}.") from error
    return image_build.Recipe(options.gpu, options.base, options.torch_index, text)


def _tell(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
