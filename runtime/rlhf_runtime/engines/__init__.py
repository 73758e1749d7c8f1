"""How a role computes: generation, log-probs, values, updates.

Plain torch, unaware of Ray and of the control flow.
"""
