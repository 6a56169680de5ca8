# stopped by: numpy
def compute_reward(state):
    np.seterr(all='ignore')
    return 0.0, {}
