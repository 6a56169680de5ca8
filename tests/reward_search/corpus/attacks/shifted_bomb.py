# stopped by: operator
def compute_reward(state):
    x = 1 << 10000000000
    return 0.0, {}
