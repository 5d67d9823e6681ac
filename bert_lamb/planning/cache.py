"""Readings of compiled steps kept in files, so that a plan compiles each step once.

A file is named after all that the reading depends on: the lowered program, the compiler's options
and build, the devices, and the code that read it. Of the program itself nothing is kept.
"""

import hashlib
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from bert_lamb.planning.reading import StepReading, TooLargeError, from_json, to_json

_READERS = (
    "chips", "collectives", "hlo", "origins", "parts", "products", "reading", "schedule", "torus"
)  # fmt: skip


def default_folder() -> Path:
    """Returns the user's folder for caches: XDG_CACHE_HOME, or what the system has for it."""
    given = os.environ.get("XDG_CACHE_HOME")
    if given:
        base = Path(given)
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", str(Path.home() / "AppData" / "Local")))
    else:
        base = Path.home() / ".cache"
    return base / "bert-lamb" / "plans"


def key_of(
    lowered: jax.stages.Lowered, options: Mapping[str, Any], devices: Sequence[jax.Device]
) -> str:
    """Returns the name of a reading.

    Args:
        lowered: the step.
        options: of the compiler.
        devices: in the order of the mesh.
    """
    digest = hashlib.sha256()
    facts = {
        "options": sorted((key, repr(value)) for key, value in options.items()),
        "devices": [(device.id, getattr(device, "coords", None)) for device in devices],
        "kind": devices[0].device_kind,
        "compiler": devices[0].client.platform_version,
        "jax": jax.__version__,
    }
    digest.update(json.dumps(facts).encode())
    digest.update(lowered.as_text().encode())
    for name in _READERS:
        file = importlib.import_module(f"bert_lamb.planning.{name}").__file__
        digest.update(Path(str(file)).read_bytes())
    return digest.hexdigest()[:32]


def load(folder: Path, key: str) -> StepReading | TooLargeError | None:
    """Returns what is kept under a name; None if nothing is, or nothing that can be read."""
    try:
        values = json.loads((folder / f"{key}.json").read_text(encoding="utf-8"))
        if "too_large" in values:
            return TooLargeError(**values["too_large"])
        return from_json(values["reading"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(folder: Path, key: str, found: StepReading | TooLargeError) -> None:
    """Keeps a reading, or that there was none since the program is too large.

    Raises:
        OSError: if the folder cannot be written.
    """
    values: dict[str, Any]
    if isinstance(found, TooLargeError):
        values = {"too_large": {"used": found.used, "capacity": found.capacity}}
    else:
        values = {"reading": to_json(found)}
    folder.mkdir(parents=True, exist_ok=True)
    # Another plan may write the same file: only whole ones get their name.
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".tmp", delete=False,
                                     encoding="utf-8") as file:  # fmt: skip
        json.dump(values, file)
    os.replace(file.name, folder / f"{key}.json")
