"""Options of the compiler that make it run collectives beside matrix products: all that are set.

They are given to the compiler with the step, not through the environment, so that they hold however
a job is launched. `config.parallel.overlap = False` leaves them out.

How they were chosen: small steps were compiled by libtpu 0.0.42 for absent chips, with and without
each option, and the compiled programs compared; nothing was timed.

* Gathers of weights (fsdp). On v3, v4, v5p and v6e two options cut each gather into pieces that run
  inside of matrix products; on v5e the compiler does so without being asked.
* Sums by layer (`reduce = "layer"`). The compiler joins sums of up to about a hundred megabytes
  into one, behind the backward pass; a limit keeps layers apart. On v5e all-reduces then overlap
  under two more options, as long as each is of one array; on v5p and v6e the SparseCore takes them;
  on TPU7x it does so without being asked. On v3 and v4 nothing was found: every all-reduce is
  synchronous, and the options of v5e do not fit into their memory.
* On GPUs the scheduler that hides latencies orders the program so that NCCL runs beside products.

What other projects set beside these changed no program here: fusing reduce-scatters, the
latency-hiding scheduler of TPUs, and data-parallel all-reduce optimization among them.
"""

from collections.abc import Mapping

from bert_lamb.config import ParallelConfig

Options = dict[str, bool | str]

_GATHER: Options = {
    # A gather has a start and an end with work between them,
    "xla_enable_async_all_gather": True,
    # and its pieces are sent from inside of matrix products.
    "xla_tpu_enable_async_collective_fusion_fuse_all_gather": True,
}
# No sum is joined with another; v5e heeds either limit, v5p and v6e the second.
_APART: Options = {
    "xla_jf_crs_combiner_threshold_count": "1",
    "xla_jf_crs_combiner_threshold_in_bytes": "1",
}
_FUSED: Options = {
    "xla_enable_async_all_reduce": True,
    "xla_tpu_enable_async_collective_fusion_fuse_all_reduce": True,
}
_SPARSE_CORE: Options = {
    "xla_tpu_enable_sparse_core_collective_offload_all_reduce": True,
    "xla_tpu_enable_sparse_core_collective_offload_reduce_scatter": True,
}
# By JAX's names of the devices.
GATHER: Mapping[str, Options] = dict.fromkeys(
    ("TPU v3", "TPU v4", "TPU v5", "TPU v5p", "TPU v6 lite"), _GATHER
)
REDUCE: Mapping[str, Options] = {
    "TPU v5 lite": _APART | _FUSED,
    "TPU v5": _APART | _SPARSE_CORE,
    "TPU v5p": _APART | _SPARSE_CORE,
    "TPU v6 lite": _APART | _SPARSE_CORE,
    "TPU7x": _APART,
}
GPU: Options = {"xla_gpu_enable_latency_hiding_scheduler": True}


def overlap_options(config: ParallelConfig, device_kind: str, platform: str) -> Options:
    """Returns the options for a step on devices of one kind; none for kinds not named above.

    Args:
        config: of the mesh.
        device_kind: as `jax.Device.device_kind` gives it.
        platform: as `jax.Device.platform` gives it.
    """
    if not config.overlap:
        return {}
    if platform in ("gpu", "cuda", "rocm"):
        return dict(GPU)
    options: Options = {}
    if config.fsdp != 1:
        options |= GATHER.get(device_kind, {})
    if config.reduce == "layer":
        options |= REDUCE.get(device_kind, {})
    return options
