# stopped by: statement
def compute_reward(state):
    (np := state)
    return 0.0, {}
