"""The sections of a configuration as frozen dataclasses, each of which checks its own values."""

from dataclasses import dataclass, field
from typing import Literal

from bert_lamb.config.checks import require
from bert_lamb.config.optimization import OptimizerConfig, PhaseConfig, TrainingPhase


@dataclass(frozen=True)
class ModelConfig:
    """Shape and numerics of BERT (Devlin et al., 2018, section 3; sizes of Turc et al., 2019).

    Attributes:
        vocab_size: number of token ids V; 0 takes it from the records' manifest.
        num_layers: encoder layers L.
        hidden_size: width D.
        num_heads: attention heads N; the head size H is D / N.
        intermediate_size: feed-forward width F.
        max_positions: rows of the position table, the longest sequence in tokens.
        type_vocab_size: number of segment ids.
        hidden_dropout: dropout rate after embeddings, attention and feed-forward.
        attention_dropout: dropout rate on attention probabilities.
        activation: "gelu" is exact (erf), "gelu_tanh" the tanh approximation of Google's code.
        layer_norm_eps: added to the variance.
        init_stddev: standard deviation of the truncated normal initialization.
        vocab_multiple: the token table is padded inside to a multiple of this many rows, which
            suits the matrix units; padded rows never show outside of the model.
        dtype: of activations and matrix products; parameters and norms stay float32.
        scan_layers: compile one layer and scan over the stack (short compile) instead of
            unrolling it (faster step on TPU).
        remat: what the backward pass recomputes: "none", "dots" (all but matrix products) or
            "full" (each whole layer).
        dropout_rng: "threefry" depends only on (seed, step, layer, global position), so the
            pattern is the same on any mesh; "rbg" uses the hardware generator, faster on TPU,
            with a pattern tied to the mesh.
        dropout_bits: of the random integers that dropout compares: 8 rounds rates to multiples of
            1/256 and needs a quarter of the random bits of 32.
        attention: "compact" has a backward pass that keeps one number for each probability, and a
            softmax without maximum; "plain" leaves both to JAX. They agree to the rounding of
            `dtype`.
    """

    vocab_size: int = 0
    num_layers: int = 12
    hidden_size: int = 768
    num_heads: int = 12
    intermediate_size: int = 3072
    max_positions: int = 512
    type_vocab_size: int = 2
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    activation: Literal["gelu", "gelu_tanh"] = "gelu"
    layer_norm_eps: float = 1e-12
    init_stddev: float = 0.02
    vocab_multiple: int = 128
    dtype: Literal["float32", "bfloat16"] = "float32"
    scan_layers: bool = False
    remat: Literal["none", "dots", "full"] = "none"
    dropout_rng: Literal["threefry", "rbg"] = "threefry"
    dropout_bits: Literal[8, 32] = 8
    attention: Literal["plain", "compact"] = "compact"

    def __post_init__(self) -> None:
        require(self.vocab_size >= 0, "vocab_size", self.vocab_size, "0 (from the records) or more")
        for key in (
            "num_layers",
            "hidden_size",
            "num_heads",
            "intermediate_size",
            "max_positions",
            "type_vocab_size",
            "vocab_multiple",
        ):
            require(getattr(self, key) >= 1, key, getattr(self, key), "at least 1")
        require(
            self.hidden_size % self.num_heads == 0,
            "hidden_size",
            self.hidden_size,
            f"a multiple of num_heads = {self.num_heads}",
        )
        for key in ("hidden_dropout", "attention_dropout"):
            require(0 <= getattr(self, key) < 1, key, getattr(self, key), "a rate in [0, 1)")
        require(self.layer_norm_eps > 0, "layer_norm_eps", self.layer_norm_eps, "more than 0")
        require(self.init_stddev > 0, "init_stddev", self.init_stddev, "more than 0")


# Sizes of Turc et al., "Well-Read Students Learn Better" (arXiv 1908.08962), and of Devlin et al.
PRESETS: dict[str, dict[str, int]] = {
    name: {
        "num_layers": layers,
        "hidden_size": width,
        "num_heads": width // 64,
        "intermediate_size": 4 * width,
    }
    for name, (layers, width) in {
        "tiny": (2, 128),
        "mini": (4, 256),
        "small": (4, 512),
        "medium": (8, 512),
        "base": (12, 768),
        "large": (24, 1024),
    }.items()
}


@dataclass(frozen=True)
class MaskingConfig:
    """Masking for the masked language model (Devlin et al., section 3.1, task 1).

    Attributes:
        probability: share of a row's ordinary tokens that are predicted.
        mask_share: share of those shown as [MASK].
        random_share: share of those shown as a random token; the rest is left as it is.
        any_random_id: draw the random token from the whole vocabulary, special and unused ids
            included, as Google's code does; off, only ordinary tokens are drawn.
        whole_word: predict all tokens of a word or none (Google's do_whole_word_mask).
        ngram: longest span of neighbouring words that are predicted together (of tokens, without
            whole_word); its length n is drawn with a probability as 1 / n (Lan et al., "ALBERT",
            arXiv 1909.11942, section 4.1, with 3).
        static: give an example the same masks in every epoch, as records masked beforehand do; the
            copies of the build are then Google's dupe_factor.
    """

    probability: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    any_random_id: bool = False
    whole_word: bool = False
    ngram: int = 1
    static: bool = False

    def __post_init__(self) -> None:
        require(0 < self.probability < 1, "probability", self.probability, "a share in (0, 1)")
        for key in ("mask_share", "random_share"):
            require(0 <= getattr(self, key) <= 1, key, getattr(self, key), "a share in [0, 1]")
        require(
            self.mask_share + self.random_share <= 1,
            "mask_share",
            self.mask_share,
            f"at most 1 - random_share = {1 - self.random_share:g}",
        )
        require(1 <= self.ngram <= 16, "ngram", self.ngram, "1 (no spans) to 16 words")


@dataclass(frozen=True)
class DataConfig:
    """How records are read while pretraining.

    Attributes:
        on_damage: what to do about a record or shard that cannot be read: "stop" with its name, or
            "skip" it, which leaves its rows empty.
    """

    on_damage: str = "stop"

    def __post_init__(self) -> None:
        require(self.on_damage in ("stop", "skip"), "on_damage", self.on_damage, "stop or skip")


@dataclass(frozen=True)
class ParallelConfig:
    """How devices share the work; a run may change it whenever it restarts (docs/parallel.md).

    The devices form a mesh of four axes. Rows of a batch are split over replica, data and fsdp.

    Attributes:
        replica: copies of the model that only gradients connect, over the slow network between
            slices; -1 takes one per slice.
        data: devices that hold the same parameters; -1 takes what the other axes leave.
        fsdp: devices over which parameters and optimizer state are cut (ZeRO); -1 as above. 0 takes
            a ring of a slice's torus: the power of two near the square root of its devices.
        tensor: devices that compute one layer together; -1 as above.
        gather: when the parts of fsdp are put together: "step" once at the start of a step (sharded
            optimizer, ZeRO-1), "layer" when a layer needs them, forwards and backwards (ZeRO-3).
        reduce: when gradients are summed over devices: "step" once at the end, "layer" as soon as
            the backward pass has left a layer, so that the two overlap. With accumulation it is
            always once at the end.
        reduce_dtype: of gradients while they are summed over devices.
        overlap: ask the compiler to run collectives beside matrix products, in the way that suits
            the kind of device.
        stall_seconds: a host that gets no further for so long says which hosts wait where, and
            leaves, so that the platform restarts the job; 0 waits for ever.
    """

    replica: int = -1
    data: int = -1
    fsdp: int = 1
    tensor: int = 1
    gather: Literal["step", "layer"] = "step"
    reduce: Literal["step", "layer"] = "step"
    reduce_dtype: Literal["float32", "bfloat16"] = "float32"
    overlap: bool = True
    stall_seconds: int = 900

    def __post_init__(self) -> None:
        for key in ("replica", "data", "fsdp", "tensor"):
            value = getattr(self, key)
            ring = key == "fsdp" and value == 0
            expected = "at least 1, or -1" + ", or 0 for a ring" * (key == "fsdp")
            require(value == -1 or value >= 1 or ring, key, value, expected)
        rest = [key for key in ("data", "fsdp", "tensor") if getattr(self, key) == -1]
        for key in rest[1:]:
            require(False, key, -1, f"a number, since {rest[0]} is -1")
        require(self.stall_seconds >= 0, "stall_seconds", self.stall_seconds, "0 or more")


@dataclass(frozen=True)
class CheckpointConfig:
    """When checkpoints are saved and how many are kept.

    Attributes:
        every_steps: updates between checkpoints; one is also saved at the end of each phase.
        keep: newest checkpoints kept.
    """

    every_steps: int = 1000
    keep: int = 3

    def __post_init__(self) -> None:
        require(self.every_steps >= 1, "every_steps", self.every_steps, "at least 1")
        require(self.keep >= 1, "keep", self.keep, "at least 1")


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation on held-out records while pretraining.

    Attributes:
        every_steps: updates between evaluations; 0 evaluates only where the process starts and
            at the end of each phase.
        batch: rows per evaluation batch over all devices; the last one is padded with rows of
            weight 0.
        max_examples: evaluate on the first so many examples; 0 takes all.
    """

    every_steps: int = 0
    batch: int = 32
    max_examples: int = 0

    def __post_init__(self) -> None:
        require(self.every_steps >= 0, "every_steps", self.every_steps, "0 or more")
        require(self.batch >= 1, "batch", self.batch, "at least 1")
        require(self.max_examples >= 0, "max_examples", self.max_examples, "0 or more")


@dataclass(frozen=True)
class LoggingConfig:
    """What is written while training.

    Attributes:
        every_steps: updates between lines of metrics.jsonl and of the log.
        tensorboard: write TensorBoard event files too.
        trust_ratios: write LAMB's trust ratio of every layer's tensors into metrics.jsonl, for
            scripts/plot_trust_ratios.py.
    """

    every_steps: int = 10
    tensorboard: bool = True
    trust_ratios: bool = False

    def __post_init__(self) -> None:
        require(self.every_steps >= 1, "every_steps", self.every_steps, "at least 1")


@dataclass(frozen=True)
class RunConfig:
    """What every training run has: a model, an optimizer, phases, and how they are carried out.

    Attributes:
        seed: of all that is random.
        nonfinite_limit: updates in a row whose gradient is not finite, each skipped, after which
            the run stops.
        init_from: checkpoint folder whose weights the run starts from; "" draws them.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    phases: tuple[TrainingPhase, ...] = ()
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    seed: int = 0
    nonfinite_limit: int = 1
    init_from: str = ""

    def __post_init__(self) -> None:
        require(len(self.phases) >= 1, "phases", self.phases, "at least one phase")
        check_run(self.seed, self.nonfinite_limit)
        for i, phase in enumerate(self.phases):
            require(
                phase.seq_length <= self.model.max_positions,
                f"phases[{i}].seq_length",
                phase.seq_length,
                f"at most model.max_positions = {self.model.max_positions}",
            )
        require(
            not (self.logging.trust_ratios and self.optimizer.name == "adamw"),
            "logging.trust_ratios",
            self.logging.trust_ratios,
            "False, since adamw has no trust ratios",
        )

    @property
    def total_steps(self) -> int:
        """Optimizer updates of all phases."""
        return sum(phase.steps for phase in self.phases)


def check_run(seed: int, nonfinite_limit: int) -> None:
    """Checks the numbers of a run that stand in no section."""
    require(0 <= seed < 2**32, "seed", seed, "an integer in [0, 2**32)")
    require(nonfinite_limit >= 1, "nonfinite_limit", nonfinite_limit, "at least 1")


@dataclass(frozen=True)
class PretrainConfig(RunConfig):
    """A whole pretraining run: a `RunConfig` with its masking and records."""

    phases: tuple[PhaseConfig, ...] = ()
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    data: DataConfig = field(default_factory=DataConfig)
