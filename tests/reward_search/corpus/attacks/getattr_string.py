# stopped by: name
def compute_reward(state):
    getattr(state, "__cla" + "ss__")
    return 0.0, {}
