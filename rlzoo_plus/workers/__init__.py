"""Workers: take runs of sweeps from a store on any machine, train them, and send what comes.

A request that fails is a `StoreError`, a mistake of the user's a `ConfigError`; it is not said each
time.
"""
