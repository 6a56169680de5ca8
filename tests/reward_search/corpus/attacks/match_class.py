# stopped by: statement
def compute_reward(state):
    match state:
        case object(__class__=c):
            pass
    return 0.0, {}
