# stopped by: numpy
def compute_reward(state):
    np.memmap('{canary}', mode='w+', shape=(4,))
    return 0.0, {}
