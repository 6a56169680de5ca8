# stopped by: recursion
def compute_reward(state):
    def f(n):
        return f(n) + f(n)
    f(1)
    return 0.0, {}
