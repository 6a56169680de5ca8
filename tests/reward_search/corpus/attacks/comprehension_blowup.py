# stopped by: time
def compute_reward(state):
    x = [a + b + c for a in range(3000) for b in range(3000) for c in range(3000)]
    return 0.0, {}
