"""Studies as a tuner leaves them, without training."""

import yaml

from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.config.schema import HpoConfig
from rlzoo_plus.config.search_path import conf_dir
from rlzoo_plus.tuning.stored_study import FORMAT, NAME
from rlzoo_plus.tuning.study import Study

SPACE = {"algo.hyperparams.gamma": "interval(0.9, 0.999)"}


def settings(**changes):
    """Return the settings of a study: those that are shipped, with some changes."""
    data = yaml.safe_load((conf_dir() / "hpo" / "_study.yaml").read_text(encoding="utf-8"))
    data.pop("defaults", None)
    return HpoConfig.model_validate({**data, "space": SPACE, **changes})


def make_study(folder, hpo=None, base=("env=cartpole_bullet",), **content):
    """Make a study with its study.json and return it; it has no trials yet."""
    hpo = hpo or settings(sampler="random")
    folder.mkdir(parents=True)
    data = {
        "format": FORMAT,
        "name": folder.name,
        "storage": hpo.storage,
        "hpo": hpo.model_dump(mode="json"),
        "base": list(base),
        "config_options": [],
        **content,
    }
    write_json(folder / NAME, data)
    return Study.open(folder.name, folder, hpo, {"base": list(base)})


def add_trial(study, values=None, *, pruned="", failed="", reports=()):
    """Add a trial that draws gamma; without values or a reason it goes on running."""
    asked = study.ask("me")
    gamma = asked.trial.suggest_float("algo.hyperparams.gamma", 0.9, 0.999)
    study.set_overrides(asked.number, [f"algo.hyperparams.gamma={gamma!r}"])
    for rung, value in reports:
        asked.trial.report(value, rung)
    if values is not None:
        metrics = dict(zip(study.hpo.objectives, values, strict=True))
        study.done(asked.number, values, metrics)
    elif pruned:
        study.prune(asked.number, pruned)
    elif failed:
        study.fail(asked.number, failed)
    return asked.number
