# stopped by: attribute
def compute_reward(state):
    compute_reward.count = 1
    return 0.0, {}
