"""Translates the command lines of rl_zoo3's `enjoy`, `record_video` and `plot_train`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlzoo_plus.artifacts.run_dir import OUTPUTS, RunDir
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.catalog import ALGORITHM_OF_STEM
from rlzoo_plus.config.zoo_flags import FlagParser, Translation, dest_of, experiments, folder_name
from rlzoo_plus.errors import ConfigError

_VALUES = ("--algo", "--env", "-f --folder", "--exp-id", "--load-checkpoint")
_SWITCHES = ("--load-best", "--load-last-checkpoint", "--no-render")
_OF_PLOTS = ("-a --algo", "-e --env", "-f --exp-folder", "-x --x-axis", "-y --y-axis")
# What has no counterpart, and why it needs none.
_ANYWAY = {
    "-n --n-timesteps": "whole episodes are played: see --episodes, and --seconds of a video",
    "-o --output-folder": "--out names the file; by default it is in the run directory",
    "--device": "a policy acts on the processor",
    "--num-threads": "one thread is the fastest for one environment",
    "--n-envs": "one environment is played",
    "--gym-packages": "the run knows its packages; --trust imports them",
    "--env-kwargs": "the run knows them; see `rlzoo-plus evaluate RUN env.kwargs.NAME=VALUE`",
    "-w --episode-window": "curves are drawn as they are",
}
_ANYWAY_SWITCHES = {"--deterministic": "it is so, unless --stochastic says otherwise"}
_AXES = {"steps": "steps", "episodes": "episodes", "time": "hours"}
_METRICS = {
    "reward": "rollout/ep_rew_mean",
    "length": "rollout/ep_len_mean",
    "success": "rollout/success_rate",
}


def translated_play(arguments: Sequence[str]) -> Translation | None:
    """Translate the flags of `enjoy` and `record_video`; other arguments stay.

    Returns:
        None if there are none.

    Raises:
        ConfigError: There is no such run, or it is one of rl_zoo3.
    """
    found, rest, notes = _parsed(arguments, _VALUES, _SWITCHES)
    if not any(vars(found).values()):
        return None
    words = rest if rest and not rest[0].startswith("-") else [str(_run(found)), *rest]
    which = "best" if found.load_best else found.load_checkpoint
    if found.load_last_checkpoint:
        notes.append("--load-last-checkpoint: the final policy is that of the end of the run")
    if words is not rest or found.load_last_checkpoint:
        # What rl_zoo3 plays unless it is told otherwise.
        which = which or "final"
    if which and "--which" not in rest:
        words = [*words, "--which", which]
    return Translation([*words, *(["--no-window"] if found.no_render else [])], notes)


def translated_plot(arguments: Sequence[str]) -> Translation | None:
    """Translate the flags of `plot_train`, as `translated_play` does."""
    found, rest, notes = _parsed(arguments, _OF_PLOTS, ())
    if not any((found.algo, found.env, found.exp_folder)):
        return None
    found.folder = found.exp_folder
    runs = [path for _, path in _experiments(found)]
    words = list(map(str, runs))
    if not any(RunDir(path).exists() for path in runs):
        words = ["--zoo", str(Path(found.folder or OUTPUTS))]
    for name, value, known in (("x", found.x_axis, _AXES), ("metric", found.y_axis, _METRICS)):
        if value is not None:
            words += [f"--{name}", known.get(value, value)]
    return Translation([*words, *rest], notes)


def _parsed(
    arguments: Sequence[str], values: Sequence[str], switches: Sequence[str]
) -> tuple[Namespace, list[str], list[str]]:
    """Return what was found, what was not known, and notes about what is left out."""
    parser = FlagParser(add_help=False, allow_abbrev=False)
    for names in (*values, *_ANYWAY):
        is_list = names in ("--gym-packages", "--env-kwargs")
        parser.add_argument(*names.split(), nargs="+" if is_list else None)
    for names in (*switches, *_ANYWAY_SWITCHES):
        parser.add_argument(*names.split(), action="store_true")
    found, rest = parser.parse_known_args(arguments)
    left_out = {**_ANYWAY, **_ANYWAY_SWITCHES}
    given = [flag for flag in left_out if getattr(found, dest_of(flag))]
    notes = [f"{flag.split()[-1]}: {left_out[flag]}" for flag in given]
    return found, rest, notes


def _run(found: Namespace) -> Path:
    """Return the run that is meant: the newest of an algorithm and environment, or a number."""
    number = found.exp_id or "0"
    runs = [path for one, path in _experiments(found) if number in ("0", str(one))]
    if not runs:
        where = f"{_algo(found)} on {printable(_env(found))}"
        where += f" with --exp-id {printable(number)}" if number != "0" else ""
        place = printable(found.folder or OUTPUTS)
        raise ConfigError(
            f"no run of {where} below {place}. `rlzoo-plus runs {place}` lists what is there."
        )
    run = runs[-1]
    if not RunDir(run).exists() and (zips := sorted(run.glob("*.zip"))):
        raise ConfigError(
            f"{printable(run)} is a run of rl_zoo3. Import it once with `rlzoo-plus import-sb3 "
            f"{printable(zips[0])} --algo {_algo(found)} --env {printable(_env(found))}`, and play "
            "what it prints."
        )
    return run


def _experiments(found: Namespace) -> list[tuple[int, Path]]:
    """Return the runs of an algorithm and environment with their numbers, the newest last."""
    env = _env(found)
    if found.folder is not None:
        return experiments(Path(found.folder) / _algo(found), folder_name(env))
    return list(enumerate(_of_outputs(env, _algo(found)), start=1))


def _of_outputs(env: str, algo: str) -> Iterator[Path]:
    for run in sorted(OUTPUTS.glob(f"*/{algo}/*"), key=lambda path: path.name):
        config = RunDir(run).config_file
        if config.is_file() and (
            run.parts[1] in (env, folder_name(env))
            or f"\n  id: {env}\n" in config.read_text(encoding="utf-8", errors="replace")
        ):
            yield run


def _env(found: Namespace) -> str:
    return str(found.env or "CartPole-v1")


def _algo(found: Namespace) -> str:
    return ALGORITHM_OF_STEM.get(found.algo or "ppo", found.algo or "ppo")
