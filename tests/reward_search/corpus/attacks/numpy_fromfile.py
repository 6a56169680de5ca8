# stopped by: numpy
def compute_reward(state):
    np.fromfile('/proc/self/environ', dtype='uint8')
    return 0.0, {}
