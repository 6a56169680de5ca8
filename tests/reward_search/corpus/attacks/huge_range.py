# stopped by: loop
def compute_reward(state):
    for i in range(10**9):
        pass
    for i in range(1000000000):
        pass
    return 0.0, {}
