# stopped by: state
count = 0
def compute_reward(state):
    global count
    count += 1
    return float(count), {'n': float(count)}
