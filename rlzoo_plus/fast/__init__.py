"""Optional speed: recorded updates and rollouts, hand-written gradients, fewer imports."""
