"""Teleoperation: a person plays a task in the browser, for demonstrations.

Optional: `collect --teleop` leads here. The page is served to this machine alone.
"""
