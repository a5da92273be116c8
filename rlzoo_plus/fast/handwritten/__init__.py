"""`fast=true`: updates with hand-written backward passes; the same mathematics, other rounding."""
