"""Every command of README.md and docs/ is read from its page, parsed, and run as it is typed."""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support import fake_slurm
from support.aws import deployed_project, detach_policies
from support.documented import prepare_files, run_command, running_command
from support.fake_batch import fake_batch
from support.processes import wait_for

from rlzoo_plus.cloud import aws
from rlzoo_plus.cloud.image import WorkerImage
from rlzoo_plus.commands import dispatch
from rlzoo_plus.commands.typed import CommandParser
from rlzoo_plus.commands.verbs import WITH_OVERRIDES
from rlzoo_plus.config.catalog import ALGORITHMS
from rlzoo_plus.config.signatures import constructor_arguments
from rlzoo_plus.errors import ConfigError

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<kind>\w*)\n(?P<text>.*?)^ *```", re.MULTILINE | re.DOTALL
)
# A command inside of another one: of sbatch, of eval.
INNER = re.compile(r"(?:exec |\$\()(rlzoo-plus[^)]*)")
# Two seeds show what twenty do.
SEEDS = re.compile(r"range\(0, ?\d+\)")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|#.*")
UNQUOTED = re.compile(r"\S+=[^\s$]*[\[(?*]\S*")
PROGRAMS = (("rlzoo-plus",), ("python", "-m", "rlzoo_plus"), ("python", "train.py"))


@dataclass(frozen=True)
class Command:
    """A command of a page: its program and its other words; variables of the page are filled in."""

    page: str
    line: int
    program: tuple[str, ...]
    words: tuple[str, ...]
    shown: str = ""  # What the page says that it prints

    def __str__(self):
        return f"{self.page}:{self.line}: {shlex.join([*self.program, *self.words])}"

    @property
    def verb(self):
        return "train" if self.program[-1] == "train.py" else self.words[0]

    @property
    def arguments(self):
        return list(self.words if self.program[-1] == "train.py" else self.words[1:])


def commands_of(page: Path) -> list[Command]:
    """Return the commands in the blocks of a page."""
    text, found, variables = page.read_text(encoding="utf-8"), [], {}
    for block in BLOCK.finditer(text):
        if block["kind"] not in ("sh", "text", ""):
            continue
        number = text.count("\n", 0, block.start("text")) + 1
        for line in block["text"].replace("\\\n", "\0").splitlines():
            place, number = (str(page.relative_to(ROOT)), number), number + 1 + line.count("\0")
            if block["kind"] == "sh" or line.startswith(("$ ", "python ")):
                line = re.sub(r"\$(\w+)", lambda name: variables.get(name[1], name[0]), line)
                words = shlex.split(line.replace("\0", " "), comments=True)
                if (
                    words
                    and (variable := re.fullmatch(r"(\w+)=(.*)", words[-1]))
                    and not words[:-2]
                ):
                    variables[variable[1]] = variable[2]
                found += _commands_in(words, place)
            elif found and block["text"].startswith("$ "):
                found[-1] = replace(found[-1], shown=f"{found[-1].shown}{line}\n")
    return found


def _commands_in(words, place):
    for word in words:
        if inner := INNER.search(word):
            return _commands_in(shlex.split(inner[1]), place)
    words = [word for word in words if word not in ("$", "nohup", "&", "...")]
    for program in PROGRAMS:
        if tuple(words[: len(program)]) == program:
            return [Command(*place, program, tuple(words[len(program) :]))]
    return []


COMMANDS = {str(page.relative_to(ROOT)): commands_of(page) for page in PAGES}
PAGES_WITH_COMMANDS = [name for name, found in COMMANDS.items() if found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_bash_and_zsh_take_the_commands_as_they_stand(page):
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["kind"] == "sh":
            checked = subprocess.run(["bash", "-n"], input=block["text"], text=True, timeout=60)
            assert checked.returncode == 0, block["text"]
            outside = QUOTED.sub("", block["text"])
            assert not UNQUOTED.findall(outside), "zsh looks for files of this name: quote it"


class Reached(BaseException):
    """A command is parsed, and its configuration composed: now it would begin."""


def _reach(*_, **__):
    raise Reached


# What is called next.
BEGINNINGS = (
    "rlzoo_plus.commands.train.plan_run",
    "rlzoo_plus.commands.benchmark.SuiteRun.train",
    "rlzoo_plus.commands.train_population.make_launcher",
    "rlzoo_plus.commands.train_population.train_schedule",
    "rlzoo_plus.commands.inspect._step_through",
    "rlzoo_plus.doctor.check_jobs.check_jobs",
    "rlzoo_plus.envs.fit.inspect_env",
    "rlzoo_plus.doctor.inspection.inspect_env",
    "rlzoo_plus.identify.identification.identify",
    "rlzoo_plus.runs.run.Run.open",
    "rlzoo_plus.tuning.stored_study.with_trial",
    "rlzoo_plus.tuning.study.begin_study",
)
# Their overrides are composed, too.
COMPOSING = (*WITH_OVERRIDES, "benchmark")


def _begin_sweep(sweep):
    if sweep._mistakes:
        raise ConfigError("; ".join(sweep._mistakes))
    raise Reached


@pytest.fixture
def parse(page, in_process, monkeypatch, capsys):
    """Return a function: verb and arguments to exit code and output, up to where it begins."""
    prepare_files(in_process, ROOT / page)
    for folder in ("conf", "outputs/studies/cartpole_bullet-ppo/conf"):
        for file in ("env/my_robot.yaml", "experiment/cartpole_bullet-ppo_best.yaml"):
            target = in_process / folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(
                "# @package _global_\n" if "experiment" in file else "id: Pendulum-v1\n"
            )
    shutil.copytree(in_process / "conf", in_process / "my_conf", dirs_exist_ok=True)
    monkeypatch.setenv("API_TOKEN", "...")
    known = dict(ALGORITHMS)
    modules = {file.stem for file in in_process.glob("*.py")}
    for name in modules:
        # Another test of this process may have imported its own.
        sys.modules.pop(name, None)
    # Other tests leave the folder of the examples there.
    monkeypatch.setattr(sys, "path", [str(in_process), *sys.path])
    for name in BEGINNINGS:
        monkeypatch.setattr(name, _reach)
    if page == "docs/demonstrations.md":
        # Datasets are read while a configuration is composed.
        monkeypatch.setattr("rlzoo_plus.demonstrations.data_of_run.with_digest", lambda c: c)
    monkeypatch.setattr("rlzoo_plus.sweeps.multirun.start_early", lambda *_: None)
    monkeypatch.setattr("rlzoo_plus.sweeps.multirun.Multirun.run", _begin_sweep)

    def parse_it(verb, arguments):
        with monkeypatch.context() as patch:
            if verb not in COMPOSING:
                for kind in ("parse_args", "parse_intermixed_args", "parse_known_args"):
                    _stop_after(patch, kind)
            try:
                code = dispatch.run(verb, arguments)
            except Reached:
                code = 0
            except SystemExit as stop:
                code = stop.code
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    yield parse_it
    constructor_arguments.cache_clear()
    ALGORITHMS.clear()
    ALGORITHMS.update(known)
    for name in modules:
        sys.modules.pop(name, None)


def _stop_after(patch, kind):
    parse = getattr(argparse.ArgumentParser, kind)

    def parse_and_stop(self, arguments=None, namespace=None):
        found = parse(self, arguments, namespace)
        # Not those of a sub-command, nor the first of two passes.
        if sys._getframe(1).f_globals["__name__"] == "argparse":
            return found
        raise Reached

    patch.setattr(CommandParser, kind, parse_and_stop)


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS)
def test_every_command_of_a_page_is_understood(page, parse):
    wrong = []
    for command in COMMANDS[page]:
        verb, arguments = (
            command.verb,
            [SEEDS.sub("range(0,2)", word) for word in command.arguments],
        )
        if verb == "-sc":
            continue
        if verb == "doctor":
            verb = "train"
            arguments = [word for word in arguments if word not in ("--no-probe", "--learn")]
            if any("," in word or "range" in word for word in arguments):
                arguments = ["-m", *arguments]
        # What a run begins or learns from is read while it is composed.
        read = ("init", "reward_model")
        code, text = parse(verb, [word for word in arguments if not word.startswith(read)])
        is_refused = command.shown.startswith("error: ") or "is not installed" in text
        if code != 0 and not is_refused:
            wrong.append(f"{command}\n{text}")
    assert not wrong, "\n".join(wrong)


# What no machine of the tests has; the arguments of each are parsed above.
CANNOT_RUN = {
    r"algo=sbx_": "needs the extra sbx, which the tests do not install",
    r"MyEnv-v0": "needs an environment of the reader's",
    r"minigrid": "needs the package minigrid",
    r"env\.python=/opt": "needs an interpreter of the reader's",
    r"env=unity": "needs a build of Unity",
    r"enjoy \S+$": "needs a display",
    r"tracker=wandb tracker.project": "needs an account at Weights & Biases",
    r"hpo.storage=postgresql": "needs a server of PostgreSQL",
    r"infra.address=auto": "needs a Ray cluster that already runs",
    r"infra.gpus_per_job": "needs a GPU",
    r"import-sb3 rl-trained-agents": "needs agents of DLR-RM/rl-trained-agents",
    r"\bhub (push|pull|search)|hf://|outputs/hub": "needs the Hub; tests/hub has a stand-in of it",
    r"my_arm\.": "needs a driver of the reader's",
    r"watch-robot": "needs a session, and serves until Ctrl-C",
    r"collect --teleop": "needs a person; tests/teleop plays one",
    r"override stop": "needs a robot that moves, in another terminal",
    r"override http": "needs a server, in another terminal; tests/serving has one",
    r"--head HASH": "needs a hash that was noted",
    r"cloud build": "needs docker, podman or buildah; test_cloud_build.py imitates them",
}
NAMED_RUN = "outputs/cartpole_bullet/ppo/2026-01-31_12-00-00-s0"
A1_RUN = "outputs/a1_walk/ppo/2026-01-31_12-00-00-s0"
# The same, where commands that match mean another one.
NAMES_OF = {
    r"terrain|a1_walk.*init_from=RUN": {r"RUN": A1_RUN},
    r"docs/sweeps.md": {r"^S$": "outputs/sweeps/first"},
    r"docs/tuning.md": {r"^S$": "cartpole_bullet-ppo"},
}
# In the place of what the pages leave to the reader.
NAMES = {
    r"(?<![\w/.])(RUN1?)(?![\w/])": NAMED_RUN,
    r"(?<![\w/])(OTHER|RUN2)(?!\w)": "outputs/cartpole_bullet/ppo/two",
    r"(?<![\w/])THIRD(?!\w)": "outputs/cartpole_bullet/sac/2026-01-31_12-00-00-s0",
    r"(?<![\w/])SWEEP(?!\w)": "outputs/sweeps/first",
    r"(?<![\w/])DIR(?!\w)": "outputs",
    r"^~/": "",
}
# Less of what a page asks for.
LESS = {
    r"range\(0, ?\d+\)": "range(0,2)",
    r"seed=1,2,3": "seed=1,2",
    r"\bn_timesteps=[\de]+": "n_timesteps=4096",
    r"\bn_envs=4096": "n_envs=16",
    r"hpo.n_trials=\d+": "hpo.n_trials=2",
    r"population: 8, segments: 10": "population: 2, segments: 2",
    r"^trial=\d+": "trial=1",
    r"steps_per_s >= 1000": "steps_per_s >= 1",
}
TRAINING = ["eval.episodes=2", "report.video=false", "num_threads=1"]
# What is added to the arguments of a verb, where they do not have it already.
MORE = {
    "train": ["n_timesteps=2048", *TRAINING],
    "resume": ["eval.episodes=2"],
    "benchmark": ["n_timesteps=2048", *TRAINING],
    "doctor": ["--probe=2"],
    "evaluate": ["--episodes=2"],
    "diagnose": ["--episodes=2"],
    "robustness": ["--episodes=1"],
    "record": ["--seconds=1"],
    "inspect": ["--seconds=0.5"],
    "verify-resume": ["--kills=1", "--steps=300"],
    "pull": ["--episodes=20"],
    "worker": ["--no-wait"],
    "new-robot": ["--force"],
    "run-robot": ["--set=clock=simulated"],
    "serve": ["--port=0"],
    "prefer": ["--rater=synthetic", "--pairs=20", "--clip-steps=10"],
}
# A gate that says no, or cannot tell yet; instances that take a minute to end; too few decisions;
# a condition that never held.
EXIT_CODES = {"compare": (0, 1, 3), "cloud": (0, 1), "shadow-report": (0, 1), "bisect": (0, 2)}
# Nothing is left to be cancelled where all commands are run one after the other.
NOTHING_TO_CANCEL = "no controller is at work"
STUDY = ["hpo.n_timesteps=2048", "hpo.n_trials=2", "hpo.retrain.best=1", "hpo.retrain.seeds=1"]
COUNTS = re.compile(r"--(episodes|kills|seeds|worst|probe|seconds)$")
TRAIN = "rlzoo-plus train env=cartpole_bullet"
# The first column occurs in the commands of a page: the second makes what they name.
PREPARING = {
    r"\b(RUN1?|latest|SWEEP|episodes|push|checkpoint)\b|cartpole_bullet": (
        f"{TRAIN} run_dir={NAMED_RUN}"
    ),
    r"\b(OTHER|RUN2)\b|cartpole_bullet": f"{TRAIN} seed=1 run_dir=outputs/cartpole_bullet/ppo/two",
    r"\bTHIRD\b|cartpole_bullet/sac": (
        f"{TRAIN} algo=sac run_dir=outputs/cartpole_bullet/sac/2026-01-31_12-00-00-s0"
    ),
    r"outputs/sweeps/default|sweep status default": f"{TRAIN} -m seed=0,1",
    r"\bfirst\b|SWEEP": f"{TRAIN} -m algo=ppo,a2c seed=5,6,7,8,9 sweep=first",
    r"sweeps/new": f"{TRAIN} -m seed=0,1 sweep=new",
    r"sweeps/old": f"{TRAIN} -m algo=a2c seed=0,1 sweep=old",
    r"cartpole_bullet-ppo|trial=": f"{TRAIN} -m hpo=ppo",
    r"hopper_bullet": (
        "rlzoo-plus train -m env=hopper_bullet n_envs=2 algo.hyperparams.n_steps=256"
        " algo=ppo seed=0,1 sweep=outputs/hopper_bullet/ppo"
    ),
    r"hopper_bullet/sac": "rlzoo-plus train env=hopper_bullet algo=sac",
    r"a1_walk/ppo/2026|terrain|a1_walk.*init_from=RUN": (
        f"rlzoo-plus train env=a1_walk run_dir={A1_RUN}"
    ),
}
# The same, before a command that names it: in the folder of the page, or in its store.
AT_ONCE = {
    r"serve cartpole/": "deploy trained/cartpole_bullet --out cartpole",
    r"init_from=model\.zip": "export RUN --format sb3 --output model.zip",
    r"import-sb3 model\.zip": "train normalize=true run_dir=normalized; "
    "export normalized --format sb3 --output model.zip",
    # With statistics: those of another run lie in this folder.
    r"sac\.zip": "train algo=sac env=pendulum normalize=true network.activation=elu run_dir=sac; "
    "export sac --format sb3 --output sac.zip",
    r"(?<!hopper_bullet/ppo/\*' )s3://bucket/lab": "push RUN s3://bucket/lab",
    r"hopper_bullet/ppo/\*' s3://bucket/lab": (
        "train env=hopper_bullet n_envs=2 algo.hyperparams.n_steps=256 store=s3://bucket/lab"
    ),
    r"runs/cartpole_bullet/ppo/2026": "push RUN s3://my-bucket/lab",
    r"(status|pull|worker).*lab/wide": (
        "train -m seed=0,1 sweep=wide infra=workers store=s3://my-bucket/lab"
    ),
    r"lab/first": "train -m seed=0,1 sweep=first infra=workers store=s3://my-bucket/lab",
    r"pull s3://BUCKET/first": "worker s3://BUCKET/first",
    r"--best.*env=panda_reach": "train algo=sac env=panda_reach store=s3://my-bucket/lab",
    r"lab/sweep-3": (
        "train -m algo=sac env=panda_reach seed=0,1 sweep=sweep-3 store=s3://my-bucket/lab"
    ),
}
IN_AWS = re.compile(r"s3://|\bcloud\b|aws_batch|ec2_spot")


def reduced(command: Command) -> list[str]:
    """Return the arguments of a command with names filled in and smaller budgets."""
    arguments = command.arguments
    if "--trust" in arguments:
        # What the page has trained before.
        arguments = ["latest" if word == "RUN" else word for word in arguments]
    own = [names for pattern, names in NAMES_OF.items() if re.search(pattern, str(command))]
    named = [pair for names in (*own, NAMES, LESS) for pair in names.items()]
    for pattern, text in named:
        arguments = [re.sub(pattern, text, word) for word in arguments]
    for position, word in enumerate(arguments[:-1]):
        if COUNTS.match(word) and arguments[position + 1].isdigit():
            arguments[position + 1] = "4"
    given = {word.partition("=")[0] for word in arguments}
    more = [*MORE.get(command.verb, ()), *(STUDY if "hpo" in given else ())]
    if "hpo" in given and "hpo.study" not in given and command.line:
        # Another base than that of the study with the usual name.
        more.append(f"hpo.study=line{command.line}")
    if "infra=workers" in arguments:
        more.append("infra.wait=false")
    if {"--no-probe", "schedule"} & given:
        more = []
    return [*arguments, *(word for word in more if word.partition("=")[0] not in given)]


class Machine:
    """Runs the commands of a page in one folder; those that manage AWS in this process, on moto."""

    def __init__(self, folder, capsys, bucket):
        self.folder, self._capsys, self._bucket = folder, capsys, bucket
        self._made = set()

    def run(self, command: Command) -> tuple[int, str]:
        """Return exit code and output of a command."""
        arguments = [word.replace("BUCKET", self._bucket) for word in reduced(command)]
        is_in_aws = {"infra=aws_batch", "infra=ec2_spot"} & {*arguments}
        if command.verb == "cloud" or is_in_aws or (self._bucket and command.verb == "sweep"):
            return self._run_here(command.verb, arguments)
        if command.verb in ("dashboard", "serve") and "--export" not in arguments:
            return self._serve(command.verb, arguments)
        return run_command([command.verb, *arguments], self.folder)

    def _serve(self, verb, arguments):
        with running_command([verb, *arguments], self.folder) as (process, output):
            wait_for(lambda: "http://" in _read(output) or not process.is_alive())
            code = 0 if process.is_alive() else 1
            # Ctrl-C ends it, and its server.
            os.kill(process.pid, signal.SIGINT)
            process.join(20)
            return code, _read(output)

    def _run_here(self, verb, arguments):
        if verb == "cloud" and arguments[0] in ("deploy", "destroy"):
            arguments = [*arguments, "--yes"]
            detach_policies()
        try:
            code = dispatch.run(verb, arguments)
        except SystemExit as stop:
            code = stop.code
        told = self._capsys.readouterr()
        return code, told.out + told.err

    @contextmanager
    def training(self):
        """Let RUN train on."""
        words = ["resume", NAMED_RUN, "n_timesteps=100000000"]
        with running_command(words, self.folder) as (process, output):
            wait_for(lambda: "steps/s" in _read(output) or not process.is_alive())
            assert process.is_alive(), _read(output)
            yield

    def prepare(self, prepared, commands):
        """Copy what commands name from a folder where it is made once."""
        text = "\n".join(map(str, commands))
        for pattern, line in PREPARING.items():
            done = prepared / f"{abs(hash(line))}.done"
            if re.search(pattern, text) and not done.exists():
                (preparing,) = _commands_in(shlex.split(line), ("prepared", 0))
                code, said = run_command([preparing.verb, *reduced(preparing)], prepared)
                assert code == 0, f"{line}\n{said}"
                done.touch()
        if (prepared / "outputs").exists():
            shutil.copytree(prepared / "outputs", self.folder / "outputs", dirs_exist_ok=True)

    def prepare_at_once(self, command):
        """Make what a command names, in this folder or in a store."""
        for pattern, lines in AT_ONCE.items():
            if not re.search(pattern, str(command)) or lines in self._made:
                continue
            self._made.add(lines)
            for line in lines.split(";"):
                (preparing,) = _commands_in(["rlzoo-plus", *line.split()], ("prepared", 0))
                code, said = self.run(preparing)
                assert code == 0, f"{line}\n{said}"
        if re.search(r"(resume|pull) s3://my", str(command)):
            # It would not overwrite what is there.
            for name in ("cartpole_bullet", "panda_reach"):
                shutil.rmtree(self.folder / "outputs" / name, ignore_errors=True)


def _read(output: Path) -> str:
    return output.read_text() if output.exists() else ""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The folder where runs, sweeps and studies are made once for all pages."""
    return tmp_path_factory.mktemp("prepared")


@pytest.fixture
def machine(page, in_process, monkeypatch, capsys):
    """A folder with the user's files; for pages on AWS an account with a project."""
    prepare_files(in_process, ROOT / page)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HOME", str(in_process))
    monkeypatch.setenv("ROBOT_KEY", "2b" * 32)  # as docs/resume.md exports it
    with ExitStack() as stack:
        bucket = ""
        if IN_AWS.search("\n".join(map(str, COMMANDS[page]))):
            bucket = stack.enter_context(_account(monkeypatch))
        fake_slurm.install(in_process / "bin", in_process / "slurm")
        monkeypatch.setenv("PATH", str(in_process / "bin"), prepend=os.pathsep)
        monkeypatch.setenv("FAKE_SLURM", str(in_process / "slurm"))
        yield Machine(in_process, capsys, bucket)


@contextmanager
def _account(monkeypatch):
    """Yield the bucket of a project whose jobs and fleets wait for machines that never start."""
    image = WorkerImage("localhost/worker:1", (), "")
    for module in ("batch", "fleet"):
        monkeypatch.setattr(f"rlzoo_plus.cloud.{module}.worker_image", lambda *_, **__: image)
    monkeypatch.setattr("rlzoo_plus.cloud.quota.vcpu_quota", lambda **_: 64)
    with deployed_project(monkeypatch, server=True) as project, fake_batch(monkeypatch) as fake:
        # What ends at once, where AWS takes a moment.
        monkeypatch.setattr(
            "rlzoo_plus.cloud.running.end_all",
            lambda *_: [fake.set(index, "FAILED") for index in range(len(fake.jobs))],
        )
        for name in ("bucket", "my-bucket"):
            aws.client("s3").create_bucket(Bucket=name)
        yield project.store.removeprefix("s3://")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS)
def test_every_command_of_a_page_runs(page, machine, prepared):
    commands = [c for c in COMMANDS[page] if not any(re.search(p, str(c)) for p in CANNOT_RUN)]
    machine.prepare(prepared, commands)
    wrong = []
    # A project that is destroyed is no use to the commands after it.
    for command in sorted(commands, key=lambda c: c.arguments == ["destroy"]):
        machine.prepare_at_once(command)
        with machine.training() if command.verb == "checkpoint" else nullcontext():
            code, said = machine.run(command)
        if command.shown.startswith("error: "):
            assert (code, " ".join(command.shown.split()) in " ".join(said.split())) == (2, True)
        elif code not in EXIT_CODES.get(command.verb, (0,)) and NOTHING_TO_CANCEL not in said:
            wrong.append(f"{command}\nexit code {code}\n{said[-1500:]}")
    assert not wrong, "\n\n".join(wrong)
