# SPDX-License-Identifier: Apache-2.0
"""shmstore.multiprocessing: executors, pools, queues, pipes, processes and managers, by every start
method, and what a kill leaves."""

import concurrent.futures
import gc
import multiprocessing
import multiprocessing.resource_sharer
import multiprocessing.spawn
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings

import doorjobs
import numpy
import pytest
from conftest import Place, wait_for

import shmstore
import shmstore.multiprocessing as smp
from shmstore import messages

METHODS = ["fork", "spawn", "forkserver"]
N = 1 << 17  # of float64: 1 MiB
PAGES = 64 << 10  # of stores


@pytest.fixture(params=METHODS)
def context(request):
    return multiprocessing.get_context(request.param)


@pytest.fixture
def path(place):
    yield place.path
    smp.uninstall()
    doorjobs.leave(place.path)


@pytest.fixture
def installed(path):
    smp.install(partition=path)
    return path


def linked(path):
    """Bytes of all objects, and of messages under way."""
    gc.collect()
    return shmstore.Partition(path).usage().linked


def values():
    array = numpy.arange(4 * N, dtype=float)
    structured = numpy.zeros(N, [("a", "f8"), ("b", "i4")])
    structured["b"] = numpy.arange(N)
    yield "array", array
    yield "fortran", numpy.asfortranarray(array.reshape(512, -1))
    yield "gaps", array.reshape(512, -1)[:, 5:900]
    yield "backwards", array[::-1]
    yield "dates", numpy.arange(N).astype("datetime64[s]")
    yield "structured", structured
    yield "readonly", numpy.broadcast_to(numpy.arange(100.0), (2000, 100))
    yield "masked", numpy.ma.masked_less(array, 1000)
    yield "objects", numpy.array([str(i) * 9 for i in range(20000)], dtype=object)
    yield "bytes", b"abc" * N
    yield "bytearray", bytearray(b"abc" * N)
    yield "inside", {"a": [array, (b"x" * N, bytearray(N))], "n": 5}
    yield "many small", [numpy.full(600, float(i)) for i in range(300)]
    yield "box", doorjobs.Box(array)
    yield "long text", "é" * N
    yield "small", (1, "two", numpy.ones(3))
    yield "empty", (numpy.zeros(0), b"", [])


def equal(a, b):
    if isinstance(a, numpy.ndarray):
        same = numpy.ma.allequal if isinstance(a, numpy.ma.MaskedArray) else numpy.array_equal
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and same(a, b)
    if isinstance(a, doorjobs.Box):
        return equal(a.array, b.array)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and a == b


def test_values_come_back_as_they_went(path, context):
    with smp.SharedExecutor(2, mp_context=context, partition=path) as pool:
        sent = dict(values())
        came = {name: pool.submit(doorjobs.same, value) for name, value in sent.items()}
        for name, future in came.items():
            assert equal(sent[name], future.result()), name
        assert all(not isinstance(v, numpy.ndarray) or v.flags.writeable
                   for v in (future.result() for future in came.values()))


def test_what_the_receiver_writes_nobody_else_sees(path):
    array = numpy.ones(N)
    with smp.SharedExecutor(2, partition=path) as pool:
        assert all((result == 2).all() for result in pool.map(doorjobs.doubled, [array] * 6))
        result = pool.submit(doorjobs.doubled, array).result()
        result += 1
        assert (pool.submit(doorjobs.same, result).result() == 3).all()
    assert (array == 1).all()


def test_an_array_that_is_changed_between_two_messages_is_sent_as_it_is(path):
    array = numpy.ones(N)
    with smp.SharedExecutor(1, partition=path) as pool:
        for i in range(4):
            array[i] = 9
            assert (pool.submit(doorjobs.same, array).result() == array).all()


def test_initializer_and_keywords(path, context):
    with smp.SharedExecutor(1, context, doorjobs.same, (numpy.ones(N),), partition=path) as pool:
        assert pool.submit(doorjobs.same, value=numpy.ones(N)).result().sum() == N
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result()


def test_all_of_multiprocessing(installed, context):
    array = numpy.arange(N, dtype=float)
    with context.Pool(2) as pool:
        assert all((result == 2 * array).all()
                   for result in pool.map(doorjobs.doubled, [array] * 5))
        assert all(pool.map(doorjobs.is_installed, range(4)))
        assert sum(1 for _ in pool.imap_unordered(doorjobs.same, [array] * 3)) == 3
    queue, (reader, writer) = context.Queue(), context.Pipe()
    queue.put(array)
    assert (queue.get(timeout=60) == array).all()
    writer.send({"a": array})
    assert (reader.recv()["a"] == array).all()
    process = context.Process(target=doorjobs.puts, args=(queue, 3))
    process.start()
    assert [queue.get(timeout=60)[5] for _ in range(3)] == [0, 1, 2]
    process.join()
    with context.Manager() as manager:
        found = manager.list([array])
        assert (found[0] == array).all()
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        assert (pool.submit(doorjobs.tail, array).result() == array[10:]).all()
    smp.uninstall()
    assert smp.installed() is None
    assert type(pickle.loads(multiprocessing.reduction.ForkingPickler.dumps(
        array))) is numpy.ndarray


def test_a_message_outlives_its_sender(installed, context):
    """As bytes in a pipe do."""
    queue = context.Queue()
    process = context.Process(target=doorjobs.puts, args=(queue, 2))
    process.start()
    process.join()
    shmstore.Partition(installed).gc()
    assert [float(queue.get(timeout=60)[0]) for _ in range(2)] == [0, 1]
    event = context.Event()
    process = context.Process(target=doorjobs.lives_on, args=(queue, event))
    process.start()
    event.wait()
    wait_for("the message", lambda: not queue.empty())
    process.kill()
    process.join()
    shmstore.Partition(installed).gc()
    assert queue.get(timeout=60)[7] == 7


def test_nothing_is_left_of_a_job_that_is_killed(path, context):
    """Its messages that nobody read go with the process that began it, at
    the next gc; not before."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    job = multiprocessing.get_context("spawn").Process(target=doorjobs.job_that_is_killed, args=(
        path, context.get_start_method(), sender))
    job.start()
    child, shared = receiver.recv()
    assert shared
    wait_for("two messages", lambda: shmstore.Partition(path).usage().n_leases == 2)
    os.kill(child, signal.SIGKILL)
    shmstore.Partition(path).gc()
    assert linked(path) >= 2 * 8 * N  # the root lives, and may read them
    os.kill(job.pid, signal.SIGKILL)
    job.join()
    partition = shmstore.Partition(path)
    wait_for("the child's end", lambda: not any(s.alive for s in partition.stores()))
    partition.gc()
    partition.gc()  # the first one may have found the root's store after the other
    assert partition.stores() == []
    usage = doorjobs.usage_of(path)
    assert usage.linked == usage.metadata and usage.residual == 0


def test_a_worker_that_is_killed_breaks_the_pool_as_on_stock(path, context):
    with smp.SharedExecutor(1, mp_context=context, partition=path) as pool, pytest.raises(
            concurrent.futures.process.BrokenProcessPool):
        pool.submit(doorjobs.killed, numpy.ones(N)).result()


def test_the_next_store_removes_what_a_killed_job_left(path):
    receiver, sender = multiprocessing.Pipe(duplex=False)
    job = multiprocessing.get_context("spawn").Process(target=doorjobs.job_that_is_killed,
                                                       args=(path, "spawn", sender))
    job.start()
    child, _ = receiver.recv()
    for pid in (job.pid, child):
        os.kill(pid, signal.SIGKILL)
    job.join()
    partition = shmstore.Partition(path)
    wait_for("the child's end", lambda: not any(s.alive for s in partition.stores()))
    for _ in range(2):
        partition.open("next").close()
    assert partition.stores() == []


def test_objects_go_with_their_last_array(path):
    with smp.SharedExecutor(1, partition=path) as pool:
        results = [pool.submit(doorjobs.same, numpy.full(N, i)).result() for i in range(5)]
        assert linked(path) >= 5 * 8 * N
        del results
        wait_for("the memory", lambda: linked(path) < 8 * N)
    assert shmstore.Partition(path).usage().n_leases == 0


def test_one_array_for_many_is_one_object(path):
    array = numpy.random.default_rng(1).random(16 * N)
    box = messages.mailbox(path)
    texts = [messages.dumps(array, messages.Way(path)) for _ in range(8)]
    assert doorjobs.usage_of(path).linked < 2 * array.nbytes
    assert all((pickle.loads(text) == array).all() for text in texts)
    del array
    wait_for("the memory", lambda: linked(path) < PAGES)
    assert not box._sent


def test_an_array_among_others_is_one_object(path, context):
    array, other = numpy.ones(4 * N), [numpy.full(N // 8, i) for i in range(6)]
    with smp.SharedExecutor(2, mp_context=context, partition=path) as pool:
        for value in (1, 2):  # it is compared
            array[-1] = value
            done = [pool.submit(doorjobs.file_and_sum, array, one) for one in other]
            files, sums = zip(*(one.result() for one in done))
            assert len(set(files)) == 1 and files[0]
            assert list(sums) == [4 * N - 1 + value + i * (N // 8) for i in range(6)]
    wait_for("the memory", lambda: linked(path) < PAGES)  # with the pool, though the array lives


def test_receivers_map_one_object_of_an_array_that_could_be_packed(path):
    array, way = numpy.ones(N), messages.Way(path)
    came = [pickle.loads(messages.dumps(array, way)) for _ in range(3)]
    assert len({doorjobs.file_and_sum(one) for one in came}) == 1
    assert linked(path) < 1.5 * array.nbytes, "none of them has a copy"


@pytest.mark.parametrize("share", [messages._AGAIN_SHARE, 1 << 40])
def test_an_object_that_a_receiver_has_is_sent_again(path, monkeypatch, share):
    monkeypatch.setattr(messages, "_AGAIN", 0.0)
    monkeypatch.setattr(messages, "_AGAIN_SHARE", share)  # the second: too large to be kept
    array, way = numpy.random.default_rng(3).random(4 * N), messages.Way(path)
    came = pickle.loads(messages.dumps(array, way))
    again = [pickle.loads(messages.dumps((array, i), way))[0] for i in range(3)]
    assert {doorjobs.file_and_sum(one)[0] for one in again} == {doorjobs.file_and_sum(came)[0]}
    del came, again
    gc.collect()
    pickle.loads(messages.dumps(numpy.ones(N), way))  # a look: nobody has it
    assert linked(path) < array.nbytes


def test_of_a_message_without_room_nothing_is_left(path):
    small = Place(8 << 20)
    try:
        with pytest.warns(RuntimeWarning, match="no room"):
            text = messages.dumps([numpy.ones(4 * N), numpy.ones(5 * N)], messages.Way(small.path))
        assert [len(array) for array in pickle.loads(text)] == [4 * N, 5 * N]
        assert (shmstore.Partition(small.path).usage().n_leases == 0 and
                not list(messages.mailbox(small.path).store.objects()))
    finally:
        messages._warned = False
        doorjobs.leave(small.path)
        small.remove()


def test_what_came_goes_on_as_a_link(path):
    array = numpy.random.default_rng(2).random(16 * N)
    came = pickle.loads(messages.dumps(array, messages.Way(path)))
    array_bytes = array.nbytes
    del array
    before = doorjobs.usage_of(path).linked
    texts = [messages.dumps(came, messages.Way(path)),
             messages.dumps([came[5:], 7], messages.Way(path))]
    assert doorjobs.usage_of(path).linked < before + array_bytes // 2
    first, second = map(pickle.loads, texts)
    assert (first == came).all() and (second[0] == came[5:]).all()
    came[5] = -1.0  # written to: it is not the object any more
    assert pickle.loads(messages.dumps(came, messages.Way(path)))[5] == -1.0 and first[5] != -1.0


def test_share(path, context):
    array = numpy.arange(N, dtype=float)
    with smp.share(array, partition=path) as shared, smp.SharedExecutor(
            2, mp_context=context, partition=path) as pool:
        assert list(pool.map(doorjobs.summed, [(shared, i) for i in range(20)])) == [
            array.sum() + i for i in range(20)]
        assert pool.submit(doorjobs.writes_into, shared).result() == -N
        assert ((shared.value == array).all() and
                list(pool.map(doorjobs.summed, [(shared, 0)] * 3)) == [array.sum()] * 3)
        with smp.share(array, partition=path, readonly=True) as locked:
            assert pool.submit(doorjobs.is_readonly, locked).result()
        with pytest.raises(KeyError):
            pickle.loads(pickle.dumps(locked)).value  # noqa: B018
    assert linked(path) < PAGES


def test_threads_send_side_by_side(path):
    box = messages.mailbox(path)
    wrong = []

    def send(i):
        for k in range(30):
            array = numpy.full(N // 8, i * 1000 + k)
            came = pickle.loads(messages.dumps(array, messages.Way(path)))
            if not (came == array).all():
                wrong.append((i, k))

    threads = [threading.Thread(target=send, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    wait_for("the memory", lambda: linked(path) < PAGES)
    assert not box._maps


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system wants root")
def test_a_small_partition_is_a_warning_once(context):
    small = Place(2 << 20)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            messages._warned = False
            with smp.SharedExecutor(1, mp_context=context, partition=small.path) as pool:
                for _ in range(3):
                    assert pool.submit(doorjobs.same, numpy.ones(4 * N)).result().sum() == 4 * N
        said = [str(one.message) for one in said if issubclass(one.category, RuntimeWarning)]
        assert (len(said) == 1 and "2 MiB" in said[0] and "--shm-size" in said[0] and
                "SHMSTORE_PARTITION" in said[0])
    finally:
        messages._warned = False
        doorjobs.leave(small.path)
        small.remove()


@pytest.fixture
def elsewhere(own_mount, path, tmp_path):
    """A context whose processes have another, empty file system in the place of the partition."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs a mount namespace")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec unshare -m sh -c \'mount -t tmpfs tmpfs {path} && exec '
                      f'{sys.executable} "$@"\' sh "$@"\n')
    python.chmod(0o755)
    was = multiprocessing.spawn.get_executable()
    multiprocessing.set_executable(str(python))
    messages._warned = False
    yield multiprocessing.get_context("spawn")
    multiprocessing.set_executable(was)
    messages._warned = False


def test_workers_that_cannot_open_the_partition_are_sent_values_as_ever(path, elsewhere):
    with pytest.warns(RuntimeWarning, match="a worker says: .*" + path) as said, smp.SharedExecutor(
            2, elsewhere, partition=path) as pool:
        assert [float(a.sum()) for a in pool.map(doorjobs.doubled, [numpy.ones(N)] * 5)] == [
            2.0 * N] * 5
    assert sum(w.category is RuntimeWarning for w in said) == 1


def test_who_cannot_open_the_partition_says_which(path, elsewhere):
    smp.install(partition=path)
    queue, answers = elsewhere.Queue(), elsewhere.Queue()
    process = elsewhere.Process(target=doorjobs.failure_of, args=(queue, answers))
    process.start()
    queue.put(numpy.ones(N))
    text = answers.get(timeout=60)
    process.join()
    assert ("Error: " in text and f"cannot take a message out of the partition {path}" in text and
            "the same directory" in text)


def test_a_message_leaves_room_for_its_reader(own_mount, path):
    """A worker that begins when the partition is full opens a store."""
    way, sent = messages.begin(path, messages.MIN_SIZE), []
    messages._warned = False
    with pytest.warns(RuntimeWarning, match="has no room"):
        for n in (1 << 23, 1 << 20, 1 << 17, 1 << 14, 1 << 13):
            while b"messages" in (text := messages.dumps(numpy.full(n, 1.0), way)):
                sent.append(text)
    messages._warned = False
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).sum())"
    out = subprocess.run([sys.executable, "-c", code], input=sent[-1], stdout=subprocess.PIPE,
                         check=True)
    assert float(out.stdout) >= 1 << 13


def test_no_partition_at_all(tmp_path):
    """On a disk: the pool works as ever."""
    messages._warned = False
    with pytest.warns(RuntimeWarning, match="without shared memory"), smp.SharedExecutor(
            1, partition=str(tmp_path / "none" / "p")) as pool:
        assert pool.submit(doorjobs.same, numpy.ones(N)).result().sum() == N
    messages._warned = False


@pytest.mark.parametrize("n", [N, 1000], ids=["large", "small"])
def test_descriptors_beside_an_array_that_stays_in_the_pickle_are_handed_over_once(
        tmp_path, context, n):
    """There is no partition, or the array is too small for it. A child that is spawned with the
    same descriptor twice does not start."""
    messages._warned = False
    smp.install(partition=str(tmp_path / "none" / "p"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            queue, lock, (here, there) = context.Queue(), context.Lock(), context.Pipe()
            fixed = numpy.ones(n)
            fixed.flags.writeable = False
            child = context.Process(target=doorjobs.count, args=(fixed, queue, lock, there))
            child.start()
            assert queue.get(timeout=60) == n
            assert here.recv() == "counted"
            child.join()
            given = len(multiprocessing.resource_sharer._resource_sharer._cache)
            pickled = multiprocessing.reduction.ForkingPickler.dumps((fixed, there))
            assert len(multiprocessing.resource_sharer._resource_sharer._cache) == given + 1
            array, connection = pickle.loads(pickled)
            array[0] = 2
            connection.send("came")
            assert here.recv() == "came"
    finally:
        smp.uninstall()
        messages._warned = False


PROGRAM = """
import multiprocessing, sys
import numpy, shmstore
import shmstore.multiprocessing as smp
smp.install()
context = multiprocessing.get_context(sys.argv[1])

def send(queue, depth):
    queue.put(numpy.full(1 << 17, float(depth)))
    if depth:
        process = context.Process(target=send, args=(queue, depth - 1))
        process.start()
        process.join()

if __name__ == "__main__":
    queue = context.Queue()
    send(queue, 3)
    shmstore.Partition().gc()
    print(sorted(float(queue.get()[-1]) for _ in range(4)), end=" ")
"""


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a_child_that_installs_as_it_is_imported_belongs_to_its_parents_job(
        place, tmp_path, method, early):
    """The values that the child sent are there when it has ended. early: each interpreter installs
    as it begins, that of the fork server, too."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "sitecustomize.py").write_text("import shmstore.multiprocessing; "
                                               "shmstore.multiprocessing.install()" if early
                                               else "")
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run([sys.executable, tmp_path / "program.py", method],
                          env={**os.environ, "SHMSTORE_PARTITION": place.path, "PYTHONPATH": path},
                          capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[0.0, 1.0, 2.0, 3.0] ", "")
    assert shmstore.Partition(place.path).stores() == []


def test_small_values_are_as_on_stock(installed):
    dumps = multiprocessing.reduction.ForkingPickler.dumps
    for value in (1, "text", [1, 2, {"a": (3, None)}], numpy.ones(100), doorjobs.same):
        assert pickle.loads(bytes(dumps(value))) is not None
        assert b"messages" not in bytes(dumps(value))
    with pytest.raises((pickle.PicklingError, AttributeError)):
        dumps(lambda: 1)


def test_other_programs_read_messages_without_installing(path):
    array = numpy.arange(N, dtype=float)
    text = messages.dumps(array, messages.Way(path))
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).sum())"
    out = subprocess.run([sys.executable, "-c", code], input=text, stdout=subprocess.PIPE,
                         check=True)
    assert float(out.stdout) == array.sum()


def test_leases_end_with_a_store(partition):
    """`leases_with`: over once nobody has that store open, and the giver is gone."""
    with partition.open("root") as root:
        giver = partition.open("giver", leases_with="root")
        giver["a"] = numpy.ones(N)
        giver["b"] = numpy.ones(4 * N)
        tickets = [giver.handoff("a", lease=1000), giver.handoff("b", lease=1000)]
        giver.close()
        partition.gc()
        root.adopt("a", tickets[0])
        assert root["a"].sum() == N
    partition.gc()
    assert partition.stores() == []
    own = partition.open("own", leases_with="own")
    own["a"] = 1
    own.handoff("a", lease=1000)
    own.close()
    assert partition.stores() == []
    with pytest.raises(shmstore.Error, match="leases_with"):
        partition.open("x", leases_with="a/b")
