"""Attention and deep sets: what they read, what does not matter to them, and what they refuse."""

import numpy as np
import pytest
import support.tiny_envs  # noqa: F401
import torch
from gymnasium import spaces
from support.training import make_config, tiny_config

from rlzoo_plus.agents.extractors import AttentionExtractor, DeepSetsExtractor
from rlzoo_plus.agents.factory import make_policy
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.errors import ConfigError

FLAT = spaces.Box(-np.inf, np.inf, (6,), np.float32)
TABLE = spaces.Box(-np.inf, np.inf, (5, 3), np.float32)
CROWD = spaces.Dict(
    robot=spaces.Box(-1, 1, (2,), np.float32),
    obstacles=TABLE,
    there=spaces.MultiBinary(5),
    kind=spaces.Discrete(3),
)
MASKED = {"masks": {"obstacles": "there"}}
ARM = spaces.Box(-1, 1, (2,), np.float32)
ORDER = [3, 0, 4, 1, 2]
POOLS = ("mean", "sum", "max")


def _crowd(n=4):
    generator = torch.Generator().manual_seed(0)
    there = torch.tensor([[1, 1, 0, 1, 0]] * n).float()
    return {
        "robot": torch.randn(n, 2, generator=generator),
        "obstacles": torch.randn(n, 5, 3, generator=generator),
        "there": there,
        "kind": torch.eye(3)[torch.arange(n) % 3],
    }


def _with(crowd, **changed):
    return {**crowd, **changed}


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("masks", [{}, MASKED])
def test_deep_sets_do_not_depend_on_the_order_of_elements(pool, masks):
    extractor, crowd = DeepSetsExtractor(CROWD, pool=pool, **masks), _crowd()
    other = _with(crowd, obstacles=crowd["obstacles"][:, ORDER], there=crowd["there"][:, ORDER])
    if not masks:
        other["there"] = crowd["there"]
    torch.testing.assert_close(extractor(other), extractor(crowd), atol=1e-6, rtol=1e-6)


def test_attention_does_not_depend_on_the_order_of_a_set():
    crowd = _crowd()
    other = _with(crowd, obstacles=crowd["obstacles"][:, ORDER], there=crowd["there"][:, ORDER])
    free = AttentionExtractor(CROWD, sets=["obstacles"], **MASKED).eval()
    torch.testing.assert_close(free(other), free(crowd), atol=1e-5, rtol=1e-5)
    ordered = AttentionExtractor(CROWD, **MASKED).eval()
    assert (ordered(other) - ordered(crowd)).abs().max() > 1e-4


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("kind", [AttentionExtractor, DeepSetsExtractor])
def test_what_a_mask_leaves_out_does_not_matter(kind, pool):
    extractor, crowd = kind(CROWD, pool=pool, **MASKED).eval(), _crowd()
    obstacles = crowd["obstacles"].clone()
    obstacles[:, [2, 4]] = 100.0
    torch.testing.assert_close(extractor(_with(crowd, obstacles=obstacles)), extractor(crowd))
    obstacles[:, 0] = 100.0
    assert not torch.allclose(extractor(_with(crowd, obstacles=obstacles)), extractor(crowd))


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("kind", [AttentionExtractor, DeepSetsExtractor])
def test_a_set_with_nothing_in_it_gives_finite_features(kind, pool):
    extractor, crowd = kind(CROWD, pool=pool, **MASKED).eval(), _crowd()
    features = extractor(_with(crowd, there=torch.zeros(4, 5)))
    assert features.isfinite().all()
    assert features.abs().max() < 1e3


@pytest.mark.parametrize(
    ("space", "options", "tokens"),
    [
        (FLAT, {}, [6]),
        (FLAT, {"n_frames": 3}, [3]),
        (TABLE, {}, [5]),
        (CROWD, {}, [1, 5, 1, 1]),
        (CROWD, MASKED, [1, 5, 1]),
        (spaces.Box(0, 255, (6, 36, 36), np.uint8), {"n_frames": 2}, [2]),
    ],
)
def test_attention_takes_entries_rows_frames_and_numbers_for_tokens(space, options, tokens):
    extractor = AttentionExtractor(space, **options)
    counts = {key: part.count for key, part in zip(extractor.keys, extractor.tokens, strict=True)}
    assert sorted(counts.values()) == sorted(tokens)
    batch = {k: torch.rand(3, *s.shape) for k, s in getattr(space, "spaces", {"": space}).items()}
    batch["kind"] = torch.eye(3)
    features = extractor(batch if isinstance(space, spaces.Dict) else batch[""])
    assert features.shape == (3, 64)


def test_deep_sets_keep_what_is_no_set_as_it_is():
    extractor, crowd = DeepSetsExtractor(CROWD, element_arch=(8,), **MASKED), _crowd()
    features = extractor(crowd)
    assert features.shape == (4, 8 + 2 + 3) == (4, extractor.features_dim)
    rest = {key: crowd[key] for key in extractor.others}
    torch.testing.assert_close(features[:, 8:], torch.cat(list(rest.values()), dim=1))


def test_attention_acts_and_learns_with_the_same_numbers():
    extractor, crowd = AttentionExtractor(CROWD, **MASKED), _crowd()
    with torch.no_grad():
        acting = extractor.eval()(crowd)
    assert torch.equal(extractor.train()(crowd), acting)


def test_stacked_frames_are_told_to_the_extractor():
    config = tiny_config("ppo", "tests/TinyReach-v0", "network=attention", "env.frame_stack=2")
    policy = make_policy(config, FLAT, ARM)
    assert policy.features_extractor.tokens[0].count == 2


@pytest.mark.parametrize("name", ["attention", "deep_sets"])
def test_the_shipped_files_list_every_argument_with_its_default(name):
    import inspect

    kind = {"attention": AttentionExtractor, "deep_sets": DeepSetsExtractor}[name]
    defaults = {k: p.default for k, p in inspect.signature(kind).parameters.items()}
    given = make_config("env=cartpole_camera", f"network={name}").network.features_extractor_kwargs
    for key in defaults.keys() - {"observation_space", "n_frames"}:
        value = tuple(given[key]) if isinstance(given[key], list) else given[key]
        assert value == (defaults[key] or value), key
    assert given.keys() < defaults.keys(), "arguments of a tuned file are left over"


@pytest.mark.parametrize(
    ("space", "overrides", "message"),
    [
        (FLAT, ["network=deep_sets"], "deep_sets reads sets, parts of shape (n, k)"),
        (FLAT, ["network=attention", "{}.heads=3"], "width=64 is not a multiple of heads=3"),
        (FLAT, ["network=attention", "{}.layers=0"], "layers=0: must be a whole number of at"),
        (FLAT, ["network=attention", "{}.dropout=1"], "dropout=1: must be at least 0"),
        (FLAT, ["network=attention", "{}.pool=median"], "pool=median: must be one of mean, sum"),
        (FLAT, ["network=attention", "+{}.n_frames=4"], "n_frames=4 does not divide"),
        (FLAT, ["network=attention", "+{}.widht=4"], "Did you mean 'width'"),
        (CROWD, ["network=deep_sets", "{}.masks={{obstacles: robot}}"], "robot has the shape"),
        (
            CROWD,
            ["network=deep_sets", "{}.masks={{obstacles: ther}}"],
            "no such entry ther.",
        ),
        (CROWD, ["network=attention", "{}.sets=[robot]"], "There are: obstacles"),
        (TABLE, ["network=deep_sets", "{}.element_arch=[]"], "element_arch=0: must be"),
    ],
)
def test_an_option_that_does_not_fit_is_named_with_what_would(space, overrides, message):
    key = "network.features_extractor_kwargs"
    config = make_config(
        "env=cartpole", "algo=ppo", "tuned=none", *(o.format(key) for o in overrides)
    )
    with pytest.raises(ConfigError) as error:
        make_policy(config, space, ARM)
    assert message in str(error.value)


def test_random_search_has_no_place_for_an_extractor():
    config = tiny_config("ars", "tests/TinyReach-v0", "network.features_extractor=attention")
    with pytest.raises(ConfigError, match="argument of ars's policy"):
        make_policy(config, FLAT, ARM)


def test_masks_are_not_normalised():
    masks = "network.features_extractor_kwargs.masks={obstacles: there}"
    config = tiny_config("ppo", "tests/TinyCrowd-v0", "network=deep_sets", masks, "normalize=true")
    venv = make_train_env(config, 0)
    assert set(venv.norm_obs_keys) == {"robot", "obstacles"}
    assert set(np.unique(venv.reset()["there"])) <= {0.0, 1.0}


def test_an_algorithm_without_a_policy_for_dictionaries_says_so():
    config = tiny_config("crossq", "tests/TinyCrowd-v0", "network=deep_sets")
    with pytest.raises(ConfigError, match="crossq has no multi_input policy"):
        make_policy(config, CROWD, ARM)
