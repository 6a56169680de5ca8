# stopped by: import
import os
def compute_reward(state):
    os.system('touch {canary}')
    return 0.0, {}
