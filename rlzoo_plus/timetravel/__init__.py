"""Time travel: begin a new run at a checkpoint of another, and find the update that broke a run.

The verbs `branch` and `bisect` lead here. Both copy one exact checkpoint to a new directory and
train on from it, as a resume does: `branch_rules.py` says what a branch may change, `branching.py`
begins one. `replayed_run.py` trains a copy again and stops at the first update after which a
`condition.py` holds; `update_probe.py` measures each update, `bisection.py` chooses the checkpoint.
"""
