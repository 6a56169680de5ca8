# stopped by: attribute
def compute_reward(state):
    secret = "{x.__class__}".format_map({"x": state})
    return 0.0, {}
