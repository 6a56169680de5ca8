# stopped by: text
def compute_reward(state):
    text = f"{1.0:>2000000000}"
    return 0.0, {}
