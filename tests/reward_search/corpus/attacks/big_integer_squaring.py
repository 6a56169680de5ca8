# stopped by: time
def compute_reward(state):
    x = 12345678901
    for i in range(60):
        x = x * x
    return 0.0, {}
