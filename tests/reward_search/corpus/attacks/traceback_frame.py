# stopped by: exception
def compute_reward(state):
    try:
        1 / 0
    except ZeroDivisionError as error:
        error.__traceback__.tb_frame.f_back.f_globals
    return 0.0, {}
