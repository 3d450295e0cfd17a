"""The One Billion Word experiment: sampler, model, text windows, studies, and what happens to rare words."""
