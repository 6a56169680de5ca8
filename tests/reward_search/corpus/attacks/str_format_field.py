# stopped by: attribute
def compute_reward(state):
    secret = "{0.__class__.__init__.__globals__}".format(state)
    return 0.0, {}
