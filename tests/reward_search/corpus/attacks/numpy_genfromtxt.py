# stopped by: numpy
def compute_reward(state):
    np.genfromtxt('/etc/passwd', dtype='str')
    return 0.0, {}
