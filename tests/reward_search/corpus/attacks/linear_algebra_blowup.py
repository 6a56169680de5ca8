# stopped by: process
def compute_reward(state):
    x = np.linalg.eigvalsh(np.ones((4500, 4500)))
    return 0.0, {}
