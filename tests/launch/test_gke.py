"""GKE: the manifests against the schemas of Kubernetes and JobSet, and xpk's command."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.launch.launching import AWKWARD, CONFIG, JOB, LAUNCH, ROOT, Shown, expanded, stand_in

IMAGE = "--image=registry/bert-lamb:1"
SLICES = {
    "a v3-32": (["--accelerator=v3-32"], 1, 4, "tpu-v3-slice", "4x4", "ct3p-hightpu-4t"),
    "a v5e-256": (
        ["--accelerator=v5e-256"], 1, 64, "tpu-v5-lite-podslice", "16x16", "ct5lp-hightpu-4t",
    ),
    "two v4-16": (
        ["--accelerator=v4-16", "--num-slices=2"], 2, 2, "tpu-v4-podslice", "2x2x2",
        "ct4p-hightpu-4t",
    ),
}  # fmt: skip
# The release of Kubernetes whose schemas are used.
VERSION = "1.31"


def _manifests(seen: Shown) -> tuple[dict[str, Any], dict[str, Any]]:
    config, jobset = yaml.safe_load_all(seen.files["jobset.yaml"])
    return config, jobset


def _as_job(jobset: dict[str, Any]) -> dict[str, Any]:
    template = jobset["spec"]["replicatedJobs"][0]["template"]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **template}


def _is_jobset(manifest: dict[str, Any]) -> bool:
    """Says whether the manifest has the types of the JobSet API and nothing that it does not know.

    The models leave out what they do not know, so an unknown field does not come back.
    """
    from kubeflow_trainer_api.models import JobsetV1alpha2JobSet
    from pydantic import ValidationError

    try:
        model = JobsetV1alpha2JobSet.from_dict(manifest)
    except ValidationError:
        return False
    return model is not None and _within(manifest, model.to_dict())


def _within(given: Any, back: Any) -> bool:
    """Says whether all that was given came back; defaults may have come along."""
    if isinstance(given, dict):
        return all(key in back and _within(value, back[key]) for key, value in given.items())
    if isinstance(given, list):
        return len(given) == len(back) and all(map(_within, given, back))
    return given == back


@pytest.mark.parametrize("spot", [False, True])
@pytest.mark.parametrize("slices", SLICES)
def test_the_manifests_keep_the_schemas(dry: Callable[..., Shown], slices: str, spot: bool) -> None:
    more = ["--spot", "--queue=tpus", "--service-account=trainer"] if spot else []
    seen = dry("gke", "apply", "large", *SLICES[slices][0], IMAGE, *JOB, *more)
    config, jobset = _manifests(seen)
    assert seen.status == 0
    kubernetes_validate.validate(config, VERSION, strict=True)
    kubernetes_validate.validate(_as_job(jobset), VERSION, strict=True)
    assert _is_jobset(jobset)
    policy = jobset["spec"]["failurePolicy"]
    # What the models take as any text.
    for rule in policy["rules"]:
        assert rule["action"] in ("FailJobSet", "RestartJobSet")
        assert re.fullmatch("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", rule["name"])


def test_the_schemas_notice_faults(dry: Callable[..., Shown]) -> None:
    def fresh() -> dict[str, Any]:
        return _manifests(dry("gke", "apply", "large", *SLICES["a v3-32"][0], IMAGE, *JOB))[1]

    pod_fault, policy_fault, type_fault = fresh(), fresh(), fresh()
    job = pod_fault["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(_as_job(pod_fault), VERSION, strict=True)
    policy_fault["spec"]["failurePolicy"]["maxRestart"] = 3
    type_fault["spec"]["failurePolicy"]["maxRestarts"] = "20"
    assert not _is_jobset(policy_fault)
    assert not _is_jobset(type_fault)


@pytest.mark.parametrize("slices", SLICES)
def test_one_job_a_slice_and_one_pod_a_host(dry: Callable[..., Shown], slices: str) -> None:
    options, count, hosts, accelerator, topology, machine = SLICES[slices]
    seen = dry("gke", "apply", "large", *options, IMAGE, *JOB)
    config, jobset = _manifests(seen)
    (replicated,) = jobset["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    pod = job["template"]["spec"]
    assert (replicated["replicas"], job["parallelism"], job["completions"]) == (count, hosts, hosts)
    assert job["backoffLimit"] == 0
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == 20
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": accelerator,
        "cloud.google.com/gke-tpu-topology": topology,
    }
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"google.com/tpu": "4"}
    assert pod["terminationGracePeriodSeconds"] == 600
    annotations = jobset["metadata"]["annotations"]
    assert annotations["alpha.jobset.sigs.k8s.io/exclusive-topology"].endswith("gke-nodepool")
    assert config["data"]["config.py"] == (ROOT / CONFIG).read_text()
    assert seen.commands[0][:2] == ["kubectl", "apply"]
    pools = dry("gke", "nodepools", "large", *options, "--cluster=c", "--location=l").commands
    assert [pool[4] for pool in pools] == [f"large-{index}" for index in range(count)]
    for pool in pools:
        wanted = {f"--machine-type={machine}", f"--num-nodes={hosts}", f"--tpu-topology={topology}"}
        assert wanted < set(pool)


def test_the_container_starts_the_program_itself_with_the_arguments_as_given(
    dry: Callable[..., Shown],
) -> None:
    given = {"A": "$(B) $$(B) $$ $B $", "B": "b"}
    env = [f"--env={name}={value}" for name, value in given.items()]
    seen = dry("gke", "apply", "large", *SLICES["a v3-32"][0], IMAGE, *JOB, *env)
    job = _manifests(seen)[1]["spec"]["replicatedJobs"][0]["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    command = [expanded(word, given) for word in container["command"]]
    assert command == ["bert-lamb", "pretrain", "--config=/etc/bert-lamb/config.py", *JOB[1:]]
    inside = {one["name"]: expanded(one["value"], given) for one in container["env"]}
    assert given.items() < inside.items()
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"] == {"containerName": "train", "operator": "In", "values": [1, 2]}


def test_spot_nodes_are_asked_for_and_tolerated(dry: Callable[..., Shown]) -> None:
    seen = dry("gke", "apply", "large", *SLICES["two v4-16"][0], IMAGE, *JOB, "--spot")
    pod = _as_job(_manifests(seen)[1])["spec"]["template"]["spec"]
    assert pod["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert "cloud.google.com/gke-spot" in {taint["key"] for taint in pod["tolerations"]}


@pytest.mark.parametrize("slices", ["a v5e-256", "two v4-16"])
def test_xpk_starts_the_same_job(dry: Callable[..., Shown], slices: str, tmp_path: Path) -> None:
    options, count, *_ = SLICES[slices]
    where = ["--xpk", "--cluster=c", "--zone=z", "--env=A=$$(HOME)"]
    (command,) = dry("gke", "apply", "large", *options, IMAGE, *JOB, *where).commands
    assert command[:3] == ["xpk", "workload", "create"]
    kind = "v5litepod-256" if count == 1 else "v4-16"
    assert {
        f"--tpu-type={kind}", f"--num-slices={count}", "--workload=large", "--cluster=c",
        "--docker-image=registry/bert-lamb:1", "--max-restarts=20",
        "--restart-on-exit-codes=3-126", "--termination-grace-period-seconds=600",
    } < set(command)  # fmt: skip
    # What xpk hands to bash in the container, with a stand-in for the program.
    (text,) = (word.removeprefix("--command=") for word in command if word.startswith("--command"))
    assert "\n" not in text
    assert "--env=A=$$$$(HOME)" in command
    here = expanded(text, {"HOME": "replaced"}).replace(
        "/tmp/config.py", str(tmp_path / "config.py")
    )
    stand_in(tmp_path / "bin", "bert-lamb", f'printf "%s\\n" "$@" >{tmp_path}/seen')
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    subprocess.run(["bash", "-c", here], env=os.environ | {"PATH": path}, check=True)
    assert (tmp_path / "config.py").read_text() == (ROOT / CONFIG).read_text()
    assert (tmp_path / "seen").read_text().splitlines()[2:] == list(JOB[1:])


def test_the_other_verbs(dry: Callable[..., Shown]) -> None:
    build, push = dry("gke", "image", "large", IMAGE).commands
    assert build[:3] == ["docker", "build", "--tag=registry/bert-lamb:1"]
    assert push == ["docker", "push", "registry/bert-lamb:1"]
    jobset, pods = dry("gke", "status", "large", "--namespace=n").commands
    assert jobset == ["kubectl", "get", "jobset", "large", "--namespace=n"]
    assert "--selector=jobset.sigs.k8s.io/jobset-name=large" in pods
    (follow,) = dry("gke", "logs", "large", "--slice=1", "--host=3").commands
    assert "job-index=1" in follow[-1]
    assert "job-completion-index=3" in follow[-1]
    (gone,) = dry("gke", "delete", "large").commands
    assert gone[2:4] == ["jobset/large", "configmap/large-config"]


@pytest.mark.parametrize("more", [[], ["--xpk", "--cluster=c", "--zone=z"]])
def test_a_dry_run_needs_no_program_and_leaves_no_file(tmp_path: Path, more: list[str]) -> None:
    options = [*SLICES["two v4-16"][0], *JOB, IMAGE, *more]
    done = subprocess.run(
        [sys.executable, LAUNCH / "gke.py", "apply", "untouched", *options, "--dry-run"],
        cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("$ ") >= 1
    assert not (ROOT / "build" / "launch" / "untouched").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--accelerator=v4-8", "--num-slices=2"], "take a larger type"),
        (["--accelerator=v6-8"], "did you mean v6e-8?"),
        (["--accelerator=v3-32", "--xpk", "--cluster=c", "--zone=z"], "leave --xpk out"),
        (["--accelerator=v4-16", "--xpk"], "needs --cluster=NAME and --zone=ZONE"),
        (["--accelerator=v4-16", "--grace-seconds=-1"], "--grace-seconds=-1: expected 0 or more"),
        (["--accelerator=v4-16", "--max-restarts=2147483648"], "--max-restarts=2147483648: expe"),
        (["--accelerator=v4-16", "--namespace="], "--namespace=: expected at most 63 of"),
        (["--accelerator=v4-16", "--namespace=N\n"], "expected printable characters only"),
        (["--accelerator=v4-16", "--image="], "--image=: expected REGISTRY/"),
        # One chip is one device: 16, not 32.
        (["--accelerator=v5e-16", "--config.parallel.fsdp=7"],
         "fsdp 7 x tensor 1 = 7 devices: expected a divisor of the 16 devices"),
        (["--accelerator=v4-16", "--config.parallel.data=16", "--config.parallel.fsdp=1"],
         "data 16 x fsdp 1 x tensor 1 = 16 devices: expected the 8 devices"),
        # Two devices a chip.
        (["--accelerator=tpu7x-32", "--config.parallel.data=16", "--config.parallel.fsdp=1"],
         "data 16 x fsdp 1 x tensor 1 = 16 devices: expected the 32 devices"),
        (["--accelerator=v4-16", "--num-slices=2", "--config.parallel.replica=1"],
         "config.parallel.replica = 1: expected a multiple of the 2 slices"),
        (["--accelerator=v4-16", "--config.phases[1].global_batch=100"],
         "config.phases[1].global_batch = 100: expected a multiple of the 8 devices"),
        (["--accelerator=v4-16", "--config.evaluation.batch=4"],
         "config.evaluation.batch = 4: expected a multiple of the 8 devices"),
    ],
)  # fmt: skip
def test_bad_requests_end_with_one_line(
    dry: Callable[..., Shown], arguments: list[str], message: str
) -> None:
    seen = dry("gke", "apply", "large", IMAGE, *JOB, *arguments)
    assert (seen.status, seen.commands, seen.files) == (2, [], {})
    assert message in seen.error
    assert seen.error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["image", "large", "--image="], "--image=: expected REGISTRY/"),
        (["nodepools", "large", "--accelerator=v4-16", "--cluster=", "--location=l"],
         "--cluster=: expected a value"),
        (["nodepools", "large", "--accelerator=v4-16", "--cluster=c", "--location= "],
         "--location= : expected a value"),
        (["nodepools", "large", "--accelerator=v4-16", "--cluster=c", "--location=l",
          "--num-slices=999999999"], "--num-slices=999999999: expected 1 to 1024"),
        (["logs", "large", "--host=-1"], "--host=-1: expected 0 or more"),
        (["status", "large", "--namespace="], "--namespace=: expected"),
    ],
)  # fmt: skip
def test_bad_values_of_the_other_verbs_end_with_one_line(
    dry: Callable[..., Shown], arguments: list[str], message: str
) -> None:
    seen = dry("gke", *arguments)
    assert (seen.status, seen.commands, seen.files) == (2, [], {})
    assert message in seen.error
    assert seen.error.count("\n") == 1


def test_overrides_belong_to_apply(dry: Callable[..., Shown]) -> None:
    assert "overrides belong to `apply`" in dry("gke", "status", "large", AWKWARD).error
