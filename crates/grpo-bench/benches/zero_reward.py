"""A reward function that does nothing. Measures the overhead of the reward type python."""


def reward(completions, **kwargs):
    return [0.0] * len(completions)
