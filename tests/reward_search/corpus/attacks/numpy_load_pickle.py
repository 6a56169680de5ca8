# stopped by: numpy
def compute_reward(state):
    np.load('{canary}', allow_pickle=True)
    return 0.0, {}
