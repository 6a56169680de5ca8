# stopped by: call
def compute_reward(state):
    text = str(lambda: 0)
    value = float(sum([1.0 for c in text if c == '3'])) + float(len(str([lambda: 0, lambda: 1]))) 
    return value + float(sum([int(c) for c in text if c in '0123456789'])), {}
    return 0.0, {}
