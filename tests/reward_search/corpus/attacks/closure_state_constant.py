# stopped by: load
FS = [(lambda: held) for held in [[]]]
def compute_reward(state):
    FS[0]().append(1)
    return float(len(FS[0]())), {}
