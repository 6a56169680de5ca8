"""Generalised advantage estimation over tokens (Schulman et al., arXiv 1506.02438, eq. 16)."""

from __future__ import annotations

import numpy as np


def advantages(
    rewards: np.ndarray,
    values: np.ndarray,
    terminal: np.ndarray,
    terminated: np.ndarray,
    *,
    gamma: float,
    gae_lambda: float,
) -> np.ndarray:
    """Advantages of a stretch of tokens, cut at episode ends.

    Token t holds the observation at which action t was chosen; `rewards[:, t]` is what that action
    earned. The token that ends an episode (`terminal`) is one of its own: its action is ignored,
    its advantage is 0, and its value is the bootstrap of the token before it, unless the episode
    `terminated`, which bootstraps with 0.

    Args:
        rewards: [env, step].
        values: [env, step + 1]; the last column is the token after the stretch.
        terminal: bool [env, step + 1]; the token ends its episode, by termination or truncation.
        terminated: bool [env, step + 1]; the token ends its episode by termination.
        gamma: discount per step.
        gae_lambda: the lambda of GAE.

    Returns:
        float64 [env, step]; 0 at terminal tokens.
    """
    # Time-major float64 copies: the recursion then reads contiguous rows and adds no rounding of
    # its own.
    reward = np.ascontiguousarray(rewards.T, dtype=np.float64)
    value = np.ascontiguousarray(values.T, dtype=np.float64)
    ends = np.ascontiguousarray(terminal.T)
    bootstrap = gamma * value[1:] * ~np.ascontiguousarray(terminated.T)[1:]
    delta = (reward + bootstrap - value[:-1]) * ~ends[:-1]
    # A terminal token's own delta is 0 and the carry into it is 0, so nothing crosses an episode.
    carry = gamma * gae_lambda * ~ends[1:] * ~ends[:-1]
    result = np.empty_like(delta)
    running = np.zeros(delta.shape[1])
    for t in range(delta.shape[0] - 1, -1, -1):
        running = delta[t] + carry[t] * running
        result[t] = running
    advantage: np.ndarray = result.T
    return advantage
