"""How many vCPUs AWS lets an account use at once; new accounts often begin with no Spot machine."""

from __future__ import annotations

from rlzoo_plus.cloud import aws
from rlzoo_plus.errors import ConfigError

_CONSOLE = "https://{region}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{code}"
# By GPUs and Spot: "All Standard (A, C, D, ...) Spot Instance Requests", and the like.
_CODES = {
    (False, True): "L-34B43A08",
    (False, False): "L-1216C47A",
    (True, True): "L-3819A6DF",
    (True, False): "L-DB2E81BA",
}


def vcpu_quota(*, spot: bool, gpu: bool = False) -> int:
    """Return how many vCPUs may run at once; with `gpu`, of machines of the families g and vt."""
    wanted = {"ServiceCode": "ec2", "QuotaCode": _CODES[gpu, spot]}
    with aws.errors("read the quota of vCPUs"):
        return int(aws.client("service-quotas").get_service_quota(**wanted)["Quota"]["Value"])


def check_quota(vcpus: int, *, spot: bool, gpu: bool = False) -> str:
    """Check that machines for one run may start; return a note if that cannot be known, else ""."""
    try:
        quota = vcpu_quota(spot=spot, gpu=gpu)
    except aws.CloudError as error:
        return f"{error} Machines may not start if it is too small."
    if quota >= vcpus:
        return ""
    kind = f"{'Spot' if spot else 'on-demand'} vCPUs{' with GPUs' if gpu else ''}"
    url = _CONSOLE.format(region=aws.region(), code=_CODES[gpu, spot])
    other = "" if not spot or gpu else ", or use on-demand machines: infra.spot=false"
    raise ConfigError(
        f"this account may use {quota} {kind} in {aws.region()}, and a run needs {vcpus}. Ask AWS "
        f"for more, which takes hours to days: {url}{other}."
    )
