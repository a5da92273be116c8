"""`rlzoo-plus verify-resume`: is a run that is killed and resumed the same, bit for bit?"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import rlzoo_plus
from rlzoo_plus.artifacts.result import ANOTHER_ACTED
from rlzoo_plus.commands.arguments import positive
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.config.overrides import as_arguments
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.load import load


def main(arguments: list[str]) -> int:
    """Train with and without kills, and compare; return 0 if all is the same."""
    options = _parse(arguments)
    config = _config(options)
    if config.asynchronous:
        raise ConfigError(f"verify-resume: {ANOTHER_ACTED}. Leave asynchronous out to test it.")
    from rlzoo_plus.envs import exactness, fit

    facts = fit.inspect_env(config)
    if facts.replay_problem is not None:
        print(f"exact resume: no, because {facts.replay_problem}")
    elif facts.has_exact_state:
        print("exact resume: the environment can save its state")
    else:
        print(f"exact resume: no difference found in a test of {exactness.N_TRIED} steps")
    from rlzoo_plus.doctor.verify_resume import TrialFailedError, shortened, verify

    config = shortened(config, options.steps)
    with ExitStack() as stack:
        folder = options.keep
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rlzoo-verify-")))
        elif folder.exists() and any(folder.iterdir()):
            raise ConfigError(f"--keep {folder}: is not empty. Name a new directory.")
        print(
            f"{config.algo.name} on {config.env.id}, {config.n_envs} x {config.vec_env}: "
            f"{config.n_timesteps:,} steps, once without a checkpoint, then killed and resumed",
            flush=True,
        )
        try:
            verdict = verify(
                config,
                folder,
                kills=options.kills,
                every_steps=options.checkpoint_steps,
                seed=options.seed,
                say=lambda text: print(text, flush=True),
            )
        except TrialFailedError as error:
            raise ConfigError(f"{error}.") from error
    for reason in verdict.inexact_because:
        print(f"not exact: {reason}")
    print(f"\n{verdict.table()}")
    print("\nidentical" if verdict.is_identical else "\nDIFFERENT")
    return 0 if verdict.is_identical else 1


def _config(options: argparse.Namespace) -> RunConfig:
    if options.run is not None:
        if options.overrides or options.config_dir is not None:
            given = [*options.overrides, f"--config-dir {options.config_dir}"]
            raise ConfigError(
                f"{given[0]}: give a run directory or overrides, not both. The run's own "
                "configuration is used; --steps, --kills and --seed say how it is tested."
            )
        run = rlzoo_plus.Run.open(options.run, trust=options.trust)
        run.require_trust(to_train=True)
        return run.config
    return load(as_arguments(options.overrides, options.config_dir, {}))


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = command_parser(
        "verify-resume",
        "Train a short version of a run: once without a checkpoint, and again, killed (SIGKILL) at "
        "random instants and resumed each time. Compare everything bit for bit; exit with 0 if all "
        "is the same, else with 1.",
        "algo=sac env=halfcheetah_bullet --kills 5",
    )
    add = parser.add_argument
    add("what", nargs="*", metavar="RUN | KEY=VALUE", help="a run, or overrides of train")
    add("--config-dir", metavar="DIR", help="a folder like conf/ with your own files")
    add("--kills", type=positive(int), default=5, help="how often to kill (default 5)")
    add(
        "--steps", type=positive(int), help="length of the runs (default: some rollouts or updates)"
    )
    add("--checkpoint-steps", type=positive(int), metavar="N", help="steps between checkpoints")
    add("--seed", type=int, default=0, help="chooses the instants (default 0)")
    add("--keep", type=Path, metavar="DIR", help="keep the run directories there")
    add("--trust", action="store_true", help="import the run's packages, wrappers and callbacks")
    options = parser.parse_intermixed_args(arguments)
    has_run = bool(options.what) and "=" not in options.what[0]
    options.run = options.what[0] if has_run else None
    options.overrides = options.what[1:] if has_run else options.what
    if not sys.platform.startswith(("linux", "darwin")):
        raise ConfigError("verify-resume kills processes with SIGKILL: it needs Linux or macOS.")
    return options
