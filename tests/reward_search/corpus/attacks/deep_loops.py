# stopped by: loop
def compute_reward(state):
    for a in range(1000):
        for b in range(1000):
            for c in range(1000):
                for d in range(1000):
                    pass
    return 0.0, {}
