# stopped by: time
def compute_reward(state):
    items = [1]
    other = [items]
    for item in items:
        other[0].append(item)
    return 0.0, {}
