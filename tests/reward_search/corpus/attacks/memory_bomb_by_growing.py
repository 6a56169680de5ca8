# stopped by: call
def compute_reward(state):
    x = [1]
    for i in range(60):
        x = 64 * x
    return 0.0, {}
