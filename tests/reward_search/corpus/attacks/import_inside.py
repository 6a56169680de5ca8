# stopped by: import
def compute_reward(state):
    import subprocess
    return 0.0, {}
