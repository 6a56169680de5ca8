# stopped by: name
def compute_reward(state):
    module = np
    module.os
    return 0.0, {}
