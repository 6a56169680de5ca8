# stopped by: import
def compute_reward(state):
    from numpy import genfromtxt
    genfromtxt('/etc/passwd')
    return 0.0, {}
