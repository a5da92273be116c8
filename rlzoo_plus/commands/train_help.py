"""The help of `rlzoo-plus train`, read from conf/ without composing anything."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from textwrap import wrap

from rlzoo_plus.config.compose import GROUPS, conf_dir, config_dirs, group_options

_EXAMPLES = """\
Train an agent.

  python train.py algo=ppo env=cartpole_bullet             the default
  python train.py algo=sac env=halfcheetah_bullet seed=3   with the values tuned for it
  python train.py env.id=Pendulum-v1 algo=td3              any Gymnasium environment
  python train.py algo=ppo algo.hyperparams.gamma=0.98 network.net_arch=[128,128]
  python train.py -m algo=ppo,sac seed=1,2,3               a sweep: six runs side by side

`rlzoo-plus train ...` is the same, from anywhere.
"""
_OPTIONS = """\
Options (Hydra's)
  --cfg job          print the whole configuration and stop
  -m, --multirun     a,b,c and range(0,5) and glob(*bullet*) make one job each, below
                     outputs/sweeps/<sweep>; infra.workers=N of them run at once. The same command
                     again runs what is missing; rlzoo-plus sweep looks after them
  --config-dir DIR   a folder like conf/ with files of your own
  --hydra-help       more of them
"""


def train_help(arguments: list[str]) -> str:
    """Return the help text: examples, the choices of each group, the keys."""
    dirs = config_dirs(arguments)
    lines = [_EXAMPLES, "Groups: group=name"]
    for group in GROUPS:
        names = group_options(group, dirs)
        if group == "tuned":
            lines.append(
                f"  {group:<11} chosen by itself as <algo>/<env> ({len(names)} files); none: "
                "the algorithm's defaults"
            )
        else:
            lines += _wrapped(group, names)
    lines += ["", "Keys: key=value (all frequencies count environment steps)"]
    lines += list(_keys(conf_dir() / "config.yaml"))
    lines += ["  algo.hyperparams.<argument of the algorithm>=...   env.kwargs.<argument>=...", ""]
    return "\n".join([*lines, _OPTIONS.rstrip()])


def _wrapped(group: str, names: Iterable[str]) -> list[str]:
    lines = wrap(" ".join(names), width=96) or ["-"]
    return [f"  {group if i == 0 else '':<11} {line}" for i, line in enumerate(lines)]


def _keys(path: Path) -> Iterable[str]:
    """Yield each key of config.yaml with its default and comment."""
    section = ""
    body = path.read_text(encoding="utf-8").split("experiment: null\n", 1)[-1]
    for line in body.split("\nhydra:", 1)[0].splitlines():
        text, _, comment = line.partition("#")
        name, colon, value = text.strip().partition(":")
        if not colon or name.startswith("-"):
            continue
        if not text.startswith(" "):
            section = "" if value.strip() else f"{name}."
        elif text.startswith("    "):
            continue
        if value.strip():
            prefix = section if text.startswith(" ") else ""
            yield f"  {prefix + name + '=' + value.strip():<40} {comment.strip()}"
