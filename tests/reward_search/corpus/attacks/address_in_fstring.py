# stopped by: call
def compute_reward(state):
    text = f'{[1]!r}{state}'
    return float(len(text)), {}
    return 0.0, {}
