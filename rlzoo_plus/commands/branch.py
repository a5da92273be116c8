"""`rlzoo-plus branch`: begin a new run at a checkpoint of another, with changed settings."""

from __future__ import annotations

from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.arguments import RUN_HELP
from rlzoo_plus.commands.train import train_plan
from rlzoo_plus.commands.typed import command_parser, make_console
from rlzoo_plus.runs.printing import set_up_logging
from rlzoo_plus.timetravel.branching import plan_branch


def main(arguments: list[str]) -> int:
    """Begin a branch and train it; return the exit code of `train`."""
    parser = command_parser(
        "branch",
        "Begin a new run at an exact checkpoint of another, with some settings changed: a learning "
        "rate, a reward weight. Everything else goes on bit for bit: weights, optimizers, random "
        "states, replay buffer, running episodes. It has its own directory, and resumes like any "
        "run; provenance.json says where it comes from.",
        "RUN@50000 algo.hyperparams.learning_rate=1e-4",
    )
    add = parser.add_argument
    step_help = "a checkpoint of it: its step, latest or best"
    add("run", metavar="RUN@STEP", help=f"{RUN_HELP}; and {step_help}")
    changes_help = "what changes: algo.hyperparams.*, env.kwargs.*, n_timesteps, eval.*, stop.*, "
    changes_help += "freeze, a wider network.net_arch, ...; run_dir=DIR says where it goes"
    add("overrides", nargs="*", metavar="KEY=VALUE", help=changes_help)
    add("--trust", action="store_true", help="import the run's packages, wrappers and callbacks")
    options = parser.parse_intermixed_args(arguments)
    branch = plan_branch(options.run, options.overrides, trust=options.trust)
    console = make_console()
    set_up_logging(branch.config.log.level, console)
    plan = branch.begin(command_line(["rlzoo-plus", "branch", *arguments]))
    changed = [f"{key} {old} -> {new}" for key, (old, new) in branch.changes.items()]
    what = "; ".join(changed) or "nothing is changed"
    where = f"branch of {branch.parent.path} at step {branch.checkpoint.step:,}"
    console.print(printable(f"{where}: {what}", 400), markup=False)
    return train_plan(
        plan, console, command_line(["rlzoo-plus", "resume", str(plan.config.run_dir)])
    )
