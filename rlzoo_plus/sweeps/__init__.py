"""Many runs from one command: their names, their ledger, their controller, their summary."""
