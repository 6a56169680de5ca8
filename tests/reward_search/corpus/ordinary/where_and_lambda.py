import numpy as np


def compute_reward(state):
    delta = state.tip_position - state.target_position
    d = np.sqrt(np.sum(np.square(delta)))
    bonus = np.where(d < 0.05, 1.0, 0.0)
    shape = lambda x, t: np.exp(-t * x)
    speed = np.linalg.norm(state.joint_velocities)
    slow = shape(speed, 2.0) if d < 0.05 and speed > 0 else 0.0
    total = 2.0 * shape(d, 5.0) + bonus + 0.5 * slow
    return total, {"reach": 2.0 * shape(d, 5.0), "bonus": bonus, "slow": 0.5 * slow}
