# stopped by: operator
def compute_reward(state):
    x = 9 ** 9 ** 9
    return 0.0, {}
