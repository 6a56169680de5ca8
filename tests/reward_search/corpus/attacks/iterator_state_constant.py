# stopped by: load
TICKS = zip(range(1000), range(1000))
def compute_reward(state):
    return float(len([t for t in TICKS])), {}
