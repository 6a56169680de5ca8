# stopped by: statement
def compute_reward(state):
    async def helper():
        return 1
    return 0.0, {}
