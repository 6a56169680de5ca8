# stopped by: name
def compute_reward(state):
    __import__("os").system("touch {canary}")
    return 0.0, {}
