"""The model card of a run on the Hub, made of its files: metrics in the Hub's form, how to use it.

Texts of the run come from its files, so they are escaped: a card is shown as a web page.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import printable, read_plain_file
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.hub.client import SCHEME
from rlzoo_plus.hub.repository import CURVE, ONNX, VIDEO

LIBRARY = "rlzoo-plus"
_TASK = "reinforcement-learning"
_LONGEST_COMMAND = 20_000
_MARKUP = re.compile(r"([\\`*_{}\[\]|#~])")
_VERSIONS = ("rlzoo-plus", "stable-baselines3", "sb3-contrib", "torch", "gymnasium", "pybullet")


def card(
    repo: str,
    config: RunConfig,
    run: RunDir | None,
    which: str,
    evaluation: dict[str, Any],
    made: Collection[str],
    *,
    has_state: bool,
) -> str:
    """Return the text of a card.

    Args:
        repo: The repository, `org/name`.
        config: Of the run.
        run: The run, None for a bundle.
        which: The policy that was evaluated.
        evaluation: What `Run.evaluate` returned.
        made: The names in the package.
        has_state: Whether there is a checkpoint.
    """
    algo, env = _text(config.algo.name), _text(config.env.name or config.env.id)
    address = f"{SCHEME}{repo}"
    parts = [
        f"---\n{_metadata(config, evaluation)}\n---\n",
        f"# {algo.upper()} on {env}\n",
        f"A policy trained with rlzoo_plus in `{_code(config.env.id)}`, as JSON and safetensors: "
        "no pickle, and nothing in it is executed.\n",
    ]
    if VIDEO in made:
        source = f"https://huggingface.co/{repo}/resolve/main/{VIDEO}"
        parts.append(f'<video src="{source}" controls autoplay loop muted></video>\n')
    parts += [_scores(which, evaluation)]
    if CURVE in made:
        parts.append(f"![Return over environment steps]({CURVE})\n")
    parts += ["## Use\n", _use(address, has_state=has_state, has_onnx=ONNX in made)]
    if run is not None:
        parts += ["## Training\n", _training(run), "## What is exact\n", _exactness(run)]
    return "\n".join(parts)


def _metadata(config: RunConfig, evaluation: dict[str, Any]) -> str:
    """Return the metadata of the card, with the metrics as the Hub's model index has them."""
    tags = [LIBRARY, _TASK, "deep-reinforcement-learning", config.algo.name]
    tags += [str(name) for name in (config.env.name, config.env.id) if name]
    spread = f"{evaluation['mean_return']:.2f} +/- {evaluation['std_return']:.2f}"
    values = {
        "mean_reward": ("mean return", spread),
        "iqm_reward": ("interquartile mean return", round(evaluation["iqm_return"], 2)),
    }
    if evaluation["success_rate"] is not None:
        values["success_rate"] = ("success rate", evaluation["success_rate"])
    results = [
        EvalResult(
            task_type=_TASK,
            task_name=_TASK,
            dataset_type=config.env.id,
            dataset_name=config.env.id,
            metric_type=kind,
            metric_name=name,
            metric_value=value,
        )
        for kind, (name, value) in values.items()
    ]
    data = ModelCardData(
        library_name=LIBRARY,
        pipeline_tag=_TASK,
        tags=tags,
        model_name=config.algo.name,
        eval_results=results,
    )
    return str(data.to_yaml()).strip()


def _scores(which: str, evaluation: dict[str, Any]) -> str:
    returns, lengths = evaluation["returns"], evaluation["episode_lengths"]
    rows = [
        ("policy", f"`{_code(which)}`, after {evaluation['step']:,} environment steps"),
        ("episodes", f"{evaluation['episodes']} held-out ones, deterministic"),
        ("mean return", f"{evaluation['mean_return']:.2f} +- {evaluation['std_return']:.2f}"),
        ("interquartile mean", f"{evaluation['iqm_return']:.2f}"),
        ("lowest, highest", f"{min(returns):.2f}, {max(returns):.2f}"),
        ("mean length", f"{sum(lengths) / len(lengths):.1f} steps"),
    ]
    if evaluation["success_rate"] is not None:
        rows.append(("success rate", f"{100 * evaluation['success_rate']:.0f}%"))
    lines = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    return "\n".join(lines) + "\n"


def _use(address: str, *, has_state: bool, has_onnx: bool) -> str:
    name = address.removeprefix(SCHEME)
    lines = [
        "pip install 'rlzoo-plus[hub]'",
        f"rlzoo-plus verify {address}      # plays the recorded episodes again, bit for bit",
        f"rlzoo-plus enjoy {address}       # in a window; record writes a video",
        f"rlzoo-plus evaluate {address}",
    ]
    if has_state:
        lines.append(f"rlzoo-plus hub pull {name} --state     # then: rlzoo-plus resume DIRECTORY")
    shell = "```sh\n" + "\n".join(lines) + "\n```\n"
    python = (
        "```python\nimport rlzoo_plus as rz\n\n"
        f'policy = rz.load_policy("{address}")\nactions, _ = policy.predict(observation)\n```\n'
    )
    onnx = f"`{ONNX}` takes raw observations and returns actions.\n" if has_onnx else ""
    return "\n".join([shell, python, onnx])


def _training(run: RunDir) -> str:
    known, result = run.read_provenance(), run.read_result()
    try:
        command = read_plain_file(run.command_file, _LONGEST_COMMAND).decode(errors="replace")
    except (OSError, ValueError):
        command = ""
    shown = [printable(line, 2000).replace("```", "'''") for line in command.splitlines()]
    parts = ["```sh\n" + "\n".join(shown) + "\n```\n"] if shown else []
    packages, machine, git = (part_of(known, name) for name in ("packages", "machine", "git"))
    versions = [f"{name} {packages[name]}" for name in _VERSIONS if packages.get(name)]
    changed = ", with changes that were not committed" if git.get("dirty") else ""
    rows = {
        "steps": result.get("num_timesteps"),
        "minutes": _minutes(result.get("training_time_s")),
        "hash of the configuration": result.get("config_hash"),
        "versions": ", ".join([f"Python {known.get('python')}", *versions]),
        "machine": ", ".join(str(machine[k]) for k in ("processor", "system") if machine.get(k)),
        "code": f"{git['commit']}{changed}" if git.get("commit") else None,
    }
    lines = [f"- {name}: {_text(value)}" for name, value in rows.items() if value not in (None, "")]
    return "\n".join([*parts, *lines]) + "\n\nAll values are in `config.yaml`.\n"


def _exactness(run: RunDir) -> str:
    result = run.read_result()
    lines = [
        "`rlzoo-plus verify` plays the recorded episodes with these weights. On the same kind of "
        "processor with the same versions every action, observation and reward is the same bit for "
        "bit; elsewhere the mean return is within 5%.\n"
    ]
    if result.get("exact") is True:
        times = result.get("resumed_at")
        again = (
            f", although it was resumed {len(times)} times"
            if isinstance(times, list) and times
            else ""
        )
        lines.append(f"The training is the one of its seed, bit for bit{again}.\n")
    elif result:
        reasons = result.get("inexact_because")
        why = "; ".join(map(str, reasons)) if isinstance(reasons, list) else ""
        lines.append(
            f"The training is not bit for bit that of its seed: {_text(why or 'unknown')}.\n"
        )
    return "\n".join(lines)


def part_of(data: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a mapping in a mapping, an empty one if there is none."""
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def _minutes(seconds: Any) -> str | None:
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    return f"{seconds / 60:.1f}" if is_number else None


def _text(value: object) -> str:
    """Return a text of the run that no page takes for markup."""
    return _MARKUP.sub(r"\\\1", html.escape(printable(value), quote=False))


def _code(value: object) -> str:
    """Return a text of the run for a span of code."""
    return html.escape(printable(value), quote=False).replace("`", "'").replace("|", "/")
