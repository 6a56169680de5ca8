# stopped by: name
def compute_reward(state):
    __builtins__["open"]("{canary}", "w")
    return 0.0, {}
