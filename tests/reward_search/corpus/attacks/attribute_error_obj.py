# stopped by: exception
def compute_reward(state):
    try:
        state.nothing
    except AttributeError as error:
        error.obj.__class__
    return 0.0, {}
