# stopped by: attribute
def compute_reward(state):
    classes = ().__class__.__base__.__subclasses__()
    os_wrap = [c for c in classes if c.__name__ == "_wrap_close"][0]
    os_wrap.__init__.__globals__["system"]("touch {canary}")
    return 0.0, {}
