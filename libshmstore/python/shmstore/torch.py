# SPDX-License-Identifier: Apache-2.0
"""PyTorch's data sets and tensors in shared memory.

>>> import shmstore.torch as st
>>> data = st.SharedList(records)              # or share_dataset(dataset): one copy for all
>>> loader = DataLoader(data, num_workers=8)   # whatever its start method
>>> st.install()                               # tensors in torch.multiprocessing's queues
>>> weights = st.load_safetensors("model.safetensors")   # once for all processes of the host

After `install()` a tensor of 64 KiB and more that a queue hands over is writable, copy-on-write:
torch itself moves it to memory that sender and receiver write to together. Tensors that are in such
memory already (`share_memory_()`, a model's `share_memory()`) stay there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

try:
    import torch
except ImportError as error:
    raise ImportError("shmstore.torch works on PyTorch's tensors: pip install torch (SharedList "
                      "without it is in shmstore.sequences)") from error

from . import caching
from .multiprocessing import install, uninstall
from .sequences import SharedDict, SharedList

__all__ = ["SharedDict", "SharedList", "install", "load_safetensors", "share_dataset", "uninstall"]


class SharedDataset(torch.utils.data.Dataset):  # type: ignore[misc]
    """The items of a map-style data set, made once; made by `share_dataset`."""

    def __init__(self, items: SharedList) -> None:
        self.items = items

    def __getitem__(self, i: int) -> object:
        return self.items[i]

    def __len__(self) -> int:
        return len(self.items)


def share_dataset(dataset: SharedList | torch.utils.data.Dataset,
                  partition: str | None = None) -> SharedDataset:
    """Asks the data set for each of its items once, and has them in shared
    memory, as `SharedList` has."""

    def items() -> Iterator[object]:
        for i in range(len(dataset)):
            yield dataset[i]

    return SharedDataset(SharedList(items(), partition))


_KINDS = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32,
    "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
    **{name: kind for name, word in (("F8_E4M3", "float8_e4m3fn"), ("F8_E5M2", "float8_e5m2"))
       if (kind := getattr(torch, word, None))},
}


def load_safetensors(path: str | os.PathLike[str],
                     partition: str | None = None) -> dict[str, torch.Tensor]:
    """The tensors of a file, as safetensors.torch.load_file gives them: read once for the host,
    mapped copy-on-write by each process.

    The file's size and time are the version: a file that is written anew is read anew. They stay
    until `Cache("safetensors").clear()`. Raises OSError, ValueError (no such file format).
    """
    path = os.path.realpath(path)
    cache = caching.Cache("safetensors", partition=partition)
    info = os.stat(path)
    raw = cache.get_or_create(path, lambda: _read(path), version=(info.st_size, info.st_mtime_ns))
    n = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or n > len(raw) - 8:
        raise ValueError(f"{path} is no safetensors file: its header would have {n} bytes")
    tensors = {}
    for name, about in json.loads(bytes(raw[8 : 8 + n])).items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        kind = _KINDS.get(about["dtype"])
        if kind is None:
            raise ValueError(f"{path}: tensor {name!r} is of type {about['dtype']}, which is not "
                             f"known here")
        part = raw[8 + n + begin : 8 + n + end]
        flat = torch.frombuffer(part, dtype=kind) if len(part) else torch.empty(0, dtype=kind)
        tensors[name] = flat.reshape(about["shape"])
    return tensors


def _read(path: str) -> memoryview:
    with open(path, "rb") as file:
        return memoryview(bytearray(file.read()))
