"""From a URDF to an environment of the user's own: one Python file and one YAML file."""
