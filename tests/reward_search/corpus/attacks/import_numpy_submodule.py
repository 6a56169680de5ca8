# stopped by: import
def compute_reward(state):
    import numpy.ctypeslib as np
    return 0.0, {}
