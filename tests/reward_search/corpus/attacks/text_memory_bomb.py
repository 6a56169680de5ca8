# stopped by: call
def compute_reward(state):
    n = 4000000000
    x = [0] * n
    return 0.0, {}
