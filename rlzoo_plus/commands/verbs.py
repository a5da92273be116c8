"""The verbs of the command line, and the module of each."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

# The module of each is `rlzoo_plus.commands.VERB`.
VERBS = {
    "train": "train an agent: train algo=ppo env=cartpole_bullet",
    "evaluate": "evaluate a trained policy on held-out episodes",
    "verify": "play a policy's recorded episodes again, check its score",
    "replay": "play saved episodes again, and check each step",
    "diagnose": "look into a trained policy, and at its reward",
    "robustness": "measure a policy in changed worlds: mass, latency, noise",
    "enjoy": "watch a trained policy in a window",
    "record": "record a video of a trained policy",
    "collect": "write a policy's episodes as a dataset to learn from",
    "datasets": "look at datasets: list, show, check",
    "prefer": "say which clips are better, and learn a reward from it",
    "resume": "resume an unfinished run, bit for bit",
    "branch": "begin a new run at a checkpoint, with changed settings",
    "bisect": "find the update that broke a run: nan, or a metric",
    "doctor": "check a configuration before training, and measure its speed",
    "new-robot": "write an environment for your own URDF or MJCF",
    "identify": "fit a robot's mass, friction, latency, ... to a log of it",
    "sim2real": "compare a robot's log with the simulation of a training",
    "run-robot": "let a policy act on a robot, and stop safely if anything fails",
    "override": "take a robot or a server out of its policy's hands: stop, ...",
    "watch-robot": "show a running robot in the browser, with a stop button",
    "serve": "let a policy answer over HTTP and WebSocket",
    "audit": "check and search the log of what a server decided",
    "shadow-report": "compare a candidate with what a server did",
    "inspect": "show an environment; or a policy's episode, step by step",
    "sweep": "manage the jobs of train -m: status, resume, ...",
    "worker": "train runs of a sweep that is in a store",
    "cloud": "make, show or remove your project in AWS: deploy, status, ...",
    "study": "show a hyperparameter study: show, plot, best, ...",
    "checkpoint": "ask a training process for a checkpoint",
    "verify-resume": "verify that a killed and resumed run is the same, bit for bit",
    "plot": "plot learning curves of one or more runs",
    "compare": "compare variants: difference, interval, test, gate",
    "benchmark": "train a fixed suite over several seeds, as a table",
    "report": "write an HTML report of runs, a sweep or a study",
    "runs": "list runs: state, algorithm, environment, best return",
    "dashboard": "show runs in the browser",
    "ls": "list the sweeps of a store, or the policies in trained/",
    "push": "send a run to S3 or to a shared folder",
    "pull": "bring a run from S3 or a shared folder, or the best one",
    "hub": "share policies on the Hugging Face Hub: push, pull, search",
    "model": "version policies: register, promote, rollback, list, ...",
    "trust": "trust packages of your own once, for all runs",
    "import-zoo": "convert rl_zoo3 hyperparameter files to conf/tuned",
    "export": "export a policy as ONNX, TorchScript, C or an SB3 zip",
    "deploy": "write a policy for a robot: runs with numpy and onnxruntime",
    "import-sb3": "import a Stable-Baselines3 zip as a run",
}
# The overview, by what one wants to do.
GROUPS = {
    "Train": (
        *("train", "resume", "doctor", "verify-resume", "study", "checkpoint", "import-zoo"),
        *("branch", "bisect"),
    ),
    "Look": (
        *("evaluate", "verify", "enjoy", "record", "replay", "inspect", "diagnose", "robustness"),
    ),
    "Demonstrations": ("collect", "datasets", "prefer"),
    "Compare": ("runs", "plot", "compare", "benchmark", "report", "dashboard"),
    "Robots": (
        *("new-robot", "identify", "sim2real", "export", "deploy", "run-robot", "override"),
        "watch-robot",
    ),
    "Serve": ("model", "serve", "audit", "shadow-report"),
    "Share": ("push", "pull", "ls", "hub", "trust", "import-sb3"),
    "Machines": ("sweep", "worker", "cloud"),
}
# What other tools call them.
OTHER_NAMES = {
    **dict.fromkeys(("tune", "hpo", "optimize", "optuna", "search"), "train -m hpo=ppo"),
    **dict.fromkeys(("eval", "test"), "evaluate"),
    **dict.fromkeys(("play", "watch", "render", "view", "visualize"), "enjoy"),
    **dict.fromkeys(("video", "record_video", "record-video"), "record"),
    **dict.fromkeys(("plot_train", "plot-train", "all_plots", "curve", "curves"), "plot"),
    **dict.fromkeys(("list", "show", "status", "results"), "runs"),
    **dict.fromkeys(("ui", "gui", "board", "tensorboard", "server"), "dashboard"),
    **dict.fromkeys(("onnx", "convert", "to-onnx"), "export"),
    **{"download": "pull", "upload": "push", "sync": "push", "continue": "resume"},
    **{"learn": "train", "run": "train", "fit": "train", "check": "doctor", "multirun": "train -m"},
    **{"table": "compare", "import": "import-sb3", "agent": "worker"},
}
# What machines in a cloud call; nobody types it.
OF_MACHINES = ("leave-fleet",)
# Verbs that take the overrides of `train`.
WITH_OVERRIDES = ("train", "doctor", "identify", "inspect", "verify-resume")


def usage() -> str:
    """Return the overview of verbs, in groups."""
    groups = []
    for title, verbs in GROUPS.items():
        lines = (f"  {verb:<15}{VERBS[verb]}" for verb in verbs)
        groups.append("\n".join([title, *lines]))
    return (
        "Usage: rlzoo-plus VERB [ARGUMENTS]\n\n"
        + "\n\n".join(groups)
        + "\n\n`rlzoo-plus VERB --help` shows the arguments of each.\n"
        'Shell completion: eval "$(rlzoo-plus -sc install=bash)"'
    )


def main_of(verb: str) -> Callable[[list[str]], int | None]:
    """Return the function that runs a verb; its module is imported here."""
    module: Any = import_module(f"rlzoo_plus.commands.{verb.replace('-', '_')}")
    main: Callable[[list[str]], int | None] = module.main
    return main
