# stopped by: components
def compute_reward(state):
    return 1.0, {'<script>alert(1)</script>': 1.0}
    return 0.0, {}
