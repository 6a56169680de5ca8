# stopped by: import
def compute_reward(state):
    import os as np
    np.system('true')
    return 0.0, {}
