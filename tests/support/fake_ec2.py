"""What moto lacks of EC2 Fleets: ModifyFleet, and rights on them."""


def with_modify_fleet(monkeypatch):
    """Let moto's EC2 answer ModifyFleet as AWS does for a fleet of type `maintain`."""
    from moto.core.responses import ActionResult
    from moto.ec2.responses.fleets import Fleets

    def modify_fleet(self):
        fleet = self.ec2_backend.get_fleet(self._get_param("FleetId"))
        assert fleet is not None
        assert fleet.type == "maintain"
        assert fleet.state in ("active", "modifying")
        policy = self._get_param("ExcessCapacityTerminationPolicy")
        # AWS's default ends machines that train.
        assert (policy or fleet.excess_capacity_termination_policy) == "no-termination"
        target = int(self._get_param("TargetCapacitySpecification")["TotalTargetCapacity"])
        fleet.target_capacity = target
        fleet.target_capacity_specification["TotalTargetCapacity"] = target
        return ActionResult({"Return": True})

    monkeypatch.setattr(Fleets, "modify_fleet", modify_fleet, raising=False)


def start_fleet(project, sweep, launch, target, *, slots=1, spot=True):
    """Start a fleet as `infra=ec2_spot` tags it; return its id."""
    from rlzoo_plus.cloud import aws
    from rlzoo_plus.cloud.project import project_tags

    ec2 = aws.client("ec2")
    data = {"ImageId": "ami-12c6146b", "InstanceType": "c7a.large"}
    template = ec2.create_launch_template(
        LaunchTemplateName=f"{project}-{launch}", LaunchTemplateData=data
    )["LaunchTemplate"]["LaunchTemplateId"]
    tags = project_tags(project) | {"Sweep": sweep, "Launch": launch}
    tags |= {"Slots": str(slots), "Vcpus": "2"}
    return ec2.create_fleet(
        Type="maintain",
        LaunchTemplateConfigs=[
            {"LaunchTemplateSpecification": {"LaunchTemplateId": template, "Version": "1"}}
        ],
        TargetCapacitySpecification={
            "TotalTargetCapacity": target,
            "DefaultTargetCapacityType": "spot" if spot else "on-demand",
        },
        ExcessCapacityTerminationPolicy="no-termination",
        TagSpecifications=[
            {
                "ResourceType": "fleet",
                "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
            }
        ],
    )["FleetId"]
