r"""A pretraining job on GPU nodes under Slurm.

    python scripts/launch/slurm.py submit NAME --nodes=2 --gpus-per-node=8 \
        --config=FILE --workdir=DIR
    python scripts/launch/slurm.py status NAME
    python scripts/launch/slurm.py logs   NAME
    python scripts/launch/slurm.py stop   NAME

Run it on the login node, in a checkout and an environment (bert-lamb[cuda]) on a disk that the
nodes share. Every verb takes --dry-run, which prints the commands and files.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from environment import for_gpu, with_extra
from job import Job, add_job, check_shared, exports, load_job
from options import add_name, add_number, add_text, launch
from running import FINAL, MADE, LaunchError, Runner, add_verb

# After the first process of a step has left, Slurm ends the others this many seconds later.
_LEAVE_SECONDS = 300
# The forms that sbatch takes, which also has MINUTES:SECONDS and DAYS-HOURS.
_TIME = r"[0-9]+(:[0-9]+){0,2}|[0-9]+-[0-9]+(:[0-9]+){0,2}|(?i:unlimited|infinite)"


def submit(args: argparse.Namespace, runner: Runner) -> None:
    """Queues the job."""
    check_shared(args.workdir)
    # Whether a node is a slice of its own is for the GPU's runtime to say.
    job = load_job(args, args.nodes * args.gpus_per_node, [1, args.nodes])
    folder = MADE / args.name
    # A copy: a job that starts again in three days must find the config it began with.
    runner.write(folder / "config.py", job.config)
    runner.write(folder / "job.sbatch", batch_script(args, job, folder))
    runner.run(["sbatch", str(folder / "job.sbatch")])


def status(args: argparse.Namespace, runner: Runner) -> None:
    """Prints the state of the job."""
    runner.run(["squeue", "--me", f"--name={args.name}"])


def logs(args: argparse.Namespace, runner: Runner) -> None:
    """Follows the log."""
    runner.run(["tail", "-n", str(args.lines), "-F", str(MADE / args.name / "run.log")])


def stop(args: argparse.Namespace, runner: Runner) -> None:
    """Has the run save its step and leave (SIGTERM), for good."""
    ids = runner.read(["squeue", "--me", "--noheader", "--format=%A", f"--name={args.name}"])
    found = ["JOBID"] if runner.dry else ids.split()
    if not found:
        raise LaunchError(f"{args.name}: no such job of yours in the queue")
    for number in found:
        runner.run(["scontrol", "update", f"JobId={number}", "Requeue=0"])
        runner.run(["scancel", "--signal=TERM", number])


def batch_script(args: argparse.Namespace, job: Job, folder: Path) -> str:
    """Returns the sbatch file.

    One process for each GPU, since that is what JAX makes of Slurm's variables: process
    SLURM_PROCID of SLURM_NTASKS takes the GPU with the number SLURM_LOCALID. So every process has
    to see all GPUs of its node (--gpu-bind=none, no --gpus-per-task).

    Before the time limit and on preemption Slurm sends SIGTERM to the processes, all of which save
    the same step and leave; the script then queues the job again. With Requeue=0, which `stop`
    sets, Slurm refuses that, and the job ends.

    References:
        sbatch(1), srun(1), scontrol(1); jax.distributed.initialize.
    """
    variables = with_extra(for_gpu(job.cache), job.env)
    options = [
        f"--job-name={args.name}",
        f"--nodes={args.nodes}",
        f"--ntasks-per-node={args.gpus_per_node}",
        f"--gpus-per-node={args.gpus_per_node}",
        *([f"--cpus-per-task={args.cpus_per_task}"] if args.cpus_per_task else []),
        f"--time={args.time}",
        *([f"--partition={args.partition}"] if args.partition else []),
        *([f"--account={args.account}"] if args.account else []),
        "--exclusive",
        # To the processes, not to this script (that would be B:TERM).
        f"--signal=TERM@{args.grace_seconds}",
        "--requeue",
        "--open-mode=append",
        f"--output={folder / 'run.log'}",
        *args.sbatch,
    ]
    srun = [
        "srun",
        "--gpu-bind=none",
        # One process may leave before another has saved; a lost one is left to --wait.
        "--kill-on-bad-exit=0",
        f"--wait={_LEAVE_SECONDS}",
        *([f"--cpus-per-task={args.cpus_per_task}"] if args.cpus_per_task else []),
    ]
    program = job.command(str(Path(args.venv) / "bin" / "bert-lamb"), str(folder / "config.py"))
    directives = "\n".join(f"#SBATCH {shlex.quote(option)}" for option in options)
    return f"""#!/usr/bin/env bash
{directives}
# Made by scripts/launch/slurm.py.
set -uo pipefail
# Outlive a SIGTERM to the whole job, to queue it again after the processes have saved.
trap : TERM
{exports(variables)}

{shlex.join(srun)} \\
  {shlex.join(program)}
status=$?
echo "$(date -u +%FT%TZ) job $SLURM_JOB_ID: status $status, ${{SLURM_RESTART_COUNT:-0}} restarts"
# Done, or a fault that no repetition mends.
case $status in 0 | {" | ".join(map(str, FINAL))}) exit "$status" ;; esac
if [ "${{SLURM_RESTART_COUNT:-0}}" -ge {job.max_restarts} ]; then
  echo "gave up; read the lines above"
  exit "$status"
fi
scontrol requeue "$SLURM_JOB_ID"
exit "$status"
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slurm.py", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for verb, summary, more in (
        (submit, "queue the job", " --nodes=2 --gpus-per-node=8 --time=2-00:00:00 \\\n      "
         "--config=configs/bert_large_64k_32k.py --workdir=/shared/runs/my-run \\\n      "
         "--config.phases[0].records=/shared/records/seq128/train \\\n      "
         "--config.phases[1].records=/shared/records/seq512/train"),
        (status, "print the state of the job", ""),
        (logs, "follow the log", ""),
        (stop, "save the step and leave the run, for good", ""),
    ):  # fmt: skip
        name = verb.__name__
        one = add_verb(verbs, name, summary, f"python scripts/launch/slurm.py {name} my-run{more}")
        add_name(one, "job")
        one.set_defaults(verb=verb)
        if verb is logs:
            add_number(one, "--lines", least=0, default=100, help="to begin with, default 100")
        if verb is submit:
            add_job(one)
            add_number(one, "--nodes", least=1, required=True, metavar="N")
            add_number(one, "--gpus-per-node", least=1, required=True, metavar="N")
            add_number(one, "--cpus-per-task", least=1, default=0, metavar="N", help="for a GPU")
            add_text(
                one, "--time", default="1-00:00:00", help="limit, default a day", pattern=_TIME,
                expected="MINUTES, HOURS:MINUTES:SECONDS, DAYS-HOURS:MINUTES:SECONDS or UNLIMITED",
            )  # fmt: skip
            one.add_argument("--partition", default="")
            one.add_argument("--account", default="")
            add_number(
                one, "--grace-seconds", least=1, most=65_535, default=300, metavar="S",
                help="SIGTERM comes this long before the time limit, default 300",
            )  # fmt: skip
            add_text(
                one, "--venv", default=sys.prefix, metavar="DIR",
                help="environment with bert-lamb[cuda] on the shared disk, default this one",
            )  # fmt: skip
            add_text(
                one, "--sbatch", action="append", default=[], metavar="OPTION",
                pattern=r"--?[A-Za-z].*", expected="an option of sbatch, such as --qos=high",
                help="another line of the sbatch file, may be repeated: --sbatch=--qos=high",
            )  # fmt: skip
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb; returns 0, or 2 for a fault that stderr explains in a line."""
    return launch("slurm.py", _parser(), submit, argv)


if __name__ == "__main__":
    sys.exit(main())
