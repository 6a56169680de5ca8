# stopped by: text
def compute_reward(state):
    text = "%2000000000d" % 1
    return 0.0, {}
