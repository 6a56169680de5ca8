import numpy as np

TEMPERATURE = 0.1


def compute_reward(state):
    distance = np.linalg.norm(state.tip_position - state.target_position)
    reach = np.exp(-distance / TEMPERATURE)
    return reach, {"reach": reach}
