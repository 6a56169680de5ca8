"""What is stored of an observation, and what the policy makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors.torch import save_file

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError, ObservationError
from embodied_icrl.policy import Policy, PolicyConfig
from embodied_icrl.policy.images import ImageEncoder, ImageEncoderConfig
from tests.policy import user_encoders
from tests.policy.test_parity import assert_steps_equal_forward
from tests.policy.toy import make_batch, make_policy

EVERYTHING = spaces.Dict(
    {
        "type": spaces.Discrete(3, start=2),
        "view": spaces.MultiDiscrete([[3, 3], [4, 300]], start=[[1, 0], [0, -1]]),
        "bits": spaces.MultiBinary(4),
        "pose.x": spaces.Box(-1, 1, (2, 2), np.float64),
        "counts": spaces.Box(0, 99, (2,), np.int64),
        "ram": spaces.Box(0, 255, (3,), np.uint8),
        "camera": spaces.Box(0, 255, (20, 12, 3), np.uint8),
        "depth": spaces.Box(0.0, 10.0, (20, 12, 1), np.float32),
        "semantic": spaces.Box(0, 6, (20, 12), np.int8),
    }
)


def sample(space: spaces.Dict, envs: int, seed: int = 0) -> dict[str, np.ndarray]:
    space.seed(seed)
    rows = [space.sample() for _ in range(envs)]
    return {key: np.stack([row[key] for row in rows]) for key in space.spaces}


def test_every_kind_of_space_at_once() -> None:
    policy = make_policy(observations=EVERYTHING)
    obs = sample(EVERYTHING, 5)
    policy.check(obs, 0)
    stored = policy.prepare(obs)
    for key, (shape, dtype) in policy.stored_spec().items():
        assert stored[key].shape == (5, *shape) and stored[key].dtype == dtype, key
    assert torch.equal(stored["type"][:, 0].long(), torch.tensor(obs["type"] - 2))
    assert stored["type"].dtype == torch.uint8 and stored["view"].dtype == torch.int32
    start = np.array([[1, 0], [0, -1]])
    assert np.array_equal(stored["view"].numpy(), (obs["view"] - start).reshape(5, 4))
    assert stored["camera"].dtype == torch.uint8 and stored["camera"].shape == (5, 20, 12, 3)
    assert_steps_equal_forward(policy)


def backwards(array: np.ndarray) -> np.ndarray:
    """The same values as a view that runs backwards along its last axis."""
    return array[..., ::-1].copy()[..., ::-1]


def test_arrays_that_run_backwards() -> None:
    """A BGR picture turned to RGB is one: `bgr[..., ::-1]`."""
    policy = make_policy(observations=EVERYTHING)
    obs = sample(EVERYTHING, 2)
    turned = {key: backwards(value) for key, value in obs.items()}
    assert turned["camera"].strides[-1] == -1
    policy.check(turned, 0)
    expected = policy.prepare(obs)
    for key, value in policy.prepare(turned).items():
        assert torch.equal(value, expected[key]), key


@pytest.mark.parametrize("key", EVERYTHING.spaces)
def test_every_key_reaches_the_policy(key: str) -> None:
    policy = make_policy(observations=EVERYTHING)
    obs, other = sample(EVERYTHING, 4, seed=0), sample(EVERYTHING, 4, seed=1)
    batch = policy.new_batch(4, 1)
    batch.episode_start.fill_(True)
    values = []
    for source in (obs, {**obs, key: other[key]}):
        for name, stored in policy.prepare(source).items():
            batch.stored[name][:, 0] = stored
        values.append(policy.evaluate_actions(batch, torch.zeros(4, 1, dtype=torch.int64))[2])
    values[0].sum().backward()
    changed = (other[key] != obs[key]).reshape(4, -1).any(axis=1)
    assert changed.any()
    assert np.array_equal(((values[0] - values[1]).abs() > 1e-9).numpy()[:, 0], changed)
    assert all(p.grad is not None for name, p in policy.named_parameters() if "actor" not in name)


@pytest.mark.parametrize("name", ["episode_start", "terminal", "step_in_episode"])
def test_flags_and_step_reach_the_policy(name: str) -> None:
    policy = make_policy()
    batch = make_batch(policy, 2, 1)
    changed = batch.map(torch.clone)
    getattr(changed, name)[0] = ~getattr(batch, name)[0] if name != "step_in_episode" else 3
    values = [
        policy.evaluate_actions(each, torch.zeros(2, 1, dtype=torch.int64))[2]
        for each in (batch, changed)
    ]
    assert ((values[0] - values[1]).abs() > 1e-6)[:, 0].tolist() == [True, False]


@pytest.mark.parametrize(
    ("actions", "action"),
    [
        (spaces.Discrete(5), 3),
        (spaces.MultiDiscrete([3, 4]), torch.tensor([1, 3])),
        (spaces.Box(-1, 1, (2,)), torch.tensor([0.5, 0.0])),
    ],
    ids=["discrete", "multi", "box"],
)
def test_previous_action_and_reward_reach_the_policy(
    actions: spaces.Space[Any], action: Any
) -> None:
    policy = make_policy(actions=actions)
    batch = policy.new_batch(2, 1)
    value = policy.evaluate_actions(batch, policy.empty_actions(2, 1).abs())[2]
    batch.prev_action[0, 0] = action
    batch.prev_reward[1, 0] = 1.0
    after = policy.evaluate_actions(batch, policy.empty_actions(2, 1).abs())[2]
    assert ((after - value).abs() > 1e-6).all()


def test_reward_is_no_input_where_it_must_not_be() -> None:
    policy = make_policy(reward_input="none")
    batch = make_batch(policy, 2, 5)
    actions = torch.zeros(2, 5, dtype=torch.int64)
    value = policy.evaluate_actions(batch, actions)[2]
    batch.prev_reward += 1.0
    assert torch.equal(policy.evaluate_actions(batch, actions)[2], value)


IMAGES = [(8, 8, 3), (3, 64, 48), (96, 96, 4), (5, 5, 1), (1, 30, 7), (256, 256, 3)]


@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_images_of_any_size_and_layout(shape: tuple[int, ...]) -> None:
    encoder = ImageEncoderConfig().build("camera", spaces.Box(0, 255, shape, np.uint8))
    images = np.random.default_rng(0).integers(0, 256, (2, *shape), dtype=np.uint8)
    features = encoder(encoder.prepare(images, torch.device("cpu")))
    assert features.shape == (2, encoder.feature_size)
    assert encoder.network[0].in_channels == min(shape[0], shape[-1])
    assert encoder.feature_size <= 64 * 64
    assert (features[0] - features[1]).abs().max() > 1e-3
    assert features.abs().max() < 20


def test_the_layout_of_an_image_may_be_said() -> None:
    space = spaces.Box(0, 255, (8, 8, 8), np.uint8)
    last = ImageEncoderConfig(layout="hwc").build("camera", space)
    first = ImageEncoderConfig(layout="chw").build("camera", space)
    first.load_state_dict(last.state_dict())
    images = torch.randint(0, 256, (2, 8, 8, 8), dtype=torch.uint8)
    torch.testing.assert_close(first(images.movedim(-1, 1)), last(images))
    with pytest.raises(ConfigError, match="layout"):
        ImageEncoderConfig(layout="wch")
    with pytest.raises(ConfigError, match="'camera' is no picture"):
        ImageEncoderConfig().build("camera", spaces.Box(0, np.inf, (8, 8, 3)))


def test_depth_is_scaled_by_its_range_and_kept_in_bytes() -> None:
    space = spaces.Box(0.0, 10.0, (9, 12, 1), np.float32)
    encoder = ImageEncoderConfig().build("depth", space)
    depth = np.random.default_rng(0).uniform(0, 10, (3, 9, 12, 1)).astype(np.float32)
    depth[0, 0, :3, 0] = 0.0, 10.0, 11.0  # what is farther than the space says is cut to it
    stored = encoder.prepare(depth, torch.device("cpu"))
    assert stored.dtype == encoder.stored_dtype == torch.uint8
    assert stored.shape[1:] == encoder.stored_shape
    assert stored[0, 0, :3, 0].tolist() == [0, 255, 255]
    read = encoder._channels(stored)
    assert read.shape == (3, 1, 9, 12) and read.min() >= 0 and read.max() == 1
    seen = torch.tensor(depth[..., 0].clip(0, 10) / 10)
    assert (read[:, 0] - seen).abs().max() <= 0.5 / 255 + 1e-6
    whole = encoder.prepare(depth.astype(np.int64), torch.device("cpu"))
    assert whole.max() == 255, "metres are scaled whatever number type they come in"


def test_every_channel_of_a_picture_of_floats_has_its_own_range() -> None:
    high = np.broadcast_to(np.array([1.0, 10.0, -1.0], np.float32), (8, 8, 3))
    space = spaces.Box(np.full((8, 8, 3), -1.0, np.float32), high)
    encoder = ImageEncoderConfig().build("both", space)
    middle = np.broadcast_to(np.array([0.0, 4.5, -1.0], np.float32), (1, 8, 8, 3))
    stored = encoder.prepare(middle, torch.device("cpu"))
    assert stored[0, 3, 3].tolist() == [128, 128, 0]


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8], ids=["int8", "int64", "uint8"])
def test_classes_are_told_apart_by_channels(dtype: type[np.integer[Any]]) -> None:
    space = spaces.Box(0, 26, (9, 12), dtype)
    encoder = ImageEncoderConfig().build("semantic", space)
    classes = np.random.default_rng(0).integers(0, 27, (2, 9, 12)).astype(dtype)
    stored = encoder.prepare(classes, torch.device("cpu"))
    assert stored.dtype == torch.uint8 and np.array_equal(stored, classes)
    read = encoder._channels(stored)
    assert read.shape == (2, 27, 9, 12) and read.unique().tolist() == [0, 1]
    assert torch.equal(read.argmax(dim=1), stored.long()) and bool((read.sum(dim=1) == 1).all())
    assert encoder(stored).shape == (2, encoder.feature_size)
    assert encoder.chunk < ImageEncoderConfig().chunk / 6, "27 channels instead of up to 4"


def test_a_class_that_is_none_is_named() -> None:
    policy = make_policy(observations=EVERYTHING)
    obs = sample(EVERYTHING, 3)
    for wrong in (7, -1):
        obs["semantic"][1, 4, 4] = wrong
        with pytest.raises(ObservationError, match="'semantic' of environment 1 at step 5 is out"):
            policy.check(obs, 5)
    obs["semantic"][1, 4, 4], obs["depth"][2, 0, 0] = 6, np.nan
    with pytest.raises(ObservationError, match="'depth' of environment 2 at step 5 is not finite"):
        policy.check(obs, 5)


def test_grey_pictures_need_no_axis_for_their_channel() -> None:
    flat = ImageEncoderConfig().build("grey", spaces.Box(0, 255, (30, 20), np.uint8))
    deep = ImageEncoderConfig().build("grey", spaces.Box(0, 255, (30, 20, 1), np.uint8))
    deep.load_state_dict(flat.state_dict())
    images = torch.randint(0, 256, (2, 30, 20), dtype=torch.uint8)
    assert torch.equal(flat(images), deep(images[..., None]))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, np.inf, (32, 32, 1)),
        spaces.Box(0.0, 1.0, (32, 32)),
        spaces.Box(0, 1000, (32, 32), np.int32),
        spaces.Box(-1, 5, (32, 32), np.int8),
        spaces.Box(0.0, 1.0, (2, 9, 9, 9)),
    ],
    ids=["no bounds", "two axes", "many classes", "negative", "four axes"],
)
def test_large_arrays_that_are_no_pictures_need_an_encoder(space: spaces.Box) -> None:
    both = spaces.Dict({"grid": space, "x": spaces.Box(-1, 1, (600, 1))})
    with pytest.raises(ConfigError, match=r"'grid' is no picture .*policy\.encoders\.grid"):
        make_policy(observations=both)
    assert make_policy(observations=both, ignore=("grid",)).stored_spec().keys() == {"x"}


def test_images_in_chunks_give_the_same_features_and_gradients() -> None:
    space = spaces.Box(0, 255, (9, 9, 3), np.uint8)
    encoder = ImageEncoder("camera", space, ImageEncoderConfig(channels=2)).double()
    images = torch.randint(0, 256, (7, 9, 9, 3), dtype=torch.uint8)
    results = []
    for chunk in (100, 3):
        encoder.chunk = chunk
        encoder.zero_grad()
        features = encoder(images)
        features.square().sum().backward()
        with torch.no_grad():
            torch.testing.assert_close(encoder(images), features)
        results.append([features, *(p.grad for p in encoder.parameters())])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want)


CAMERA = spaces.Dict({"camera": spaces.Box(0, 255, (4, 4, 3), np.uint8)})
MODULE = "tests.policy.user_encoders"


def frozen_config(path: Path | str, **changes: Any) -> PolicyConfig:
    node = {
        "_target_": "embodied_icrl.policy.frozen.FrozenEncoderConfig",
        "module": f"{MODULE}.Backbone",
        "weights": str(path),
        **changes,
    }
    sizes = {"width": 16, "heads": 2, "mlp_width": 16}
    return build({**sizes, "encoders": {"camera": node}}, PolicyConfig)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(3)
    path = tmp_path / "backbone.safetensors"
    save_file(user_encoders.Backbone().state_dict(), path)
    return path


@pytest.mark.parametrize("store_as", ["float16", "float32"])
def test_frozen_features_are_computed_once_and_stored(weights: Path, store_as: str) -> None:
    config = frozen_config(weights, store_as=store_as, chunk=2)
    policy = Policy(config, CAMERA, spaces.Discrete(3), 5).eval()
    dtype = getattr(torch, store_as)
    assert policy.stored_spec() == {"camera": ((6,), dtype)}
    obs = sample(CAMERA, 3)
    user_encoders.Backbone.calls = 0
    stored = policy.prepare({"camera": backwards(obs["camera"])})
    assert user_encoders.Backbone.calls == 2, "three images, two at a time"
    torch.manual_seed(3)
    expected = user_encoders.Backbone()(torch.tensor(obs["camera"])).flatten(1)
    torch.testing.assert_close(stored["camera"], expected.to(dtype))

    batch = policy.new_batch(3, 1)
    batch.stored["camera"][:, 0] = stored["camera"]
    user_encoders.Backbone.calls = 0
    policy.act(batch, policy.new_cache(3, 1))
    policy.evaluate_actions(batch, torch.zeros(3, 1, dtype=torch.int64))[2].sum().backward()
    assert user_encoders.Backbone.calls == 0
    assert not any("network" in name for name in policy.state_dict())
    assert not any("Backbone" in type(module).__name__ for module in policy.modules())


def test_frozen_encoders_come_back_with_the_policy(weights: Path) -> None:
    policy = Policy(frozen_config(weights), CAMERA, spaces.Discrete(3), 5)
    again = Policy.from_description(policy.describe())
    again.load_state_dict(policy.state_dict())
    obs = sample(CAMERA, 3)
    assert torch.equal(again.prepare(obs)["camera"], policy.prepare(obs)["camera"])


def test_frozen_encoders_have_the_weights_of_the_training(weights: Path, tmp_path: Path) -> None:
    policy = Policy(frozen_config(weights), CAMERA, spaces.Discrete(3), 5)
    state = policy.state_dict()
    moved = Policy(frozen_config(weights.rename(tmp_path / "moved.safetensors")), CAMERA,
                   spaces.Discrete(3), 5)  # fmt: skip
    moved.load_state_dict(state)
    torch.manual_seed(4)
    save_file(user_encoders.Backbone().state_dict(), weights)
    other = Policy(frozen_config(weights), CAMERA, spaces.Discrete(3), 5)
    words = r"encoders\.camera\.weights: .* another file \(SHA-256 [0-9a-f]{12}\.\.\.\)"
    with pytest.raises(ConfigError, match=words):
        other.load_state_dict(state)
    # The first checkpoints did not say which file they had.
    (name,) = (key for key in state if "digest" in key)
    other.load_state_dict({key: value for key, value in state.items() if key != name})
    assert not torch.equal(other.state_dict()[name], state[name])


def test_frozen_encoders_that_can_not_be_had(weights: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pt"
    torch.save({"bias": torch.zeros(2)}, other)
    cases = [
        (
            frozen_config(tmp_path / "no.safetensors"),
            r"encoders.camera.weights: no file .*no\.safe",
        ),
        (frozen_config(other), "encoders.camera.weights: .* don't fit"),
        (
            frozen_config(weights, module=f"{MODULE}.Missing"),
            "encoders.camera.module: can't import",
        ),
        (frozen_config(weights, module="no_such.thing"), "encoders.camera.module: can't import"),
        (frozen_config(weights, module="thing"), "dotted name"),
        (frozen_config(weights, module=f"{MODULE}.not_a_module"), "no torch module"),
        (frozen_config(weights, module=f"{MODULE}.__name__"), "not a function"),
    ]
    for config, message in cases:
        with pytest.raises(ConfigError, match=message) as caught:
            Policy(config, CAMERA, spaces.Discrete(3), 5)
        assert "\n" not in str(caught.value)


def test_an_encoder_of_one_s_own() -> None:
    space = spaces.Dict({"x": spaces.Box(-1, 1, (3,)), "y": spaces.Box(-1, 1, (2,))})
    node = {"encoders": {"x": {"_target_": f"{MODULE}.SquaresConfig", "gain": 2.0}}}
    policy = make_policy(observations=space, encoders=build(node, PolicyConfig).encoders)
    assert_steps_equal_forward(policy)
    assert any("gain" in name for name, _ in policy.named_parameters())


def test_bad_spaces_and_encoders() -> None:
    act = spaces.Discrete(2)
    with pytest.raises(ConfigError, match="Dict observation space"):
        Policy(PolicyConfig(), spaces.Box(-1, 1, (3,)), act, 5)
    with pytest.raises(ConfigError, match="'a' is nested"):
        Policy(PolicyConfig(), spaces.Dict({"a": spaces.Dict({"b": act})}), act, 5)
    with pytest.raises(ConfigError, match="'words': no encoder for a Text space"):
        Policy(PolicyConfig(), spaces.Dict({"words": spaces.Text(5)}), act, 5)
    config = PolicyConfig(encoders={"camra": ImageEncoderConfig()})
    with pytest.raises(ConfigError, match=r"encoders: no observation 'camra'; there are camera"):
        Policy(config, CAMERA, act, 5)
    with pytest.raises(ConfigError, match="_target_"):
        build({"encoders": {"camera": {"channels": 8}}}, PolicyConfig)


def test_what_is_ignored_is_not_read() -> None:
    policy = make_policy(observations=EVERYTHING, ignore=("camera", "type"))
    obs = sample(EVERYTHING, 4)
    assert policy.prepare(obs).keys() == policy.stored_spec().keys()
    assert policy.stored_spec().keys() == EVERYTHING.spaces.keys() - {"camera", "type"}
    policy.check({key: value for key, value in obs.items() if key != "camera"}, 0)
    assert_steps_equal_forward(policy)


def test_what_can_not_be_ignored() -> None:
    act = spaces.Discrete(2)
    both = PolicyConfig(encoders={"camera": ImageEncoderConfig()}, ignore=("camera",))
    cases = (
        (PolicyConfig(ignore=("camra",)), "ignore: no observation 'camra'; there are camera"),
        (both, "'camera' has an encoder and is ignored; drop one of them"),
        (PolicyConfig(ignore=tuple(CAMERA.spaces)), "leaves no observation to read"),
    )
    for config, message in cases:
        with pytest.raises(ConfigError, match=message):
            Policy(config, CAMERA, act, 5)
