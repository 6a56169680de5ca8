# stopped by: time
def compute_reward(state):
    total = 0.0
    for i in range(9000):
        total = total + np.sin(i)
    return float(total), {'a': float(total)}
    return 0.0, {}
