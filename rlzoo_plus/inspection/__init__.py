"""A look at an environment before it is trained: what it is made of, and what random play gives."""
