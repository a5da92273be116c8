"""Owns the malicious manifests, kinds of file and run directories: edits of good ones."""

import os
from pathlib import Path

from support.evil_files import COMMAND, DEEP, ESCAPE, HUGE, PICKLE
from support.forged import BUNDLE_FILES, copy_bundle, edit_policy, entry, seal

SECRET = b"secret"


def listed(**changes):
    """List more files in the manifest, with the hash of a secret that lies outside."""

    def edit(folder):
        (folder.parent / "secret").write_bytes(SECRET)
        seal(folder, edit=lambda m: m["files"].update(changes))

    return edit


def names(*extra):
    return listed(**dict.fromkeys(extra, entry(SECRET)))


def manifest(edit):
    return lambda folder: seal(folder, edit=edit)


def text(content):
    return lambda folder: (folder / "MANIFEST.json").write_bytes(content)


def about(**changes):
    return manifest(lambda m: m["about"].update(changes))


def replaced(name, make):
    """Put something else in place of a file, which the manifest still describes rightly."""

    def edit(folder):
        path = folder / name
        path.rename(folder.parent / "taken")
        make(path)

    return edit


def link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "taken")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


def all_sparse(folder: Path) -> None:
    """A tensor file of 4 TiB that the manifest describes as such."""
    sparse_entry = {"size": 2**42, "sha256": "0" * 64}
    seal(folder, edit=lambda m: m["files"].update({"tensors.safetensors": sparse_entry}))
    with (folder / "tensors.safetensors").open("wb") as file:
        file.truncate(2**42)


def pickles_beside(folder: Path) -> None:
    """Pickles under every name that some library would load."""
    for name in ("policy.pkl", "data.pkl", "vec_normalize.pkl", "pytorch_variables.pth"):
        (folder / name).write_bytes(PICKLE)
    seal(folder, names=(*BUNDLE_FILES, "policy.pkl"))


ALL = ["policy.json", "state.json", "tensors.safetensors", "MANIFEST.json"]
FOLDERS = {
    "a wrong hash": manifest(lambda m: m["files"]["policy.json"].update(sha256="0" * 64)),
    "a hash that is a list": manifest(lambda m: m["files"]["policy.json"].update(sha256=[1])),
    "a hash too many": listed(more={"size": 0, "sha256": 5}),
    "a wrong size": manifest(lambda m: m["files"]["policy.json"].update(size=1)),
    "a huge size": manifest(lambda m: m["files"]["policy.json"].update(size=2**70)),
    "a negative size": manifest(lambda m: m["files"]["policy.json"].update(size=-1)),
    "a size of true": manifest(lambda m: m["files"]["policy.json"].update(size=True)),
    "an entry that is text": manifest(lambda m: m["files"].update({"policy.json": COMMAND})),
    "files as a list": manifest(lambda m: m.update(files=["policy.json"])),
    "no files": manifest(lambda m: m["files"].clear()),
    "files as text": manifest(lambda m: m.update(files=COMMAND)),
    "about as a list": manifest(lambda m: m.update(about=[1])),
    "no about": manifest(lambda m: m.pop("about")),
    "another format": manifest(lambda m: m.update(format=2)),
    "9000 files": names(*(f"f{i}" for i in range(9000))),
    "50 000 files": names(*(f"f{i}" for i in range(50_000))),
    "parent": names("../secret"),
    "parent in sub-folder": names("sub/../../secret"),
    "parent, Windows": names("..\\secret"),
    "absolute path": names("/etc/passwd"),
    "drive": names("C:secret"),
    "a device": names("/dev/zero"),
    "a dot": names("."),
    "two dots": names(".."),
    "no name": names(""),
    "NUL in a name": names("a\0b"),
    "newline in a name": names("a\nerror: all is well"),
    "escapes in a name": names(ESCAPE),
    "a name of 10^6": names("a" * 10**6),
    "itself": names("MANIFEST.json"),
    "schema of escapes": about(schema=ESCAPE),
    "schema 2": about(schema=2),
    "negative step": about(step=-1),
    "absurd step": about(step=10**30),
    "step of true": about(step=True),
    "step as text": about(step=COMMAND),
    "step NaN": about(step=float("nan")),
    "no step": manifest(lambda m: m["about"].pop("step")),
    "NaN in about": about(mean_return=float("nan")),
    "manifest of 5 MB": text(b" " * 5_000_000 + b"{}"),
    "deep manifest": text(DEEP.encode()),
    "manifest with a key twice": text(b'{"sha256": "0", "sha256": "1", "format": 1}'),
    "manifest is a pickle": text(PICKLE),
    "manifest is a list": text(b"[1]"),
    "tensors of 4 TiB": all_sparse,
    "pickles beside": pickles_beside,
    **{f"{name} is a link": replaced(name, link) for name in ALL},
    **{f"{name} is a FIFO": replaced(name, os.mkfifo) for name in ALL},
    **{f"{name} is a folder": replaced(name, os.mkdir) for name in ALL},
    **{f"{name} is endless": replaced(name, lambda p: p.symlink_to("/dev/zero")) for name in ALL},
    **{f"{name} is sparse": replaced(name, sparse) for name in ALL},
    **{f"{name} is a loop": replaced(name, lambda p: p.symlink_to(p.name)) for name in ALL},
}


def config(old, new):
    def edit(run):
        path = run / "config.yaml"
        before = path.read_text()
        assert old in before, old
        path.write_text(before.replace(old, new, 1))

    return edit


def whole(content):
    return lambda run: (run / "config.yaml").write_text(content)


def linked(name):
    def edit(run):
        (run.parent / "elsewhere").mkdir()
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(run.parent / "elsewhere")

    return edit


def forged_best(edit):
    """Damage the run's best bundle; the run itself is a good one."""
    return lambda run: edit(run / "best")


def own_extractor(folder):
    """Name a network of one's own in the bundle; the run's configuration names none."""

    def edit(policy):
        policy["config"]["network"]["features_extractor"] = "evil_package.Extractor"

    edit_policy(folder, edit)
    seal(folder)


def fifo_config(run):
    (run / "config.yaml").unlink()
    os.mkfifo(run / "config.yaml")


def link_config(run):
    (run / "config.yaml").unlink()
    (run / "config.yaml").symlink_to("/etc/passwd")


RECORDS = ("evaluations.jsonl", "metrics.jsonl", "status.json", "result.json", "provenance.json")


def fifo_records(run):
    for name in RECORDS:
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)


def deep_records(run):
    for name in RECORDS:
        (run / name).write_text(DEEP + "\n" + '{"step": ' + "9" * 999 + ', "mean_return": 1}\n')


def endless_records(run):
    for name in RECORDS:
        with (run / name).open("wb") as file:
            file.truncate(2**40)


def odd_checkpoints(run):
    for name in ("²", "٣", "1" * 200, ESCAPE.replace("\0", "")):
        (run / "checkpoints" / name).mkdir(parents=True)
    copy_bundle(run / "checkpoints" / "000000000007")
    (run / "best").rename(run.parent / "taken")


TAGS = ("object/apply:os.system", "object/new:os.system", "name:os.system", "module:evil_package")
LEVELS = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]\n" for i in range(1, 10))
MERGES = "".join(f"m{i}: &m{i}\n  <<: [{', '.join([f'*m{i - 1}'] * 10)}]\n" for i in range(1, 10))
RUNS = {
    **{f"tag {tag}": config("seed: 0", f"seed: !!python/{tag} [{COMMAND}]") for tag in TAGS},
    "_target_": config("seed: 0", f"seed: {{_target_: os.system, command: {COMMAND}}}"),
    "alias bomb": whole("l0: &l0 [x]\n" + LEVELS),
    "merge bomb": whole("m0: &m0 {a: 1}\n" + MERGES),
    "an anchor of itself": whole("a: &a [*a]\n"),
    "deep": whole(DEEP),
    "key twice": config("seed: 0", "seed: 0\nseed: 1"),
    "a list": whole("[1, 2]"),
    "a megabyte": whole("a" * 10**6),
    "two documents": whole("a: 1\n---\nb: 2\n"),
    "binary": whole("\x00\x01"),
    "FIFO": fifo_config,
    "link": link_config,
    "own package": config("  packages: []", "  packages: [evil_package]"),
    "own wrapper": config("  wrappers: []", "  wrappers: [evil_package.Wrapper]"),
    "own wrapper, with arguments": config("wrappers: []", "wrappers: [{evil_package.Wrapper: {}}]"),
    "own algorithm": config(
        "algo:\n  name: ppo\n  packages: []", "algo:\n  name: evil\n  packages: [evil_package]"
    ),
    "own packages of a run": config("\nn_envs: 1", "\npackages: [evil_package]\nn_envs: 1"),
    "own algorithm's class": config("algo:\n  name: ppo", "algo:\n  name: evil_package.PPO"),
    "own extractor": config(
        "  features_extractor: null", "  features_extractor: evil_package.Extractor"
    ),
    "own activation": config("  activation: null", "  activation: evil_package.Activation"),
    "own launcher": config(
        "infra:\n  name: local", "infra:\n  name: evil_package.Launcher\n  x: 1"
    ),
    "best with an own extractor": forged_best(own_extractor),
    "id with a module": config("id: Pendulum-v1", "id: evil_package:Pendulum-v1"),
    "id of an own class": config("id: Pendulum-v1", "id: evil_package.Env"),
    "id of old Gym": config("id: Pendulum-v1\n", "id: GymV26Environment-v0\n"),
    "id with escapes": config("id: Pendulum-v1", 'id: "\\e[2JPendulum-v1"'),
    "name with escapes": config("name: pendulum", 'name: "\\e[2Jpendulum"'),
    "package with escapes": config("  packages: []", '  packages: ["\\e[2J"]'),
    "frame_stack": config("frame_stack: 1", f"frame_stack: {HUGE}"),
    "warmup_resets": config("warmup_resets: 0", f"warmup_resets: {HUGE}"),
    "wrong environment": config("id: Pendulum-v1", "id: PendulumEvil-v1"),
    "best with escapes": forged_best(names(ESCAPE)),
    "best with a pickle": forged_best(pickles_beside),
    "best is a FIFO": forged_best(replaced("state.json", os.mkfifo)),
    "best has no step": forged_best(manifest(lambda m: m["about"].pop("step"))),
    "name like a formula": config("name: pendulum", 'name: "$\\\\undefined{$"'),
    "records are FIFOs": fifo_records,
    "records that are deep": deep_records,
    "records without end": endless_records,
    "odd checkpoints": odd_checkpoints,
}
WRITTEN = ("checkpoints", "monitor", "tensorboard", "videos", "plots", "export", "metrics.jsonl")
WRITTEN += (".lock", "checkpoints/chunks")
ELSEWHERE = {f"{name} elsewhere": linked(name) for name in WRITTEN}
CALLBACKS = {
    "own tracker": config("tracker: null", "tracker: {name: evil_package.Tracker, host: x}"),
    "own noise": config(
        "  action_noise: null", "  action_noise: {type: evil_package.Noise, std: 0.1}"
    ),
    "own schedule": config("learning_rate: 0.0003", "learning_rate: evil_package.fall"),
    "schedule of the system": config("learning_rate: 0.0003", "learning_rate: os._exit"),
    "own callback": config("callbacks: []", "callbacks: [evil_package.Callback]"),
    "a command as callback": config(
        "callbacks: []", f"callbacks: [{{os.system: {{command: {COMMAND}}}}}]"
    ),
}
