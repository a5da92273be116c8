"""The help of `rlzoo-plus train`, read from conf/ without composing anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import Annotated, Any

from pydantic import TypeAdapter

from rlzoo_plus.config import conf_keys
from rlzoo_plus.config.catalog import WRAPPERS
from rlzoo_plus.config.conf_keys import GROUPS
from rlzoo_plus.config.mistakes import RULES, keys_below, meant_key
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.search_path import conf_dir, config_dirs, group_options
from rlzoo_plus.config.section import Section
from rlzoo_plus.errors import ConfigError, unknown_name

_ARGUMENTS = "algo.hyperparams"
# Mappings whose keys are those of an environment or a policy.
_FREE = ("env.kwargs.", "network.policy_kwargs.", "network.optimizer_kwargs.")
_EXAMPLES = """\
Train an agent.

  rlzoo-plus train algo=ppo env=cartpole_bullet             the default
  rlzoo-plus train algo=sac env=halfcheetah_bullet seed=3   with its tuned values
  rlzoo-plus train env.id=Pendulum-v1 algo=td3              any Gymnasium environment
  rlzoo-plus train algo=ppo algo.hyperparams.gamma=0.98 'network.net_arch=[128,128]'
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

_SHORT = """\
Groups, group=NAME: algo env network tuned infra tracker hpo experiment
Keys, key=VALUE, the most used:
  n_timesteps  seed  n_envs  normalize  device  run_dir  init_from  store  callbacks
  algo.hyperparams.learning_rate ...     network.net_arch  network.activation
  env.id  env.kwargs.NAME  env.wrappers  eval.every_steps  eval.episodes
  checkpoint.every_steps  stop.reward_threshold  log.progress  report.video

More
  --help KEY         one key or group: its meaning, type, default and values
  --help all         everything
  --cfg job          the whole configuration of this command, as YAML
  -m                 a,b,c and range(0,5) make one job each; the same command runs what is missing
  --config-dir DIR   a folder like conf/ with your own files
"""


def train_help(arguments: list[str]) -> str:
    """Return one screen, or what is asked for behind `--help`: a key, or `all`.

    Raises:
        ConfigError: There is no such key.
    """
    place = next((i for i, word in enumerate(arguments) if word in ("-h", "--help")), None)
    behind = [] if place is None else arguments[place + 1 : place + 2]
    topic = next((word for word in behind if "=" not in word and not word.startswith("-")), None)
    if topic is None:
        return f"{_EXAMPLES}\n{_SHORT.rstrip()}"
    return _whole_help(arguments) if topic == "all" else key_help(topic, arguments)


def key_help(key: str, arguments: list[str]) -> str:
    """Return the meaning, the type, the default and the values of a key or a group.

    Raises:
        ConfigError: There is no such key; the text has the nearest one.
    """
    dirs = config_dirs(arguments)
    if key in GROUPS:
        names = group_options(key, dirs)
        return "\n".join([f"{key}=NAME: a file of conf/{key}, one of", *_wrapped("", names)])
    settings = conf_keys.settings()
    arguments_of = conf_keys.hyperparams()
    if key in settings:
        default, about = settings[key]
        lines = [f"{key}: {about}" if about else key]
        rule = _rule(key)
        lines += [f"  type     {rule}"] if rule else []
        return "\n".join([*lines, f"  default  {default}"])
    if key == _ARGUMENTS:
        settings |= {f"{key}.{name}": ("", "") for name in arguments_of}
    if below := [name for name in settings if name.startswith(f"{key}.")]:
        return "\n".join([f"{key}: the keys", *(f"  {name}" for name in below)])
    name = key.removeprefix(f"{_ARGUMENTS}.")
    if name in arguments_of:
        rows = arguments_of[name]
        about = next((about for _, _, about in rows if about), "")
        lines = [f"algo.hyperparams.{name}: {about}", "  default, by algorithm"]
        for value in dict.fromkeys(value for _, value, _ in rows):
            lines += _wrapped(value, [algo for algo, own, _ in rows if own == value])
        return "\n".join(lines)
    if found := [k for k in keys_below(RunConfig) if f"{k}.".startswith(f"{key}.")]:
        inside = [f"  {name}" for name in found if name != key]
        rule = _rule(key)
        lines = [f"{key}: the keys" if inside else key, *inside]
        return "\n".join([*lines, *([f"  type     {rule}"] if rule and not inside else [])])
    if key.startswith(_FREE):
        return key_help(key.rpartition(".")[0], arguments)
    known = [*GROUPS, *settings, *(f"algo.hyperparams.{name}" for name in arguments_of)]
    raise ConfigError(
        unknown_name("key", key, known, "rlzoo-plus train --help all", meant_key(key, {}))
    )


def _rule(key: str) -> str:
    """Return the type of a key, and its least and greatest value."""
    if key in RULES:
        return RULES[key].removeprefix("must be ")
    *sections, name = key.split(".")
    model: type[Section] = RunConfig
    for section in sections:
        if section not in model.sections():
            return ""
        model = model.sections()[section]
    field = model.model_fields.get(name)
    if field is None:
        return ""
    kind: Any = field.annotation
    for item in field.metadata:
        kind = Annotated[kind, item]
    told = _told(TypeAdapter(kind).json_schema())
    # Of two upper limits the last is the narrower.
    words = {"ge": "from", "gt": "above", "le": "to"}
    bounds = {
        word: getattr(item, name)
        for name, word in words.items()
        for item in field.metadata
        if getattr(item, name, None) is not None
    }
    return " ".join([told, *(f"{word} {bound:,}" for word, bound in bounds.items())])


def _told(schema: Mapping[str, Any]) -> str:
    """Return a JSON schema in words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_told, schema["anyOf"])))
    if "enum" in schema or "const" in schema:
        return " | ".join(map(str, schema.get("enum", [schema.get("const")])))
    names = {"integer": "whole number", "string": "text", "array": "list", "object": "mapping"}
    words = names | {"boolean": "true or false"}
    kind = schema.get("type", "mapping")
    return words.get(kind, str(kind))


def _whole_help(arguments: list[str]) -> str:
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
    lines += conf_keys.key_lines(
        (conf_dir() / "config.yaml").read_text(encoding="utf-8"), "experiment: null\n"
    )
    of_env = (conf_dir() / "env" / "_base.yaml").read_text(encoding="utf-8")
    lines += conf_keys.key_lines(of_env, "\n\n", "env.")
    lines += ["  algo.hyperparams.<argument of the algorithm>=...   env.kwargs.<argument>=...", ""]
    lines += ["Wrappers: env.wrappers=[name,{name:{argument:value}}]"]
    lines += [*_wrapped("", sorted(WRAPPERS)), ""]
    study = (conf_dir() / "hpo" / "_study.yaml").read_text(encoding="utf-8")
    lines += [
        "Keys of a study: -m hpo=... (docs/tuning.md)",
        *conf_keys.key_lines(study, "- _self_\n", "hpo."),
    ]
    return "\n".join([*lines, "", _OPTIONS.rstrip()])


def _wrapped(group: str, names: Iterable[str]) -> list[str]:
    lines = wrap(" ".join(names), width=96) or ["-"]
    return [f"  {group if i == 0 else '':<11} {line}" for i, line in enumerate(lines)]
