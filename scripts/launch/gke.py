r"""A pretraining job on GKE, as a JobSet made from the config, or through xpk.

    python scripts/launch/gke.py image     NAME --image=IMAGE
    python scripts/launch/gke.py nodepools NAME --cluster=C --location=L --accelerator=v4-32
    python scripts/launch/gke.py apply     NAME --accelerator=v4-32 --image=IMAGE \
        --config=FILE --workdir=gs://BUCKET/RUN
    python scripts/launch/gke.py apply     NAME ... --xpk --cluster=C --zone=Z
    python scripts/launch/gke.py status    NAME
    python scripts/launch/gke.py logs      NAME
    python scripts/launch/gke.py delete    NAME

The image holds the package; the config travels beside it, as a ConfigMap. Every verb takes
--dry-run, which prints the commands and files. kubectl (or xpk) and gcloud do the work; the cluster
needs the JobSet controller (jobset.x-k8s.io/v1alpha2).
"""

import argparse
import base64
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import yaml
from accelerators import Slice, check_slices, find_slice
from environment import for_tpu, with_extra
from job import Job, add_job, check_bucket, load_job
from options import add_name, add_number, add_slices, add_text, launch
from running import FINAL, MADE, ROOT, LaunchError, Runner, add_verb

CONTAINER = "train"
REPLICATED_JOB = "slice"
_CONFIG_FOLDER = "/etc/bert-lamb"
# Between libtpu's processes, libtpu's metrics, between slices, JAX's coordinator.
_PORTS = (8471, 8431, 8080, 8482)
_DOCKERFILE = """\
FROM python:3.12-slim
COPY . /src
# gcsfs: with it etils reads and writes gs:// paths.
RUN pip install --no-cache-dir '/src[tpu]' gcsfs && rm -rf /src
"""


def image(args: argparse.Namespace, runner: Runner) -> None:
    """Builds the container image of this checkout and pushes it."""
    folder = MADE / args.name
    runner.write(folder / "Dockerfile", _DOCKERFILE)
    runner.write(folder / "Dockerfile.dockerignore", "*\n!bert_lamb\n!pyproject.toml\n!README.md\n"
                 "!LICENSE\n**/__pycache__\n")  # fmt: skip
    runner.run(["docker", "build", f"--tag={args.image}", f"--file={folder / 'Dockerfile'}",
                "--platform=linux/amd64", str(ROOT)])  # fmt: skip
    runner.run(["docker", "push", args.image])


def nodepools(args: argparse.Namespace, runner: Runner) -> None:
    """Makes one node pool for each slice."""
    slice_ = _slice(args)
    for index in range(args.num_slices):
        command = [
            "gcloud", "container", "node-pools", "create", f"{args.name}-{index}",
            f"--cluster={args.cluster}", f"--location={args.location}",
            f"--machine-type={slice_.machine}", f"--num-nodes={slice_.hosts}",
            "--scopes=https://www.googleapis.com/auth/cloud-platform",
        ]  # fmt: skip
        if slice_.hosts > 1:
            command.append(f"--tpu-topology={slice_.topology}")
        if args.node_locations:
            command.append(f"--node-locations={args.node_locations}")
        runner.run(command + ["--spot"] * args.spot)


def apply(args: argparse.Namespace, runner: Runner) -> None:
    """Starts the job."""
    slice_ = _slice(args)
    check_bucket(args.workdir, slice_.hosts * args.num_slices)
    job = load_job(args, slice_.devices * args.num_slices, [args.num_slices])
    if args.xpk:
        runner.run(xpk_command(args, job, slice_))
        return
    path = MADE / args.name / "jobset.yaml"
    runner.write(path, as_yaml(manifests(args, job, slice_)))
    runner.run(["kubectl", "apply", f"--namespace={args.namespace}", f"--filename={path}"])


def status(args: argparse.Namespace, runner: Runner) -> None:
    """Prints the job and its pods."""
    space = f"--namespace={args.namespace}"
    runner.run(["kubectl", "get", "jobset", args.name, space])
    runner.run(["kubectl", "get", "pods", space, f"--selector={_JOBSET}={args.name}",
                "--output=wide"])  # fmt: skip


def logs(args: argparse.Namespace, runner: Runner) -> None:
    """Follows the log of one host."""
    selector = (
        f"{_JOBSET}={args.name},jobset.sigs.k8s.io/job-index={args.slice},"
        f"batch.kubernetes.io/job-completion-index={args.host}"
    )
    runner.run(["kubectl", "logs", "--follow", f"--tail={args.lines}",
                f"--namespace={args.namespace}", f"--selector={selector}"])  # fmt: skip


def delete(args: argparse.Namespace, runner: Runner) -> None:
    """Has the run save its step and leave (SIGTERM), and deletes the job; the bucket stays."""
    runner.run(["kubectl", "delete", f"jobset/{args.name}", f"configmap/{args.name}-config",
                "--ignore-not-found", "--cascade=foreground",
                f"--namespace={args.namespace}"])  # fmt: skip


def manifests(args: argparse.Namespace, job: Job, slice_: Slice) -> list[dict[str, Any]]:
    """Returns the ConfigMap with the config file and the JobSet.

    The JobSet has one Job for each slice and one pod for each host. GKE gives the pods
    TPU_WORKER_ID, TPU_WORKER_HOSTNAMES and MEGASCALE_*, from which JAX finds its peers. A pod that
    fails ends its Job at once, and JobSet then starts all Jobs again, which is how the others, whom
    the lost pod leaves waiting, get going. A status that no repetition mends fails the JobSet.

    References:
        JobSet API, jobset.x-k8s.io/v1alpha2; Kubernetes batch/v1, pod failure policy.
    """
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{args.name}-config"},
        "data": {"config.py": job.config},
    }
    metadata: dict[str, Any] = {
        "name": args.name,
        # Each Job gets a node pool, that is a slice, of its own.
        "annotations": {
            "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"
        },
    }
    if args.queue:
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": args.queue}
    slice_job = {
        "parallelism": slice_.hosts,
        "completions": slice_.hosts,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {
                        "containerName": CONTAINER,
                        "operator": "In",
                        "values": list(FINAL),
                    },
                }
            ]
        },
        "template": {"spec": _pod(args, job, slice_)},
    }
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {
            "failurePolicy": {
                "maxRestarts": job.max_restarts,
                "rules": [
                    {
                        "name": "noRepetitionMends",
                        "action": "FailJobSet",
                        "onJobFailureReasons": ["PodFailurePolicy"],
                    }
                ],
            },
            "replicatedJobs": [
                {
                    "name": REPLICATED_JOB,
                    "replicas": args.num_slices,
                    "template": {"spec": slice_job},
                }
            ],
        },
    }
    return [config, jobset]


def as_yaml(documents: Sequence[dict[str, Any]]) -> str:
    """Returns the documents as YAML, with files in them as blocks that can be read."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=1000)


def xpk_command(args: argparse.Namespace, job: Job, slice_: Slice) -> list[str]:
    """Returns the `xpk workload create` that starts the same job.

    Raises:
        LaunchError: if xpk cannot, or the cluster is not named.
    """
    if not (args.cluster and args.zone):
        raise LaunchError("--xpk: needs --cluster=NAME and --zone=ZONE")
    if slice_.generation.prefix == "v3":
        raise LaunchError("--xpk: xpk knows v4 and later only; leave --xpk out")
    # xpk mounts no ConfigMap, so the config travels in the command. With exec the program takes the
    # place of the shell that xpk sends SIGTERM to.
    text = base64.b64encode(job.config.encode()).decode()
    program = shlex.join(job.command("bert-lamb", "/tmp/config.py"))
    command = f"echo {text} | base64 -d > /tmp/config.py && exec {program}"
    variables = with_extra(for_tpu(job.cache), job.env)
    return [
        "xpk", "workload", "create", f"--workload={args.name}", f"--cluster={args.cluster}",
        f"--zone={args.zone}", *([f"--project={args.project}"] if args.project else []),
        f"--tpu-type={slice_.name}", f"--num-slices={args.num_slices}",
        f"--docker-image={args.image}", f"--max-restarts={job.max_restarts}",
        # By itself xpk takes most statuses below 127 for final.
        f"--restart-on-exit-codes={max(FINAL) + 1}-126",
        f"--termination-grace-period-seconds={args.grace_seconds}",
        # Both reach a manifest as they are.
        *(f"--env={name}={_literal(value)}" for name, value in variables.items()),
        f"--command={_literal(command)}",
    ]  # fmt: skip


_JOBSET = "jobset.sigs.k8s.io/jobset-name"


def _pod(args: argparse.Namespace, job: Job, slice_: Slice) -> dict[str, Any]:
    selector = {
        "cloud.google.com/gke-tpu-accelerator": slice_.gke,
        "cloud.google.com/gke-tpu-topology": slice_.topology,
    }
    tolerations = [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}]
    if args.spot:
        selector["cloud.google.com/gke-spot"] = "true"
        tolerations.append(
            {
                "key": "cloud.google.com/gke-spot",
                "operator": "Equal",
                "value": "true",
                "effect": "NoSchedule",
            }
        )
    variables = with_extra(for_tpu(job.cache), job.env)
    chips = {"google.com/tpu": str(slice_.chips_per_host)}
    container = {
        "name": CONTAINER,
        "image": args.image,
        # Without a shell in between the program itself gets SIGTERM.
        "command": list(map(_literal, job.command("bert-lamb", f"{_CONFIG_FOLDER}/config.py"))),
        "env": [{"name": name, "value": _literal(value)} for name, value in variables.items()],
        "ports": [{"containerPort": port} for port in _PORTS],
        # libtpu opens the chips' device files.
        "securityContext": {"privileged": True},
        "resources": {"requests": chips, "limits": chips},
        "volumeMounts": [{"name": "config", "mountPath": _CONFIG_FOLDER, "readOnly": True}],
    }
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": args.grace_seconds,
        # The traffic between slices then takes the host's network without a detour.
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "nodeSelector": selector,
        "tolerations": tolerations,
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": f"{args.name}-config"}}],
    }
    if args.service_account:
        pod["serviceAccountName"] = args.service_account
    return pod


def _literal(text: str) -> str:
    """Keeps Kubernetes, which reads $$ as $ and replaces $(NAME), from changing a text."""
    return text.replace("$", "$$")


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as literal blocks, and nothing by reference."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _slice(args: argparse.Namespace) -> Slice:
    slice_ = find_slice(args.accelerator)
    check_slices(slice_, args.num_slices, "GKE")
    return slice_


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gke.py", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    slices = " --accelerator=v4-32 --num-slices=2"
    for verb, summary, more in (
        (image, "build and push the container image", " --image=us-docker.pkg.dev/P/R/bert-lamb"),
        (nodepools, "make a node pool for each slice", " --cluster=c --location=L" + slices),
        (apply, "start the job", slices + " --image=us-docker.pkg.dev/P/R/bert-lamb \\\n      "
         "--config=configs/bert_large_64k_32k.py --workdir=gs://my-bucket/my-run \\\n      "
         "--config.phases[0].records=gs://my-bucket/records/seq128/train \\\n      "
         "--config.phases[1].records=gs://my-bucket/records/seq512/train"),
        (status, "print the job and its pods", ""),
        (logs, "follow the log of a host", " --slice=1 --host=3"),
        (delete, "save the step, leave the run and delete the job", ""),
    ):  # fmt: skip
        name = verb.__name__
        one = add_verb(verbs, name, summary, f"python scripts/launch/gke.py {name} my-run{more}")
        add_name(one, "job")
        one.set_defaults(verb=verb)
        if verb in (image, apply):
            add_text(
                one, "--image", required=True, help="container image with bert-lamb[tpu]",
                pattern=r"[A-Za-z0-9][-A-Za-z0-9._/:@]*", expected="REGISTRY/REPOSITORY/NAME:TAG",
            )  # fmt: skip
        if verb in (nodepools, apply):
            add_slices(one)
            one.add_argument("--spot", action="store_true", help="on spot nodes")
        if verb is nodepools:
            add_text(one, "--cluster", required=True)
            add_text(one, "--location", required=True, help="region or zone of the cluster")
            one.add_argument("--node-locations", default="", metavar="ZONE", help="of the TPUs")
        if verb in (apply, status, logs, delete):
            add_text(
                one, "--namespace", default="default", pattern="[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
                expected="at most 63 of a-z, 0-9 and -",
            )  # fmt: skip
        if verb is apply:
            add_job(one)
            add_number(
                one, "--grace-seconds", least=0, default=600, metavar="S",
                help="between SIGTERM and SIGKILL, default 600; the last step is saved in it",
            )  # fmt: skip
            one.add_argument("--service-account", default="", help="Kubernetes account of the pods")
            one.add_argument("--queue", default="", help="Kueue's LocalQueue")
            one.add_argument("--xpk", action="store_true", help="start it by xpk, not kubectl")
            one.add_argument("--cluster", default="", help="for --xpk")
            one.add_argument("--zone", default="", help="for --xpk")
            one.add_argument("--project", default="", help="for --xpk")
        if verb is logs:
            add_number(one, "--slice", least=0, default=0, help="default 0")
            add_number(one, "--host", least=0, default=0, help="of the slice, default 0")
            add_number(one, "--lines", least=0, default=100, help="to begin with, default 100")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb; returns 0, or 2 for a fault that stderr explains in a line."""
    return launch("gke.py", _parser(), apply, argv)


if __name__ == "__main__":
    sys.exit(main())
