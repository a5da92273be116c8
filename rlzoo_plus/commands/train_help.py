"""The help of `rlzoo-plus train`, read from conf/ without composing anything."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap

from rlzoo_plus.config.catalog import WRAPPERS
from rlzoo_plus.config.overrides import GROUPS
from rlzoo_plus.config.search_path import conf_dir, config_dirs, group_options

_EXAMPLES = """\
Train an agent.

  rlzoo-plus train algo=ppo env=cartpole_bullet             the default
  rlzoo-plus train algo=sac env=halfcheetah_bullet seed=3   with its tuned values
  rlzoo-plus train env.id=Pendulum-v1 algo=td3              any Gymnasium environment
  rlzoo-plus train algo=ppo algo.hyperparams.gamma=0.98 network.net_arch=[128,128]
  rlzoo-plus train -m algo=ppo,sac seed=1,2,3               a sweep: six runs side by side
  rlzoo-plus train -m hpo=ppo hpo.n_trials=20               a hyperparameter search
  rlzoo-plus train algo=sac store=s3://my-bucket/lab        sent to S3 while it trains
  rlzoo-plus train study=cartpole_bullet-ppo trial=7        one trial of that study
"""
_OPTIONS = """\
Options (Hydra's)
  --cfg job          print the whole configuration and stop
  -m, --multirun     a,b,c and range(0,5) and glob(*bullet*) make one job each, below
                     outputs/sweeps/<sweep>; infra.workers=N of them run at once. The same command
                     again runs what is missing; rlzoo-plus sweep manages them
  --config-dir DIR   a folder like conf/ with your own files
  --hydra-help       all options
"""


def train_help(arguments: list[str]) -> str:
    """Return the help text: examples, the choices of each group, the keys."""
    dirs = config_dirs(arguments)
    lines = [_EXAMPLES, "Groups: group=name"]
    for group in GROUPS:
        names = group_options(group, dirs)
        if group == "tuned":
            names = [
                f"the values tuned for <algo>/<env>, chosen automatically ({len(names)} files); "
                "none: the algorithm's defaults"
            ]
        lines += _wrapped(group, names)
    lines += ["", "Keys: key=value (all frequencies count environment steps)"]
    lines += _keys((conf_dir() / "config.yaml").read_text(encoding="utf-8"), "experiment: null\n")
    lines += ["  algo.hyperparams.<argument of the algorithm>=...   env.kwargs.<argument>=...", ""]
    lines += ["Wrappers: env.wrappers=[name,{name:{argument:value}}]"]
    lines += [*_wrapped("", sorted(WRAPPERS)), ""]
    study = (conf_dir() / "hpo" / "_study.yaml").read_text(encoding="utf-8")
    lines += ["Keys of a study: -m hpo=... (docs/tuning.md)", *_keys(study, "- _self_\n", "hpo.")]
    return "\n".join([*lines, "", _OPTIONS.rstrip()])


def _wrapped(group: str, names: Iterable[str]) -> list[str]:
    lines = wrap(" ".join(names), width=96) or ["-"]
    return [f"  {group if i == 0 else '':<11} {line}" for i, line in enumerate(lines)]


def _keys(content: str, start: str, prefix: str = "") -> Iterable[str]:
    """Yield each key of a configuration file with its default and comment.

    The keys begin behind `start`, the end of its defaults list; `prefix` precedes each on the
    command line.
    """
    section = ""
    for line in content.split(start, 1)[-1].split("\nhydra:", 1)[0].splitlines():
        text, _, comment = line.partition("#")
        name, colon, value = text.strip().partition(":")
        if not colon or name.startswith("-") or text.startswith("    "):
            continue
        if not text.startswith(" "):
            section = "" if value.strip() else f"{name}."
        if value.strip():
            assignment = f"{prefix}{section}{name}={value.strip()}"
            yield f"  {assignment:<40} {comment.strip()}"
