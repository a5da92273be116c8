"""Versions of policies in a store, and aliases such as `production` that name one of them.

A registry is `models/` of a store (a folder, or S3). `model_records.py` says what it holds,
`model_store.py` reads and writes it, `model_copies.py` resolves NAME@ALIAS and NAME@VERSION,
`model_history.py` rolls back and verifies; these import no torch. `registering.py` makes versions,
`gate.py` and `promotion.py` play them, `mlflow_mirror.py` tells MLflow. Verbs lead here, and
`analysis/find_run.py` by a name.
"""
