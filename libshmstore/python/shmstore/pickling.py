# SPDX-License-Identifier: Apache-2.0
"""Values as a pickle and its buffers, and back.

Pickle protocol 5 hands out the memory of large values. This module adds the cases that it misses:

- arrays that are neither C- nor F-contiguous would be copied into the pickle: they are made
  contiguous first, wherever in the value they are;
- a read-only buffer would be marked so in the pickle. Here it is not: whether a value read back is
  writable is the reader's choice (`cow`), and the pickle of a value read from a view is, byte for
  byte, the one it was read from, by which the library sees that nothing needs to be copied;
- subclasses of NumPy's array (memmap, recarray, matrix, masked arrays) would be
  copied into the pickle, too;
- frames of polars and tensors of torch would be; of a part of an Arrow table all of it
  would be handed out (foreign.py);
- memoryview has no pickle at all, array.array, and bytes and bytearray as a whole value,
  have one with a copy inside.

The pickle is an ordinary one: `pickle.loads(header, buffers=buffers)` reads it, with or
without this package's help.
"""

from __future__ import annotations

import array
import errno
import importlib
import io
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from os import geteuid
from typing import TYPE_CHECKING, Any

from . import foreign
from ._shmstore import View, _unlocked
from .errors import Error
from .foreign import OnDevice, on_device

if TYPE_CHECKING:
    import numpy

    from ._shmstore import Buffer
    from .foreign import Reducer

_Shown = type(_unlocked(b""))
_BUFFERS_MAX = 1 << 20  # SHMSTORE_BUFFERS_MAX: further buffers go into the pickle
_PACKAGE = __name__.partition(".")[0]  # the memory of views is of a type of it
_WHOLE_MIN = 512  # bytes; shorter bytes and bytearray values stay in the pickle


def dumps(
    obj: object, by_value: bool = False, as_is: bool = False, strided: bool = False,
    seen: set[type] | None = None, least: int = 0,
) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """The value as (header, buffers) for `Store.put_buffers`; the buffers are obj's own
    memory, nothing of it is copied.

    Values that plain pickle refuses (lambdas, local classes) are left to cloudpickle, if that is
    installed. by_value also hands it what was defined in `__main__`, so that a process with
    another main program can read it. as_is: arrays that are read-only stay so for every reader,
    unless they are that only because they lie in a view; those that show the same memory more
    than once (broadcast ones, sliding windows) do so when they are read back, where else they
    are written out. strided: arrays in views are not made contiguous, the memory is handed out
    over which they stretch. seen: gets the types of all objects whose pickle is their own
    affair: not pickle's, nor ours.
    least: bytes of a buffer; smaller ones stay in the header.

    Do not change obj's arrays between dumps and put_buffers: the buffers show what is there then.
    """
    try:
        header, buffers = _dump(_Pickler, obj, _Origin(as_is, strided, seen), least)
    except (pickle.PicklingError, AttributeError, TypeError):
        cloud = _cloud_pickler()
        if cloud is None:
            raise
        if seen is not None:
            seen.add(cloud)  # type: ignore[arg-type]
        return _dump(cloud, obj, _Origin(as_is, strided, seen), least)
    if by_value and b"__main__" in header:
        cloud = _cloud_pickler()
        if cloud is not None:
            return _dump(cloud, obj, _Origin(as_is, strided, seen), least)
    return header, buffers


def loads(view: View, any_user: bool = False) -> Any:
    """The value that a view holds; its arrays lie in the mapped memory and keep it alive.

    A pickle runs what it says, as the reader: one that another user put is refused (Error EPERM),
    unless any_user says that this user is trusted with all that one may do oneself. `View.header`
    and `View.buffers` are data, whoever's they are.
    """
    if not any_user and view.uid != geteuid():
        raise Error(
            errno.EPERM,
            f"object {view.key!r} is user {view.uid}'s: reading its value would run that user's "
            f"pickle as user {geteuid()}; take "
            "view.buffers, or say any_user=True where that user is trusted",
        )
    header = view.header_view
    if not header.nbytes:
        raise pickle.UnpicklingError(f"object {view.key!r} is no pickle: its header is empty; read "
                                     f"it with Store.view()")
    try:
        return pickle.loads(header, buffers=view.buffers)
    except AttributeError as e:
        if "__main__" not in str(e):
            raise
        raise AttributeError(
            f"object {view.key!r}: {e}: its class or function was defined in the notebook or main "
            f"program that put it. Put it with "
            "store.put(key, value, by_value=True), or move the definition into a module that both "
            "import"
        ) from None


class _Whole:
    """Stands for a bytes or bytearray that is the whole value: pickle never asks
    about these types themselves."""

    __slots__ = ("value",)

    def __init__(self, value: bytes | bytearray) -> None:
        self.value = value


class _Origin:
    """How a value is pickled: the arguments of `dumps`."""

    def __init__(self, as_is: bool = False, strided: bool = False,
                 seen: set[type] | None = None) -> None:
        self.as_is, self.strided, self.seen = as_is, strided, seen

    def reduce(self, obj: object) -> object:
        """As reducer_override."""
        reduce = reducers.get(type(obj))
        if reduce is None and self.as_is and on_device(obj):
            raise OnDevice(f"a {type(obj).__name__} lies in a device's memory")
        reduced = NotImplemented if reduce is None else reduce(obj, self)
        if reduced is NotImplemented and self.seen is not None:
            self.seen.add(type(obj))
        return reduced

    def unlocked(self, obj: Buffer) -> pickle.PickleBuffer:
        return pickle.PickleBuffer(_unlocked(obj))


def _dump(
    pickler: Callable[..., pickle.Pickler], obj: object, origin: _Origin, least: int,
) -> tuple[bytes, list[pickle.PickleBuffer]]:
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    pickler(file, origin, collector(buffers, least)).dump(prepared(obj))
    return file.getvalue(), buffers


def collector(buffers: list[pickle.PickleBuffer],
              least: int) -> Callable[[pickle.PickleBuffer], bool]:
    """A buffer_callback that appends to buffers; those of less than so many
    bytes stay in the pickle."""

    def collect(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if len(buffers) >= _BUFFERS_MAX or raw.nbytes < least:
            return True
        shown = raw.obj
        if type(shown) is _Shown and (unlocked := getattr(shown, "unlocked")) is not None:
            buffer = pickle.PickleBuffer(unlocked)
        buffers.append(buffer)
        return False

    return collect


def prepared(obj: Any) -> object:
    """The value to pickle in obj's place, after entering the libraries that it may be of."""
    if not _numpy and "numpy" in sys.modules:  # before it was imported no value has an array
        _enter_numpy()
    if not sys.modules.keys().isdisjoint(_awaited):  # by the shorter one, of four names
        _enter_foreign()
    return _Whole(obj) if type(obj) in (bytes, bytearray) and len(obj) >= _WHOLE_MIN else obj


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, origin: _Origin,
                 collect: Callable[[pickle.PickleBuffer], bool]) -> None:
        super().__init__(file, protocol=5, buffer_callback=collect)
        self._origin = origin

    def reducer_override(self, obj: object) -> Any:
        return self._origin.reduce(obj)


def _cloud_pickler() -> Callable[..., pickle.Pickler] | None:
    """The same over cloudpickle, None where it is not installed."""
    try:
        import cloudpickle
    except ImportError:
        return None
    global _cloud
    if _cloud is None:

        class CloudPickler(cloudpickle.CloudPickler):  # type: ignore[misc]
            def __init__(self, file: io.BytesIO, origin: _Origin,
                         collect: Callable[[pickle.PickleBuffer], bool]) -> None:
                super().__init__(file, protocol=5, buffer_callback=collect)
                self._origin = origin

            def reducer_override(self, obj: object) -> Any:
                reduced = self._origin.reduce(obj)
                return super().reducer_override(obj) if reduced is NotImplemented else reduced

        _cloud = CloudPickler
    return _cloud


_cloud: Callable[..., pickle.Pickler] | None = None


def _enter_numpy() -> None:
    global _numpy, _frombuffer, _byte_bounds, _ndarray
    import numpy  # waits where another thread is just importing it

    # NumPy's own name in the pickle: NumPy alone can read the pickle then.
    _frombuffer = numpy.empty(1).__reduce_ex__(5)[0]
    _ndarray = numpy.ndarray
    _byte_bounds = (numpy.lib.array_utils.byte_bounds if hasattr(numpy.lib, "array_utils")
                    else numpy.byte_bounds)
    reducers[numpy.ndarray] = _reduce_ndarray
    for kind in (numpy.memmap, numpy.recarray, numpy.matrix):
        reducers[kind] = _reduce_subclass
    _numpy = True


def _enter_foreign() -> None:
    for name in [name for name in list(_awaited) if name in sys.modules]:
        importlib.import_module(name)  # waits where another thread is just importing it
        # another thread did it; a module of that name without these types
        with suppress(KeyError, AttributeError):
            reducers.update(_awaited[name]())
        _awaited.pop(name, None)


def _of_masked() -> dict[type, Reducer]:
    return {sys.modules["numpy.ma"].MaskedArray: _reduce_masked}


# Nothing is imported here: a queue's thread pickles, and a fork meanwhile would leave a held lock.
_awaited = {"numpy.ma": _of_masked, "polars": foreign.of_polars, "pyarrow": foreign.of_pyarrow,
            "torch": foreign.of_torch}
_numpy = False
_ndarray: type | tuple[()] = ()
# numpy's function that tells the addresses between which an array lies
_byte_bounds: Callable[[numpy.ndarray], tuple[int, int]]
# numpy's function that makes an array of a buffer, a dtype, a shape and an order
_frombuffer: Callable[..., numpy.ndarray]


def _reduce_whole(obj: _Whole, origin: _Origin) -> object:
    return type(obj.value), (origin.unlocked(obj.value),)


def _reduce_memoryview(obj: memoryview, origin: _Origin) -> object:
    source = obj if obj.c_contiguous else memoryview(obj.tobytes())
    return _restore_memoryview, (origin.unlocked(source), obj.format, obj.shape)


def _restore_memoryview(buffer: Buffer, format: str, shape: tuple[int, ...]) -> memoryview:
    flat = memoryview(buffer)
    if 0 in shape:  # memoryview casts to no such shape, and only emptiness can be kept
        return (flat.cast("B") if len(shape) != 1 else flat.cast("B").cast(
            format))  # type: ignore[call-overload]
    if format == "B" and len(shape) == 1:
        return flat
    return flat.cast("B").cast(format, shape)  # type: ignore[call-overload, no-any-return]


def _reduce_array(obj: array.array[int], origin: _Origin) -> object:
    return _restore_array, (obj.typecode, origin.unlocked(obj))


def _restore_array(typecode: str, buffer: Buffer) -> array.array[int]:
    restored = array.array(typecode)
    restored.frombytes(buffer)
    return restored


def _reduce_ndarray(obj: numpy.ndarray, origin: _Origin) -> object:
    flags, dtype = obj.flags, obj.dtype
    if dtype.hasobject or not dtype.itemsize:
        return NotImplemented
    locked = origin.as_is and not flags.writeable and not _in_view(obj)
    if not flags.forc:
        low, high = _byte_bounds(obj) if origin.as_is else (0, obj.nbytes)
        if high - low < obj.nbytes or (origin.strided and in_view(obj)):
            return _reduce_overlapping(obj, low, high - low, locked, origin)
        obj = obj.copy(order="C")
        flags = obj.flags
    elif flags.writeable and dtype.kind not in "mMV":
        return NotImplemented  # NumPy's own way is the same and faster
    order = "C" if flags.c_contiguous else "F"
    # NumPy shows no buffer of dates, so the bytes are shown.
    flat = (obj.reshape(-1, order=order).view("u1") if dtype.kind in "mMV" else obj.T
            if order == "F" else obj)
    buffer = pickle.PickleBuffer(flat)
    if locked:
        buffer = pickle.PickleBuffer(memoryview(buffer).toreadonly())
    elif not flags.writeable:
        buffer = origin.unlocked(buffer)
    return _frombuffer, (buffer, dtype, obj.shape, order)


def _reduce_overlapping(obj: numpy.ndarray, low: int, extent: int, locked: bool,
                        origin: _Origin) -> object:
    """An array that shows some of its memory more than once, as broadcast ones do, or with
    gaps: that memory, once."""
    import numpy

    memory = numpy.asarray(_Memory(obj, low, extent, not obj.flags.writeable))
    buffer = pickle.PickleBuffer(memory)
    if not obj.flags.writeable and not locked:
        buffer = origin.unlocked(buffer)
    offset = obj.__array_interface__["data"][0] - low
    return numpy.ndarray, (obj.shape, obj.dtype, buffer, offset, obj.strides)


class _Memory:
    """Bytes at an address, for numpy.asarray, which keeps this and so the
    array that they belong to."""

    def __init__(self, owner: object, address: int, nbytes: int, readonly: bool) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (nbytes,),
                                    "data": (address, readonly)}


def _owner(obj: Any) -> Any:
    """To whom the memory of an array belongs, if that is a view; else None."""
    while isinstance(obj, _ndarray):
        obj = obj.base  # type: ignore[attr-defined]
    if isinstance(obj, memoryview):
        obj = obj.obj
    return (obj if type(obj).__module__.partition(".")[0] == _PACKAGE and
            not isinstance(obj, _Memory) else None)


def in_view(obj: object) -> bool:
    """Whether the memory of an array belongs to a view."""
    if not _numpy and "numpy" in sys.modules:
        _enter_numpy()
    return _owner(obj) is not None


def _in_view(obj: object) -> bool:
    """Whether it does to one that nobody can write to."""
    owner = _owner(obj)
    return owner is not None and memoryview(owner).readonly


def _reduce_subclass(obj: numpy.ndarray, origin: _Origin) -> object:
    """NumPy copies all but plain arrays into the pickle. These are plain
    arrays under another name."""
    plain = obj.view(sys.modules["numpy"].ndarray)
    if plain.dtype.hasobject:
        return NotImplemented
    return type(plain).view, (plain, type(obj))


def _reduce_masked(obj: numpy.ma.MaskedArray, origin: _Origin) -> object:
    if obj.dtype.hasobject or obj.dtype.names is not None:
        return NotImplemented
    # data, mask, dtype, copy, subok, ndmin, fill_value, keep_mask, hard_mask
    return type(obj), (obj.data, obj._mask, None, False, True, 0, obj._fill_value, True,
                       obj._hardmask)


reducers: dict[type, Reducer] = {
    _Whole: _reduce_whole,
    memoryview: _reduce_memoryview,
    array.array: _reduce_array,
}
