"""What a robot is, from a log of what it was told and what it did."""
