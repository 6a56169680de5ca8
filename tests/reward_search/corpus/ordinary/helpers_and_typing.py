import numpy as np
import math
from typing import Dict, Tuple


def gate(value: float, low: float = 0.0, high: float = 1.0) -> float:
    """Between 0 and 1."""
    return float(np.clip((value - low) / (high - low), 0.0, 1.0))


def compute_reward(state) -> Tuple[float, Dict[str, float]]:
    """Reach, then hold."""
    distance: float = float(np.linalg.norm(state.target_position - state.tip_position))
    near = gate(0.2 - distance, high=0.2)
    angle = math.atan2(state.target_position[1], state.target_position[0])
    reward_components = {"near": near, "angle": 0.01 * math.cos(angle)}
    total_reward = sum(reward_components.values())
    return total_reward, reward_components
