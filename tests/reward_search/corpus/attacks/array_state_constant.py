# stopped by: call
COUNTS = np.zeros(1)
def compute_reward(state):
    COUNTS[0] += 1
    return float(COUNTS[0]), {'n': float(COUNTS[0])}
