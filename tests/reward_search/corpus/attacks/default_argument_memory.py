# stopped by: default
def compute_reward(state, memory=[]):
    memory.append(1)
    return float(len(memory)), {'n': float(len(memory))}
