WEIGHTS = (0.5, 0.25)
LIMITS = np.array([3.0, 3.0])


def compute_reward(state):
    def smooth(x, temperature=0.2):
        return 1.0 - np.tanh(x / temperature)

    components = {}
    for i in range(2):
        components[f"joint_{i}"] = -WEIGHTS[i] * abs(state.joint_velocities[i]) / LIMITS[i]
    for name, weight in {"x": 1.0, "y": 2.0}.items():
        index = 0 if name == "x" else 1
        components["error_" + name] = weight * smooth(
            abs(state.tip_position[index] - state.target_position[index])
        )
    penalties = [float(a) ** 2 for a in state.action]
    components["action"] = -0.01 * sum(penalties)
    return float(sum(components.values())), components
