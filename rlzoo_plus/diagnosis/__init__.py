"""What is wrong, or doubtful, with runs that have not begun; and how fast they would be."""
