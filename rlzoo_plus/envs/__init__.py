"""From an environment specification to the one wrapper chain that everything uses."""
