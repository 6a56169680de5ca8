"""Films of policies: what is in them, and what happens when they can't be made."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save_file

from embodied_icrl.evaluation.canvas import GREEN
from embodied_icrl.manipulation.planar_reach import PlanarReach
from embodied_icrl.manipulation.task_env import TaskEnv
from embodied_icrl.reward_search.algorithms import actor_shape
from embodied_icrl.reward_search.film import Take, film_candidates
from embodied_icrl.reward_search.film_child import Player, _frame

NODE = {"_target_": "embodied_icrl.manipulation.planar_reach.PlanarReach", "horizon": 8}


def weights(path, seed: int, scale: float = 0.5):
    env = TaskEnv(PlanarReach())
    assert env.observation_space.shape and env.action_space.shape
    widths = [env.observation_space.shape[0], 8, env.action_space.shape[0]]
    env.close()
    rng = np.random.default_rng(seed)
    tensors = {}
    shape = actor_shape("ppo", {"policy_kwargs": {"net_arch": [8]}})
    for name, before, after in zip(shape.layer_names(), widths, widths[1:]):
        tensors[f"{name}.weight"] = rng.normal(0, scale, (after, before)).astype(np.float32)
        tensors[f"{name}.bias"] = np.zeros(after, np.float32)
    save_file(tensors, path)
    return path


def take(path, name: str) -> Take:
    return Take(name, f"reward {name}", path, "ppo", {"policy_kwargs": {"net_arch": [8]}})


def frames(path) -> list[np.ndarray]:
    import av

    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def test_two_policies_side_by_side(tmp_path):
    takes = [take(weights(tmp_path / f"{k}.safetensors", k), f"r{k}") for k in range(2)]
    footage = film_candidates(takes, NODE, tmp_path / "videos" / "film.mp4", episodes=2)
    assert footage.reason is None and footage.video is not None
    assert footage.video.caption == "reward r0 and reward r1"
    assert [file.name for file in footage.video.path.parent.iterdir()] == ["film.mp4"]
    for name in ("r0", "r1"):
        assert len(footage.fitness[name]) == 2
        assert footage.states[name].shape == (16, 10)
    shown = frames(footage.video.path)
    assert len(shown) >= 2 * 9 + 10
    height, width, _ = shown[0].shape
    assert width > 2 * 400
    halves = [shown[5][:, : width // 2].astype(int), shown[5][:, width // 2 :].astype(int)]
    # The two arms move in different ways, from the same state.
    assert abs(halves[0][120:400] - halves[1][120:400]).max() > 60
    assert not np.array_equal(footage.states["r0"][7], footage.states["r1"][7])


def test_the_same_policy_gives_the_same_episodes(tmp_path):
    path = weights(tmp_path / "w.safetensors", 0)
    first, second = (
        film_candidates([take(path, "r")], NODE, tmp_path / f"{k}.mp4", episodes=1) for k in "ab"
    )
    assert first.fitness == second.fitness
    assert np.array_equal(first.states["r"], second.states["r"])


@pytest.mark.parametrize("damage", ["missing", "garbage", "another network"])
def test_a_film_that_cannot_be_made_leaves_nothing_and_says_why(damage, tmp_path):
    path = tmp_path / "w.safetensors"
    if damage == "garbage":
        path.write_bytes(b"not weights")
    elif damage == "another network":
        save_file({"x": np.zeros(3, np.float32)}, path)
    footage = film_candidates([take(path, "r")], NODE, tmp_path / "videos" / "film.mp4")
    assert footage.video is None and "weights" in (footage.reason or "")
    assert not list((tmp_path / "videos").iterdir())


def test_a_film_that_takes_too_long_is_given_up(tmp_path):
    path = weights(tmp_path / "w.safetensors", 0)
    node = {**NODE, "horizon": 10**6}
    footage = film_candidates([take(path, "r")], node, tmp_path / "film.mp4", wall_s=2)
    assert footage.video is None and footage.reason == "no result within 2 s"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["w.safetensors"]


def test_steps_at_the_goal_are_green():
    class Still:
        def render(self, width, height):
            return np.zeros((height, width, 3), np.uint8)

    task = PlanarReach(horizon=10)
    player = Player("r", "reward", Still(), None)  # type: ignore[arg-type]

    def green(met: list[bool]) -> int:
        player.met = met
        frame = _frame([player], task, 0, 1, (432, 424))
        return int((frame[88:104] == GREEN).all(-1).sum())

    assert green([False] * 10) == 0
    assert 0 < green([False, True]) < green([False, True, True])
