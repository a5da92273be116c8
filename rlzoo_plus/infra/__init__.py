"""Where jobs run: one protocol, and a launcher for each kind of machine."""
