"""Control: a policy acts on a robot behind a driver, in real time, and fails safely."""
