# stopped by: numpy
def compute_reward(state):
    np.ctypeslib.load_library('libc.so.6', '/lib')
    return 0.0, {}
