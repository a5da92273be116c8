"""Population based training: members train beside each other, and the worst go on from the best.

Optional: `train -m hpo.sampler=pbt` and `study` lead here. Members are ordinary runs; what goes on
from another is a branch of its exact checkpoint, so the way of each can be trained again.
"""
