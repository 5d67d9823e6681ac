"""jax.jit for tests: they compile many small programs and run each once."""

import functools

import jax

# LLVM's optimizations are most of the compile time and none of what is tested.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
