"""`new-robot`: a robot and its task from a URDF or an MJCF, which a physics engine reads."""
