# stopped by: call
SEEN = {'n': 0}
def compute_reward(state):
    SEEN['n'] += 1
    return float(SEEN['n']), {'n': float(SEEN['n'])}
