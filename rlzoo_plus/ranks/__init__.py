"""Data parallel training: several processes of this machine train one agent together."""
