"""The project's stack, deployed on moto."""

from support.aws import NAME, deployed_project

from rlzoo_plus.cloud import aws


def test_outputs_of_the_stack_are_the_project(monkeypatch):
    with deployed_project(monkeypatch) as project:
        assert project.name == NAME
        assert project.store.startswith(f"s3://rlzoo-{NAME}-")
        assert (project.family, project.max_vcpus) == ("c7a", 64)
        assert "c6i" in project.families
        assert len(project.subnets) > 1
        assert project.gpu_queue == ""
        named = {project.spot_queue, project.wide_queue, project.on_demand_queue}
        queues = aws.client("batch").describe_job_queues()["jobQueues"]
        assert {queue["jobQueueArn"] for queue in queues} == named


def test_queue_for_gpus_exists_if_it_was_asked_for(monkeypatch):
    gpus = {"GpuFamily": "g6", "GpuTypes": "g6.xlarge"}
    with deployed_project(monkeypatch, MaxVcpus=8, **gpus) as project:
        found = aws.client("batch").describe_compute_environments()["computeEnvironments"]
        types = [made["computeResources"]["instanceTypes"] for made in found]
        assert ["g6.xlarge"] in types
        assert (project.gpu_queue.rpartition("/")[2], project.max_vcpus) == ("rlzoo-lab-gpu", 8)
