# stopped by: statement
class Bomb:
    def __del__(self):
        pass
def compute_reward(state):
    return 0.0, {}
