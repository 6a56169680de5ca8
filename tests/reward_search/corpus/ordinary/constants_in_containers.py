import numpy as np

CONFIG = {"reach": {"weight": 1.5, "temperature": 0.15}, "effort": {"weight": -0.02}}
STAGES = [0.3, 0.1, 0.05]


def staged(distance):
    score = 0.0
    for threshold in STAGES:
        score += 1.0 / len(STAGES) if distance < threshold else 0.0
    return score


def compute_reward(state):
    distance = float(np.linalg.norm(state.tip_position - state.target_position))
    reach = CONFIG["reach"]["weight"] * np.exp(-distance / CONFIG["reach"]["temperature"])
    effort = CONFIG.get("effort")["weight"] * float((state.action**2).sum())
    parts = dict(reach=reach, effort=effort, stages=staged(distance))
    return reach + effort + parts["stages"], parts
