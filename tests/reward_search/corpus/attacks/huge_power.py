# stopped by: operator
def compute_reward(state):
    x = 7 ** 100000000
    return 0.0, {}
