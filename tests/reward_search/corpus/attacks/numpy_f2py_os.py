# stopped by: numpy
def compute_reward(state):
    np.f2py.os.system('touch {canary}')
    return 0.0, {}
