"""Owns the malicious bundles: each an edit of a good one, by what it tries."""

import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
from support.forged import edit_header, edit_policy, edit_state, edit_weights, tensor_file

COMMAND = "touch PWNED"


class Payload:
    """Runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, (COMMAND,)


PICKLE = pickle.dumps(Payload())


def write(name, data):
    return lambda folder: (folder / name).write_bytes(data)


def torch_zip(folder: Path) -> None:
    """Lay a pickle where torch.load would look for it."""
    with zipfile.ZipFile(folder / "tensors.safetensors", "w") as archive:
        archive.writestr("archive/data.pkl", PICKLE)


def config(**changes):
    """Change values of the configuration; a double underscore leads into a section."""

    def edit(policy):
        for key, value in changes.items():
            *sections, last = key.split("__")
            target = policy["config"]
            for section in sections:
                target = target[section]
            target[last] = value

    return lambda folder: edit_policy(folder, edit)


def space(which, value):
    return lambda folder: edit_policy(folder, lambda p: p["spaces"].update({which: value}))


def bare(which, value):
    """Change a space of a policy without normalisation, whose shape would tell at once."""

    def edit(folder):
        space(which, value)(folder)
        edit_state(folder, lambda t: t[: t.index('["normalization"')] + '["normalization",null]]}')

    return edit


def policy_text(edit):
    def change(folder):
        path = folder / "policy.json"
        path.write_text(edit(path.read_text()))

    return change


def state(old, new):
    def edit(text):
        assert old in text, old
        return text.replace(old, new, 1)

    return lambda folder: edit_state(folder, edit)


def header(edit):
    return lambda folder: edit_header(folder, edit)


def weights(edit):
    return lambda folder: edit_weights(folder, edit)


def box(shape, **more):
    return {"type": "box", "low": -1, "high": 1, "shape": shape, "dtype": "float32", **more}


def nested(depth):
    return {"type": "dict", "spaces": [["a", nested(depth - 1) if depth else box([3])]]}


HUGE = 10**9
PICTURES = [[str(i), box([1, 64, 64], dtype="uint8", low=0, high=255)] for i in range(900)]
DEEP = "[" * 100_000
ESCAPE = "\x1b]0;pwned\x07\x1b[2J\n\r\x00"
TARGET = {"_target_": "os.system", "_args_": [COMMAND], "command": COMMAND}
BOMB = '{"a":' * 5000 + "1" + "}" * 5000

# A file's content: with hashes that are wrong, and with hashes that are right.
CONTENTS = {
    **{
        f"pickle as {name}": write(name, PICKLE)
        for name in ("policy.json", "state.json", "tensors.safetensors")
    },
    "torch archive as tensors": torch_zip,
    "no JSON": write("policy.json", b"\xff\xfe{"),
    "empty policy": write("policy.json", b""),
    "policy is a list": write("policy.json", b"[]"),
    "policy is null": write("policy.json", b"null"),
    "deep policy": write("policy.json", DEEP.encode()),
    "deep closed policy": write("policy.json", BOMB.encode()),
    "deep state": write("state.json", DEEP.encode()),
    "deep closed state": write("state.json", BOMB.encode()),
    "key twice": policy_text(lambda t: t.replace("{", '{"spaces": {},', 1)),
    "key twice below": policy_text(lambda t: t.replace('"seed": 0', '"seed": 0, "seed": 1')),
    "NaN": policy_text(lambda t: t.replace('"max_return": 0.0', '"max_return": NaN')),
    "Infinity": policy_text(lambda t: t.replace('"max_return": 0.0', '"max_return": -Infinity')),
    "1e999": policy_text(lambda t: t.replace('"max_return": 0.0', '"max_return": 1e999')),
    "number of a million digits": policy_text(
        lambda t: t.replace('"seed": 0', '"seed": ' + "9" * 10**6)
    ),
    "_target_ for config": lambda f: edit_policy(f, lambda p: {**p, "config": TARGET}),
    "_target_ in config": config(_target_="os.system"),
    "_target_ as network": config(network=TARGET),
    "_target_ as policy_kwargs": config(network__policy_kwargs=TARGET),
    "_target_ as space": space("observation", TARGET),
    "_target_ as weights": state('"weights",', f'"weights",{json.dumps(TARGET)}],["more",'),
    "dotted features extractor": config(network__features_extractor="os.system"),
    "dotted activation": config(network__activation="os:system"),
    "dotted optimizer": config(network__optimizer="subprocess.Popen"),
    "dotted algorithm": config(algo__name="os.system"),
    "algorithm of a package": config(algo__name="evil", algo__packages=["evil_package"]),
    "algorithm with escapes": config(algo__name=ESCAPE),
    "key with escapes": lambda f: edit_policy(f, lambda p: p["config"].update({ESCAPE: 1})),
    **{
        f"policy_kwargs.{key}": config(network__policy_kwargs={key: value})
        for key, value in {
            "features_extractor_class": "os.system",
            "activation_fn": "os.system",
            "optimizer_class": "os.system",
            "net_arch": [HUGE],
            "features_extractor_kwargs": {"features_dim": HUGE},
            "optimizer_kwargs": {"params": COMMAND},
            "__class__": "os.system",
            "use_sde": "x",
        }.items()
    },
    "features_extractor_kwargs": config(network__features_extractor_kwargs={"os": COMMAND}),
    "optimizer_kwargs": config(network__optimizer_kwargs={"lr": COMMAND}),
    "net_arch of 10^9": config(network__net_arch=[HUGE]),
    "net_arch of 10^30": config(network__net_arch=[10**30]),
    "net_arch of 300 layers of 10^4": config(network__net_arch=[10_000] * 300),
    "net_arch of 10^5 layers": config(network__net_arch=[1] * 10**5),
    "net_arch of parts": config(network__net_arch={"pi": [HUGE], "vf": [HUGE]}),
    "net_arch as text": config(network__net_arch="64"),
    "another algorithm": config(algo__name="sac", network__n_critics=HUGE),
    "lstm of 10^9 layers": config(algo__name="recurrent_ppo", network__lstm__n_layers=HUGE),
    "lstm of 10^9 units": config(algo__name="recurrent_ppo", network__lstm__hidden_size=HUGE),
    "n_envs is negative": config(n_envs=-1),
    "seed is a mapping": config(seed={"a": 1}),
    "use_sde is a mapping": config(algo__hyperparams=[TARGET]),
    "huge box": space("observation", box([HUGE, HUGE])),
    "largest box": bare("observation", box([10**7], dtype="float64")),
    "largest picture": bare("observation", box([1, 3162, 3162], dtype="uint8", low=0, high=255)),
    "many pictures": bare("observation", {"type": "dict", "spaces": PICTURES}),
    "huge discrete observation": bare("observation", {"type": "discrete", "n": HUGE, "start": 0}),
    "huge choices observed": bare(
        "observation", {"type": "multi_discrete", "nvec": [HUGE] * 9, "start": [0] * 9}
    ),
    "other observation, bare": bare("observation", box([4])),
    "huge box of zeros": space("observation", box([0, HUGE, HUGE, HUGE])),
    "box of 100 dimensions": space("observation", box([1] * 100)),
    "box of negative shape": space("observation", box([-3])),
    "box of objects": space("observation", box([3], dtype="O")),
    "box of structures": space("observation", box([3], dtype="(1000000000,)f8")),
    "box of true": space("observation", box([True])),
    "box of NaN": space("observation", box([3], low="nan")),
    "box of text": space("observation", box([3], low=["a", "b", "c"])),
    "box upside down": space("observation", box([3], low=5)),
    "box with few bounds": space("observation", box([3], low=[1, 2])),
    "huge discrete": space("action", {"type": "discrete", "n": HUGE, "start": 0}),
    "discrete beyond int64": space("action", {"type": "discrete", "n": 2**80, "start": 0}),
    "discrete of none": space("action", {"type": "discrete", "n": 0, "start": 0}),
    "huge multi-discrete": space(
        "action", {"type": "multi_discrete", "nvec": [HUGE], "start": [0]}
    ),
    "ragged multi-discrete": space(
        "action", {"type": "multi_discrete", "nvec": [[1], [1, 2]], "start": 0}
    ),
    "huge multi-binary": space("action", {"type": "multi_binary", "n": [HUGE, HUGE]}),
    "10^4 parts": space(
        "observation", {"type": "dict", "spaces": [[str(i), box([1])] for i in range(10**4)]}
    ),
    "a part twice": space(
        "observation", {"type": "dict", "spaces": [["a", box([1])], ["a", box([1])]]}
    ),
    "deep space": space("observation", nested(60)),
    "space is text": space("observation", "box"),
    "space is unknown": space("observation", {"type": ESCAPE}),
    "no space": lambda f: edit_policy(f, lambda p: p["spaces"].clear()),
    "spaces are a list": lambda f: edit_policy(f, lambda p: p.update(spaces=[])),
    "another observation": space("observation", box([4])),
    "another action": space("action", box([2])),
    "scalar of objects": state('{"~float":', '{"~scalar":"O","bytes":"00"},{"~float":'),
    "scalar as clip": state('["clip",', '["clip",{"~scalar":"|O","bytes":"0000"}],["c",'),
    "scalar of 10^9": state(
        '["clip",', '["clip",{"~scalar":"(1000000000,)f8","bytes":"00"}],["c",'
    ),
    "tuple of number": state('["clip",', '["clip",{"~tuple":1}],["c",'),
    "float of nothing": state('["clip",', '["clip",{"~float":null}],["c",'),
    "clip is NaN": state('["clip",', '["clip",{"~float":"nan"}],["c",'),
    "clip is negative": state('["clip",{"~float":"', '["clip",{"~float":"-'),
    "unknown tag": state('["clip",', '["clip",{"~object":"os.system"}],["c",'),
    "unhashable key": state('["clip",', '[["clip"],'),
    "array thousand times": state(
        '"~array":"0"}]', '"~array":"0"}]' + ',["x",{"~array":"1"}]' * 1000
    ),
    "array from nowhere": state('"~array":"0"', '"~array":"../../etc/passwd"'),
    "array is a list": state('"~array":"0"', '"~array":["0"]'),
    "a key of weights twice": state('["weights",', '["weights",{"~dict":[]}],["weights",'),
    "weights are a list": state('["weights",', '["weights",[]],["more",'),
    "no weights": state('"weights"', '"burdens"'),
    "weight is text": state('{"~array":"0"}', f'"{COMMAND}"'),
    "weight of another name": state('"log_std"', '"log_\\u001b[2Jstd"'),
    "weight too many": state('["log_std",', '["extra",{"~float":"0x0p+0"}],["log_std",'),
    "wrong shape": weights(lambda a: a.update({"1": np.zeros((9, 3), np.float32)})),
    "shape that broadcasts": weights(lambda a: a.update({"2": np.zeros(1, np.float32)})),
    "wrong type": weights(lambda a: a.update({"1": a["1"].astype(np.float64)})),
    "whole numbers": weights(lambda a: a.update({"1": a["1"].astype(np.int64)})),
    "mean that broadcasts": weights(lambda a: a.update({"9": np.zeros((1000, 1))})),
    "mean of whole numbers": weights(lambda a: a.update({"9": np.zeros(3, np.int64)})),
    "header of 2^60 bytes": write("tensors.safetensors", tensor_file({}, b"", 2**60)),
    "header of 90 MB": write("tensors.safetensors", tensor_file({}, b"", 90_000_000)),
    "header of 5 MB": write("tensors.safetensors", tensor_file(b" " * 5_000_000 + b"{}", b"")),
    "header is a list": write("tensors.safetensors", tensor_file([], b"")),
    "header is deep": write("tensors.safetensors", tensor_file(DEEP.encode(), b"")),
    "header with a key twice": write("tensors.safetensors", tensor_file(b'{"1":1,"1":2}', b"")),
    "file of 3 bytes": write("tensors.safetensors", b"abc"),
    "huge shape": header(lambda h: h["1"].update(shape=[HUGE, HUGE])),
    "shape that overflows": header(lambda h: h["1"].update(shape=[2**63, 2, 2**63])),
    "negative shape": header(lambda h: h["1"].update(shape=[-8, -3])),
    "shape of zeros": header(lambda h: h["1"].update(shape=[0, HUGE, HUGE])),
    "shape of 10^4 dimensions": header(lambda h: h["1"].update(shape=[1] * 10**4 + [8, 3])),
    "overlapping offsets": header(lambda h: h["1"].update(data_offsets=h["3"]["data_offsets"])),
    "offsets beyond the file": header(lambda h: h["1"].update(data_offsets=[HUGE, HUGE + 96])),
    "offsets back to front": header(lambda h: h["1"]["data_offsets"].reverse()),
    "negative offsets": header(lambda h: h["1"].update(data_offsets=[-96, 0])),
    "type of objects": header(lambda h: h["1"].update(dtype="O")),
    "type without NumPy": header(lambda h: h["1"].update(dtype="BF16")),
    "tensor left out": header(lambda h: h.pop("1") and None),
    "text for tensor": header(lambda h: h.update({"1": COMMAND})),
}
