# stopped by: state
def compute_reward(state):
    count = 0
    def bump():
        nonlocal count
        count += 1
    bump()
    return 0.0, {}
