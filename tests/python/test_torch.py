# SPDX-License-Identifier: Apache-2.0
"""shmstore.torch: data sets, tensors in queues, safetensors. Skipped where
PyTorch is not installed."""

import multiprocessing

import doorjobs
import numpy
import pytest

import shmstore

torch = pytest.importorskip("torch")
import shmstore.torch as st  # noqa: E402


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, i):
        return torch.full((3000,), float(i)), i


@pytest.fixture
def path(place, monkeypatch):
    monkeypatch.setenv("SHMSTORE_PARTITION", place.path)
    yield place.path
    st.uninstall()
    doorjobs.leave(place.path)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("installed", [False, True])
def test_workers_of_a_loader_share_a_data_set(path, method, installed):
    if installed:
        st.install(partition=path)
    data = st.share_dataset(Squares(), path)
    loader = torch.utils.data.DataLoader(data, batch_size=50, num_workers=2,
                                         multiprocessing_context=method)
    batches = list(loader)
    assert [len(x) for x, _ in batches] == [50] * 4
    assert all((x == i[:, None]).all() for x, i in batches)


def test_tensors_in_queues(path):
    st.install(partition=path)
    queue = multiprocessing.get_context("spawn").Queue()
    queue.put({"t": torch.arange(100_000.0), "grad": torch.ones(5, requires_grad=True)})
    found = queue.get(timeout=60)
    assert torch.equal(found["t"], torch.arange(100_000.0)) and found["grad"].requires_grad
    found["t"][0] = 5


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_shared_tensors_stay_shared(path, method):
    """Hogwild's training does this, as does all that writes to `share_memory_()`."""
    st.install(partition=path)
    torch.set_num_threads(1)  # a forked child has none of OpenMP's threads
    context = torch.multiprocessing.get_context(method)
    tensor, model, queue = torch.zeros(100_000).share_memory_(), torch.nn.BatchNorm1d(
        50_000).share_memory(), context.Queue()
    process = context.Process(target=doorjobs.adds_to, args=(tensor, model, queue))
    process.start()
    queue.put(tensor)
    process.join()
    assert (process.exitcode == 0 and tensor[-1] == 2 and model.running_mean[-1] == 1 and
            model.weight.data[-1] == 2)


def test_safetensors(path, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    tensors = {"a": torch.arange(100_000.0).reshape(100, 1000),
               "b": torch.ones(3, dtype=torch.bfloat16), "none": torch.zeros(0, 4),
               "scalar": torch.tensor(5), "flags": torch.tensor([True, False])}
    file = tmp_path / "x.safetensors"
    safetensors.save_file(tensors, file, metadata={"k": "v"})
    found = st.load_safetensors(file, path)
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[k], tensors[k]) and found[k].dtype == tensors[k].dtype
               for k in tensors)
    found["a"][0, 0] = 9
    assert st.load_safetensors(file, path)["a"][0, 0] == 0
    safetensors.save_file({"a": torch.ones(7)}, file)
    assert torch.equal(st.load_safetensors(file, path)["a"], torch.ones(7))
    assert len(shmstore.Cache("safetensors", partition=path)) == 1
    file.write_bytes(b"no such thing")
    with pytest.raises(ValueError, match="no safetensors file"):
        st.load_safetensors(file, path)


def test_numpy_records(path):
    data = st.SharedList([numpy.full(9000, i, numpy.float32) for i in range(40)], path)
    for i, x in enumerate(torch.utils.data.DataLoader(data, batch_size=None, num_workers=2,
                                                      multiprocessing_context="spawn")):
        assert x.dtype == torch.float32 and (x == i).all()
