# stopped by: loop
def compute_reward(state):
    items = [1]
    for item in items:
        items.append(item)
    return 0.0, {}
