# stopped by: module
ticks = (i for i in range(1000))
def compute_reward(state):
    return float(sum(ticks)), {}
