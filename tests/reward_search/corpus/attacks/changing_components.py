# stopped by: components
def compute_reward(state):
    return 1.0, {f'c{round(float(state.tip_position[0]), 3)}': 1.0}
    return 0.0, {}
