# stopped by: numpy
def compute_reward(state):
    np.savetxt('{canary}', [1.0])
    return 0.0, {}
