"""The engine PyBullet, and how many of its worlds are stepped at once."""
