"""The pairs of verb and injection: each verb that takes a path, with a folder of its own."""

import json
from collections import Counter

from optuna import load_study
from support.evil_folders import CALLBACKS, ELSEWHERE, RUNS, config
from support.evil_sweeps import edit_ledger, make_sweep
from support.forged import copy_run
from support.studies import add_trial, make_study, settings

from rlzoo_plus.sweeps.ledger import FAILED, Ledger
from rlzoo_plus.tuning import trials as noted
from rlzoo_plus.tuning.storage import open_storage
from rlzoo_plus.tuning.study import create_study

CODE = ("own package", "own wrapper", "own algorithm", "id with a module", "id of old Gym")
CODE += ("tag object/apply:os.system", "_target_")
TRACKER = {"name": "wandb", "project": "x", "offline": False, "kwargs": {}}
SLURM = "  name: slurm\n  cluster: local\n  setup: [evil]"
SENT = {
    "tracker": config("tracker: null", f"tracker: {json.dumps(TRACKER)}"),
    "device of two lines": config("device: cpu", 'device: "cpu\\nerror: all is well"'),
    "slurm with a command": config("  name: local", SLURM),
}
PLAY = {
    "evaluate": ["--episodes", "1", "--n-envs", "1"],
    "enjoy": ["--no-window", "--episodes", "1"],
    "record": ["--seconds", "0.1"],
    "export": ["--format", "sb3"],
    "verify-resume": [],
    "resume": [],
    "runs": [],
    "plot": [],
}
TRAIN = ["algo=ppo", "env=pendulum", "tuned=none", "n_timesteps=64"]
LINKS_OF = {"record": "videos", "plot": "plots", "export": "export", "checkpoint": ".lock"}
GO_ON = [
    *("algo=ppo", "env=pendulum", "tuned=none", "n_timesteps=4096", "hpo=ppo", "infra=debug"),
    *("hpo.sampler=random", "hpo.n_trials=1", "hpo.retrain.best=1", "hpo.warm_start=false"),
]


def make_pairs(root, command, each=None):
    """Make all folders below a root.

    Args:
        root: An empty folder, with a folder `victim` in it.
        command: What must not run.
        each: So many injections of each verb, None for all.

    Returns:
        The pairs, each with the folder that its verb is given.
    """
    made = [*_runs(root / "runs"), *_sweeps(root / "sweeps", command, root / "victim")]
    made += _studies(root / "studies", command)
    seen, pairs = Counter(), []
    for pair in made:
        seen[pair["name"]] += 1
        if each is None or seen[pair["name"]] <= each:
            pairs.append(pair)
    return pairs


def _pair(verb, words, folder, injection, name=None):
    path, *arguments = words
    pair = {"verb": verb, "path": str(path), "arguments": [str(word) for word in arguments]}
    return {**pair, "folder": str(folder), "injection": injection, "name": name or verb}


def _runs(root):
    edits = {name: RUNS[name] for name in CODE}
    plays = [(verb, edits) for verb in PLAY]
    plays += [(verb, CALLBACKS | SENT) for verb in ("resume", "runs", "plot", "compare", "report")]
    plays += [("verify-resume", CALLBACKS)]
    plays += [("resume", ELSEWHERE)]
    for verb, name in LINKS_OF.items():
        plays.append((verb, {f"{name} elsewhere": ELSEWHERE[f"{name} elsewhere"]}))
    for number, (verb, some) in enumerate(plays):
        for place, (name, edit) in enumerate(some.items()):
            run = copy_run(root / f"{number}-{place}" / "run")
            edit(run)
            out = ["--out", run / "report.html"] if verb == "report" else []
            yield _pair(verb, [run, *PLAY.get(verb, []), *out], run, name)
    for verb in ("train", "doctor"):
        for place, (name, edit) in enumerate((edits | CALLBACKS | SENT | ELSEWHERE).items()):
            run = copy_run(root / f"{verb}-{place}" / "run")
            edit(run)
            words = [f"run_dir={run}", *TRAIN, *(["--no-probe"] if verb == "doctor" else [])]
            yield _pair(verb, words, run, name, f"{verb} run_dir=")


def _sweeps(root, command, victim):
    def stored(**changes):
        return lambda job: edit_ledger(job.sweep, lambda record: record["config"].update(changes))

    def env(**changes):
        return lambda job: edit_ledger(job.sweep, lambda r: r["config"]["env"].update(changes))

    def moved(job):
        edit_ledger(job.sweep, lambda record: record.update(job="../../victim"))

    def linked(place):
        def edit(job):
            path = place(job)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(victim / "precious" if path.suffix in (".txt", ".jsonl") else victim)

        return edit

    slurm = {"name": "slurm", "cluster": "local", "setup": [command]}
    edits = {
        "slurm with a command": stored(infra=slurm),
        "an address of Ray": stored(infra={"name": "ray", "address": "ray://203.0.113.7:10001"}),
        "a callback that is a command": stored(callbacks=[{"os.system": {"command": command}}]),
        "a tracker": stored(tracker=TRACKER),
        "a device of two lines": stored(device="cpu\nerror: all is well"),
        "a package": env(packages=["evil_package"]),
        "a wrapper": env(wrappers=["evil_package.Wrapper"]),
        "a module in an id": env(id="evil_package:Pendulum-v1"),
        "a class as an id": env(id="evil_package.Env"),
        "a job elsewhere": moved,
        "log.txt elsewhere": linked(lambda job: job.path / "log.txt"),
        "metrics.jsonl elsewhere": linked(lambda job: job.path / "metrics.jsonl"),
        "the run elsewhere": linked(lambda job: job.path),
        "all runs elsewhere": linked(lambda job: job.path.parents[1]),
        "controllers elsewhere": linked(lambda job: job.sweep / ".controllers"),
    }
    verbs = {"status": [], "resume": [], "retry-failed": [], "cancel": [], "prune": ["--yes"]}
    for place, (name, edit) in enumerate(edits.items()):
        for verb in (*verbs, "runs", "plot"):
            sweep = root / f"{place}-{verb}"
            # In this process: that a process is started would be seen as an execution.
            job = make_sweep(sweep, infra={"name": "debug"})
            if verb == "retry-failed":
                Ledger(sweep).write(FAILED, job, reason="x")
            edit(job)
            if verb in verbs:
                yield _pair("sweep", [verb, sweep, *verbs[verb]], sweep, name, f"sweep {verb}")
            else:
                yield _pair(verb, [sweep], sweep, name, f"{verb} SWEEP")


def _studies(root, command):
    words = {
        "a callback that is a command": f"++callbacks=[{{os.system: {{command: '{command}'}}}}]",
        "a package": "env.packages=[evil_package]",
        "a wrapper": "env.wrappers=[evil_package.Wrapper]",
        "a module in an id": "env.id=evil_package:Env-v0",
        "a class as an id": "env.id=evil_package.Env",
        "a schedule": "algo.hyperparams.learning_rate=evil_package.fall",
        "another path for settings": f"hydra.searchpath=[file://{root}/evil]",
        "a launcher": "infra=slurm",
        "a tracker": "tracker=wandb",
        "a secret": "algo.hyperparams.ent_coef=${oc.env:PGPASSWORD}",
    }
    far = "postgresql://me@203.0.113.7/studies"
    for place, (name, word) in enumerate(words.items()):
        done = make_study(root / f"{place}-done", settings(sampler="random"), [*TRAIN, word])
        add_trial(done, [1.0])
        folder = done.folder
        # Where a study ran is left out, and the trial is trained.
        if name != "a launcher":
            yield _pair("train", [f"study={folder}", "trial=0"], folder, name, "train study=")
        for verb in ("show", "best", "importance"):
            yield _pair("study", [verb, folder], folder, name, f"study {verb}")
        for state in ("waiting", "best"):
            folder = _bare_study(root / f"{place}-{state}", word, state)
            going = ["-m", *GO_ON, f"hpo.study={folder}"]
            yield _pair("train", going, folder, f"{name}, {state}", "train -m hpo.study=")
    yield _pair("doctor", [*going, "--no-probe"], folder, f"{name}, {state}", "doctor hpo.study=")
    for verb in ("show", "best", "importance", "plot"):
        folder = make_study(root / f"far-{verb}", base=TRAIN, storage=far).folder
        yield _pair("study", [verb, folder], folder, "a database far away", f"study {verb}")


def _bare_study(folder, word, state):
    """Make a study that does not say what it is about, with a trial that waits or is the best."""
    from optuna.trial import TrialState, create_trial

    folder.mkdir(parents=True)
    storage = open_storage("journal", folder, 30)
    create_study(folder.name, storage, ["maximize"])
    is_done = state == "best"
    trial = create_trial(
        state=TrialState.COMPLETE if is_done else TrialState.WAITING,
        values=[1e9] if is_done else None,
        user_attrs={noted.OVERRIDES: ["algo.hyperparams.gamma=0.9", word]},
    )
    load_study(study_name=folder.name, storage=storage).add_trial(trial)
    return folder
