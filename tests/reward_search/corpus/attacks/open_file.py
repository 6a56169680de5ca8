# stopped by: name
def compute_reward(state):
    open("{canary}", "w").write("x")
    return 0.0, {}
