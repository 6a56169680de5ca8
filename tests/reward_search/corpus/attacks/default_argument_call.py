# stopped by: default
def compute_reward(state, f=[].append(1)):
    return 0.0, {}
