import numpy as np


def compute_reward(state):
    stacked = np.concatenate([state.tip_position, state.target_position]).reshape(2, 2)
    distance = np.abs(stacked[0] - stacked[1])
    weights = np.array([1.0, 1.0])
    error = weights @ distance
    inside = bool(np.all(distance < 0.1)) and not np.any(np.isnan(distance))
    mask = distance > 0.02
    far = distance[mask].sum() if mask.any() else 0.0
    copy = state.action.copy()
    copy[0] *= 0.5
    return (
        -error + (0.5 if inside else 0.0) - 0.1 * far - 0.001 * float(np.dot(copy, copy)),
        {
            "error": -error,
            "inside": 0.5 if inside else 0.0,
            "far": -0.1 * far,
            "effort": -0.001 * float(np.dot(copy, copy)),
        },
    )
