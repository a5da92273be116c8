"""Drivers: how a control loop reaches a robot, a simulated or a physical one.

`rlzoo_plus.drivers.driver` has the six calls that each of them answers.
"""
