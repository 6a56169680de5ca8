# stopped by: module
print_it = (lambda: 1)()
def compute_reward(state):
    return 0.0, {}
