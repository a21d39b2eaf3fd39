# SPDX-License-Identifier: Apache-2.0
"""Views that are pinned for a GPU, by a stand-in for the CUDA runtime."""

import ctypes
import errno
import gc
import subprocess

import pytest

import shmstore
from shmstore import pinning

STAND_IN = r"""
#include <stddef.h>
unsigned char *at; size_t size; unsigned flags; int n, sum;
int cudaHostRegister(void *p, size_t s, unsigned f)
{
	if (at)
		return 712;
	at = p, size = s, flags = f, n++, sum = 0;
	for (size_t i = 0; i < s; i++)
		sum += at[i];
	return 0;
}
int cudaHostUnregister(void *p)
{
	if (p != at)
		return 713;
	for (size_t i = 0; i < size; i++) /* it is there yet */
		sum -= at[i];
	at = NULL;
	return 0;
}
"""


@pytest.fixture
def cuda(tmp_path, monkeypatch):
    path = str(tmp_path / "libcudart-stand-in.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=STAND_IN.encode(),
                   check=True)
    monkeypatch.setenv("SHMSTORE_CUDART", path)
    pinning._runtime.cache_clear()
    yield ctypes.CDLL(path)
    pinning._runtime.cache_clear()


def number(cuda, name, kind=ctypes.c_int):
    return kind.in_dll(cuda, name).value


@pytest.mark.parametrize("pack_max", [0, 1 << 20])
@pytest.mark.parametrize("cow", [False, True])
def test_all_buffers_are_one_range(partition, cuda, pack_max, cow):
    with partition.open("pinned", pack_max=pack_max) as store:
        store.put_buffers("k", b"header", [b"", b"\1" * 100, b"", b"\2" * 5000])
        with shmstore.pinned(store.view("k", cow=cow)) as view:
            store.delete("k")
            gc.collect()
            assert number(cuda, "size", ctypes.c_size_t) == 128 + 5000
            assert number(cuda, "sum") == 100 + 2 * 5000
            assert number(cuda, "flags") == (0 if cow else 8)
            with pytest.raises(shmstore.Error, match="712"), shmstore.pinned(view):
                pass
        del view
        assert number(cuda, "sum") == 0 and number(cuda, "at", ctypes.c_size_t) == 0


def test_an_error_in_the_block_unpins(store, cuda):
    store.put_buffers("k", b"", [b"x" * 5000])
    with pytest.raises(KeyError), shmstore.pinned(store.view("k")):
        raise KeyError
    assert number(cuda, "at", ctypes.c_size_t) == 0


def test_nothing_to_pin(store, cuda):
    store.put_buffers("k", b"header", [b""])
    with shmstore.pinned(store.view("k")):
        assert number(cuda, "n") == 0


def test_without_cuda(store, monkeypatch):
    monkeypatch.setenv("SHMSTORE_CUDART", "/nonexistent/libcudart.so")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: (_ for _ in ()).throw(OSError(name)))
    pinning._runtime.cache_clear()
    store.put_buffers("k", b"", [b"x" * 5000])
    with pytest.raises(shmstore.Error, match="SHMSTORE_CUDART") as raised, shmstore.pinned(
            store.view("k")):
        pass
    assert raised.value.errno == errno.ENOSYS
