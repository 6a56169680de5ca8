# stopped by: loop
def compute_reward(state):
    while True:
        pass
    return 0.0, {}
