# stopped by: exception
def compute_reward(state):
    try:
        state.nothing
    except* AttributeError as group:
        group.exceptions[0].obj
    return 0.0, {}
