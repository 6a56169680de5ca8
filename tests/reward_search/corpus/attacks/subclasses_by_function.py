# stopped by: attribute
def compute_reward(state):
    def helper(): return 0
    helper.__globals__["__builtins__"]["__import__"]("os").system("touch {canary}")
    return 0.0, {}
