r"""A pretraining job on Cloud TPU VMs, from the request to the deletion.

    python scripts/launch/tpu_vm.py create NAME --zone=Z --accelerator=v4-32
    python scripts/launch/tpu_vm.py wait   NAME --zone=Z
    python scripts/launch/tpu_vm.py setup  NAME --zone=Z
    python scripts/launch/tpu_vm.py run    NAME --zone=Z --accelerator=v4-32 \
        --config=FILE --workdir=gs://BUCKET/RUN
    python scripts/launch/tpu_vm.py logs   NAME --zone=Z
    python scripts/launch/tpu_vm.py stop   NAME --zone=Z
    python scripts/launch/tpu_vm.py delete NAME --zone=Z

NAME is a queued resource and its nodes. Every verb takes --dry-run, which prints the commands and
files; docs/operations.md walks through a whole job. No other program than gcloud is needed.
"""

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from accelerators import Slice, check_slices, find_slice
from environment import for_tpu, with_extra
from job import Job, add_job, check_bucket, exports, load_job
from options import add_name, add_number, add_slices, add_text, launch
from running import FINAL, MADE, ROOT, LaunchError, Runner, add_verb

import bert_lamb

HERE = Path(__file__).resolve().parent
# The folder on the workers, in the home of the user who logs in.
REMOTE = "bert-lamb"
WHEEL = f"bert_lamb-{bert_lamb.__version__}-py3-none-any.whl"
# Between two tries of keep_running.sh: the other hosts need some seconds to notice and leave.
PAUSE_SECONDS = 20
POLL_SECONDS = 30
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_GONE = ("FAILED", "SUSPENDING", "SUSPENDED", "DELETING")


def create(args: argparse.Namespace, runner: Runner) -> None:
    """Asks for the slices; returns as soon as the request stands in the queue."""
    slice_ = _slice(args)
    command = [
        *_gcloud("create", args),
        f"--accelerator-type={slice_.name}",
        f"--runtime-version={args.runtime_version or slice_.generation.runtime}",
        f"--scopes={_SCOPE}",
    ]
    if args.num_slices == 1:
        command.append(f"--node-id={args.name}")
    else:
        command += [f"--node-count={args.num_slices}", f"--node-prefix={args.name}"]
    for option in ("service_account", "network", "subnetwork"):
        if getattr(args, option):
            command.append(f"--{option.replace('_', '-')}={getattr(args, option)}")
    command += ["--spot"] * args.spot + ["--reserved"] * args.reserved
    chips = slice_.chips * args.num_slices
    print(f"# {args.num_slices} x {slice_.name}: {chips} chips, topology {slice_.topology}, "
          f"{slice_.hosts * args.num_slices} hosts")  # fmt: skip
    runner.run(command)


def status(args: argparse.Namespace, runner: Runner) -> None:
    """Prints the state of the request."""
    print(runner.read(_describe(args)))


def wait(args: argparse.Namespace, runner: Runner) -> None:
    """Returns when the slices are there.

    Raises:
        LaunchError: if the request has failed or was taken back.
    """
    while True:
        state = runner.read(_describe(args))
        print(state, flush=True)
        if runner.dry or state == "ACTIVE":
            return
        if state in _GONE:
            raise LaunchError(
                f"{args.name} is {state}; see `gcloud compute tpus queued-resources describe "
                f"{args.name} --zone={args.zone}`, then delete it and create it again"
            )
        time.sleep(POLL_SECONDS)


def setup(args: argparse.Namespace, runner: Runner) -> None:
    """Builds the wheel and installs it on all workers."""
    wheel = Path(args.wheel) if args.wheel else MADE / WHEEL
    if args.wheel and wheel.suffix != ".whl":
        raise LaunchError(f"--wheel={wheel}: expected a .whl file; leave it out to build one")
    if args.wheel and not wheel.is_file():
        raise LaunchError(f"--wheel={wheel}: no such file; leave it out to build one")
    if not args.wheel:
        runner.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps",
                    f"--wheel-dir={MADE}", str(ROOT)])  # fmt: skip
    runner.run(_on_workers(args, f"mkdir -p {REMOTE}"))
    runner.run(_to_workers(args, wheel, HERE / "install.sh"))
    runner.run(_on_workers(args, f"bash {REMOTE}/install.sh {shlex.quote(wheel.name)}"))


def run(args: argparse.Namespace, runner: Runner) -> None:
    """Starts the job on all workers and leaves it running there."""
    slice_ = _slice(args)
    check_bucket(args.workdir, slice_.hosts * args.num_slices)
    job = load_job(args, slice_.devices * args.num_slices, [args.num_slices])
    start = MADE / args.name / "start.sh"
    config = MADE / args.name / "config.py"
    runner.write(config, job.config)
    runner.write(start, start_script(job, slice_))
    runner.run(_on_workers(args, f"mkdir -p {REMOTE}"))
    runner.run(_to_workers(args, config, start, HERE / "keep_running.sh"))
    runner.run(_on_workers(args, f"bash {REMOTE}/start.sh"))


def logs(args: argparse.Namespace, runner: Runner) -> None:
    """Follows the log of one worker."""
    command = f"tail -n {args.lines} -F {REMOTE}/run.log"
    runner.run(_on_workers(args, command, node=str(args.node), worker=str(args.worker)))


def stop(args: argparse.Namespace, runner: Runner) -> None:
    """Has the run save its step and leave; returns when all workers have."""
    command = (
        f"cd {REMOTE} && pid=$(cat run.pid) && kill -TERM $pid && "
        f"timeout {args.grace_seconds} tail --pid=$pid -f /dev/null && tail -n 3 run.log"
    )
    runner.run(_on_workers(args, command))


def delete(args: argparse.Namespace, runner: Runner) -> None:
    """Deletes the slices and the request; what is in the bucket stays."""
    runner.run([*_gcloud("delete", args), "--force", "--quiet"])


def start_script(job: Job, slice_: Slice) -> str:
    """Returns the script that starts the job on one worker, in the background.

    Args:
        job: what to run; the config lies as config.py beside the script.
        slice_: the accelerator, for its compiler flags.
    """
    variables = with_extra(for_tpu(job.cache), job.env)
    command = shlex.join(job.command("venv/bin/bert-lamb", "config.py"))
    final = shlex.quote(" ".join(map(str, FINAL)))
    return f"""#!/usr/bin/env bash
# Made by scripts/launch/tpu_vm.py: starts the run on this worker and leaves it running.
set -euo pipefail
cd "$(dirname "$0")"
if [ -e run.pid ] && kill -0 "$(cat run.pid)" 2>/dev/null; then
  echo "start.sh: process $(cat run.pid) is running; stop it first" >&2
  exit 1
fi
{exports(variables)}
nohup setsid bash keep_running.sh run.pid {final} {job.max_restarts} {PAUSE_SECONDS} \\
  {command} \\
  >>run.log 2>&1 </dev/null &
"""


def _slice(args: argparse.Namespace) -> Slice:
    slice_ = find_slice(args.accelerator)
    check_slices(slice_, args.num_slices, "Cloud TPU VMs")
    if slice_.generation.runtime is None:
        raise LaunchError(
            f"--accelerator={args.accelerator}: there are no Cloud TPU VMs of this kind; use gke.py"
        )
    return slice_


def _gcloud(verb: str, args: argparse.Namespace) -> list[str]:
    where = [f"--zone={args.zone}", *([f"--project={args.project}"] if args.project else [])]
    return ["gcloud", "compute", "tpus", "queued-resources", verb, args.name, *where]


def _describe(args: argparse.Namespace) -> list[str]:
    return [*_gcloud("describe", args), "--format=value(state.state)"]


def _on_workers(
    args: argparse.Namespace, command: str, node: str = "all", worker: str = "all"
) -> list[str]:
    return [*_gcloud("ssh", args), f"--node={node}", f"--worker={worker}", f"--command={command}"]


def _to_workers(args: argparse.Namespace, *files: Path) -> list[str]:
    head, options = _gcloud("scp", args)[:5], _gcloud("scp", args)[6:]
    return [
        *head, *map(str, files), f"{args.name}:{REMOTE}/", *options, "--node=all", "--worker=all",
    ]  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tpu_vm.py", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    tail = "python scripts/launch/tpu_vm.py {} my-run --zone=us-central2-b{}"
    slices = " --accelerator=v4-32"
    for verb, summary, more in (
        (create, "ask for slices (a queued resource)", slices + " --spot"),
        (status, "print the state of the request", ""),
        (wait, "wait until the slices are there", ""),
        (setup, "install this checkout on all workers", ""),
        (run, "start the job on all workers", slices + " \\\n      --config=configs/"
         "bert_large_64k_32k.py --workdir=gs://my-bucket/my-run \\\n      "
         "--config.phases[0].records=gs://my-bucket/records/seq128/train \\\n      "
         "--config.phases[1].records=gs://my-bucket/records/seq512/train"),
        (logs, "follow the log of a worker", " --worker=3"),
        (stop, "save the step and leave the run (SIGTERM)", ""),
        (delete, "delete the slices", ""),
    ):  # fmt: skip
        name = verb.__name__
        one = add_verb(verbs, name, summary, tail.format(name, more))
        add_name(one, "queued resource")
        add_text(one, "--zone", required=True)
        one.add_argument("--project", default="", help="default: the project of gcloud")
        one.set_defaults(verb=verb)
        if verb in (create, run):
            add_slices(one)
        if verb is create:
            one.add_argument("--runtime-version", default="", help="default: Google's for the type")
            one.add_argument("--service-account", default="", metavar="EMAIL")
            one.add_argument("--network", default="")
            one.add_argument("--subnetwork", default="")
            tier = one.add_mutually_exclusive_group()
            tier.add_argument("--spot", action="store_true", help="cheaper; may be taken away")
            tier.add_argument("--reserved", action="store_true", help="out of a reservation")
        if verb is setup:
            one.add_argument("--wheel", default="", metavar="FILE", help="default: build it")
        if verb is run:
            add_job(one)
        if verb is logs:
            add_number(one, "--node", least=0, default=0, help="number of the slice, default 0")
            add_number(one, "--worker", least=0, default=0, help="host of the slice, default 0")
            add_number(one, "--lines", least=0, default=100, help="to begin with, default 100")
        if verb is stop:
            add_number(
                one, "--grace-seconds", least=1, default=900, metavar="S",
                help="to wait for the save, default 900",
            )  # fmt: skip
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb; returns 0, or 2 for a fault that stderr explains in a line."""
    return launch("tpu_vm.py", _parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
