"""`new-robot`: a robot and its task from a URDF."""
