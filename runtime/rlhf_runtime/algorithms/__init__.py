"""What an RL algorithm computes: rewards to advantages, advantages to losses. Pure functions on tensors.

Shapes everywhere: ``B`` rows (prompt times sample), ``T`` response columns. ``response_mask`` (B, T) is 1 on
tokens that the policy chose and is trained on; it is not the attention mask.
"""
