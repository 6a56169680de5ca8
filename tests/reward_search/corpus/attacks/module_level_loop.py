# stopped by: module
for i in range(3):
    pass
def compute_reward(state):
    return 0.0, {}
