# stopped by: time
def compute_reward(state):
    f = [lambda g, n: 1 if n == 0 else g[0](g, n - 1) + g[0](g, n - 1)]
    f[0](f, 60)
    return 0.0, {}
