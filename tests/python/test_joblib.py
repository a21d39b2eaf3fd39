# SPDX-License-Identifier: Apache-2.0
"""shmstore.joblib: joblib's workers with arguments and results by handoff."""


import gc

import doorjobs
import numpy
import pytest
from conftest import wait_for

import shmstore
from shmstore import messages

joblib = pytest.importorskip("joblib")
N = 1 << 17


@pytest.fixture
def backend(place):
    import shmstore.joblib as door

    door.register(partition=place.path)
    yield place.path
    doorjobs.leave(place.path)


def test_arguments_and_results(backend):
    array = numpy.arange(N, dtype=float)
    with joblib.parallel_backend("shmstore", n_jobs=2):
        results = joblib.Parallel()(joblib.delayed(doorjobs.fitted)(array, i) for i in range(8))
        assert all((scaled == array * i).all() and writeable and scaled.flags.writeable
                   for i, (scaled, writeable) in enumerate(results))
        local = 3
        # by cloudpickle
        assert joblib.Parallel()(joblib.delayed(lambda x: x + local)(i) for i in range(5)) == [
            3, 4, 5, 6, 7]
        large = joblib.Parallel()(joblib.delayed(lambda x: x + local)(array) for _ in range(3))
        assert all((one == array + 3).all() for one in large)
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(divmod)(1, 0) for _ in range(2))
    assert messages._boxes[backend].store.usage().n_views  # the results are maps
    del results, large
    wait_for("the memory", lambda: gc.collect() >= 0 and
             messages._boxes[backend].store.usage().n_views == 0)


def test_an_input_of_many_calls_is_one_object(backend):
    array, others = numpy.ones(4 * N), [numpy.full(N // 8, i) for i in range(8)]
    for value in (1, 2):  # written to in between
        array[-1] = value
        with joblib.parallel_backend("shmstore", n_jobs=2):
            done = joblib.Parallel()(joblib.delayed(doorjobs.file_and_sum)(array, one)
                                     for one in others)
        files, sums = zip(*done)
        assert len(set(files)) == 1 and files[0]
        assert list(sums) == [4 * N - 1 + value + i * (N // 8) for i in range(8)]
        assert not messages.mailbox(backend)._sent


def test_scikit_learn(backend):
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = numpy.random.default_rng(5)
    x, y = rng.random((4000, 40)), rng.integers(0, 3, 4000)
    forest = ensemble.RandomForestClassifier(8, n_jobs=2, random_state=1, max_depth=4)
    with joblib.parallel_backend("shmstore"):
        ours = forest.fit(x, y).predict(x)
    assert (ours == forest.fit(x, y).predict(x)).all()
    assert shmstore.Partition(backend).usage().residual == 0
