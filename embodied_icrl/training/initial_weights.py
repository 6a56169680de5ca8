"""The weights of another run to begin with, also of one whose episodes had another length."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from embodied_icrl.common.config import build, to_dict
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.common.paths import with_assets
from embodied_icrl.policy import Policy, PolicyConfig
from embodied_icrl.runs.checkpoint import find_checkpoint, load_checkpoint

# Of the policy's options: they say how its weights are used, not what they mean.
_FREE = ("attention", "cache_dtype", "depth_dropout")
_ADVICE = "use the same policy.* and an environment with the same spaces"


def load_weights(policy: Policy, source: str) -> str:
    """Start from the weights of a run's newest checkpoint, or of a checkpoint directory.

    A policy that was made for episodes of another length may differ in nothing else; its embeddings
    of the steps are cut, or go on with that of the last step it acted at.

    Returns:
        What was changed to make the weights fit, for people; "" if nothing.

    Raises:
        RunError: there is no checkpoint.
        ConfigError: its weights don't fit; names the first that doesn't.
    """
    path = with_assets(source)
    if (path / "checkpoints").is_dir() or not (path / "manifest.json").is_file():
        path = find_checkpoint(path)
    checkpoint = load_checkpoint(path)
    weights, own, note = checkpoint.tensors("policy"), policy.state_dict(), ""
    theirs = policy.max_episode_steps
    if checkpoint.policy is not None:
        theirs = int(checkpoint.policy["max_episode_steps"])
    if checkpoint.policy is not None and theirs != policy.max_episode_steps:
        difference = _difference(checkpoint.policy, policy.describe())
        if difference:
            raise ConfigError(
                f"init_from={source} doesn't fit this policy: {difference}; {_ADVICE}"
            )
        name = "encoder.lookup"
        weights[name] = policy.encoder.with_own_steps(weights[name])
        note = (
            f"init_from={source} had episodes of {theirs} steps, now {policy.max_episode_steps}: "
            "its embeddings of the steps were "
            + ("cut" if theirs > policy.max_episode_steps else "continued with the last one")
        )
    for name in [*own, *weights]:
        there, here = (tuple(w[name].shape) if name in w else None for w in (weights, own))
        if there != here:
            raise ConfigError(
                f"init_from={source} doesn't fit this policy: {name} is "
                f"{there or 'absent'} there and {here or 'absent'} here; {_ADVICE}"
            )
    policy.load_state_dict(weights)
    return note


def _difference(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """The first thing but the length of episodes in which two descriptions of policies differ.

    What either doesn't read is left out of its observations.
    """
    there, here = (_comparable(description) for description in (theirs, ours))
    for name in [*here, *there]:
        if there.get(name) != here.get(name):
            texts = (reprlib.repr(e[name]) if name in e else "absent" for e in (there, here))
            return "{} is {} there and {} here".format(name, *texts)
    return ""


def _comparable(description: Mapping[str, Any]) -> dict[str, Any]:
    # Built, so that an older checkpoint has the defaults of options that it doesn't know.
    config = to_dict(build(description["config"], PolicyConfig))
    ignored = config.pop("ignore")
    read = description["observation_space"]["spaces"]
    return {
        **{f"policy.{key}": value for key, value in config.items() if key not in _FREE},
        **{f"observation {key!r}": space for key, space in read.items() if key not in ignored},
        "actions": description["action_space"],
    }
