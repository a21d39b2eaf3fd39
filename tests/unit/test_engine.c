/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects to tier files and back, through io_uring and through plain calls, with threads and
 * without, one and many at a time; what happens where the object, the file or the disk is not what
 * it should be. test_engine_process.c: where the process is not.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "enginemove.h"

/* ---- there and back -------------------------------------------------------------------------- */

struct way {
	unsigned n_threads;
	int plain;
	int level;
};

ParameterizedTestParameters(engine, every_size_and_content_comes_back)
{
	static struct way ways[] = {{0, 0, 1}, {0, 1, 1}, {2, 0, 1}, {2, 1, 1},
				    {2, 0, 0}, {0, 0, 0}, {5, 0, 3}};

	return cr_make_param_array(struct way, ways, sizeof(ways) / sizeof(*ways), NULL);
}

ParameterizedTest(struct way *way, engine, every_size_and_content_comes_back)
{
	static const size_t sizes[] = {1,           200,           4096,     4097,
				       MIB,         4 * MIB - 1,   4 * MIB,  4 * MIB + 1,
				       9 * MIB + 5, 40 * MIB + 77, 100 * MIB};
	/* The largest ones take most of the time: they go two ways only, and under sanitizers
	 * the very largest goes none. */
	const bool one = way->n_threads == 2 && way->level == 1;
	const size_t left_out = (one ? 0u : 1u) + (n_rounds(20) == 20 ? 0u : 1u);
	const size_t n = sizeof(sizes) / sizeof(*sizes) - left_out;
	struct shms_engine *e = job_engine_new(way->n_threads, way->plain);

	for (size_t i = 0; i < n; i++)
		for (enum content c = NOISE; c <= MIXED; c++) {
			struct moved m;

			job_store(e, &m, job_object_new(sizes[i], c, i + 1), way->level);
			shms_engine_drain(e);
			cr_assert_eq(m.n_done, 1);
			cr_assert_eq(m.job.error, 0, "%s", m.job.reason);
			cr_assert_eq(m.header.sb->flags,
				     c == NOISE || way->level == 0 || sizes[i] <= 4096
					     ? SHMS_TIER_RAW
					     : 0);
			job_load(e, &m);
			shms_engine_drain(e);
			job_check_back(&m);
			job_moved_free(&m);
		}
	shms_engine_free(e);
}

ParameterizedTestParameters(engine, many_jobs_overlap)
{
	static struct way ways[] = {{0, 0, 1}, {0, 1, 1}, {1, 0, 1}, {3, 0, 1}, {3, 1, 1}};

	return cr_make_param_array(struct way, ways, sizeof(ways) / sizeof(*ways), NULL);
}

ParameterizedTest(struct way *way, engine, many_jobs_overlap)
{
	enum {
		N = 150
	};
	static struct moved m[N];
	struct shms_engine *e = job_engine_new(way->n_threads, way->plain);

	for (size_t i = 0; i < N; i++)
		job_store(e, &m[i],
			  job_object_new(i * 7919 % MIB + (i % 17 ? 1 : 6 * MIB),
					 (enum content)(i % 3), i + 1),
			  way->level);
	shms_engine_drain(e);
	for (size_t i = 0; i < N; i++)
		cr_assert(m[i].n_done == 1 && m[i].job.error == 0, "%zu: %s", i, m[i].job.reason);
	for (size_t i = 0; i < N; i++)
		job_load(e, &m[i]);
	shms_engine_drain(e);
	for (size_t i = 0; i < N; i++) {
		job_check_back(&m[i]);
		job_moved_free(&m[i]);
	}
	shms_engine_free(e);
}

Test(engine, a_raw_object_lies_in_one_piece)
{
	struct shms_engine *e = job_engine_new(2, false);
	struct moved m;
	struct stat st;
	unsigned char *map;

	job_store(e, &m, job_object_new(9 * MIB + 100, NOISE, 3), 1);
	shms_engine_drain(e);
	cr_assert_eq(m.header.sb->flags, SHMS_TIER_RAW);
	ENSURE(fstat(m.job.tier_fd, &st) == 0);
	cr_assert_eq((uint64_t)st.st_size, m.header.sb->file_size);
	map = mmap(NULL, m.header.sb->file_size, PROT_READ, MAP_PRIVATE, m.job.tier_fd, 0);
	cr_assert_neq(map, MAP_FAILED);
	cr_assert(memcmp(map + m.header.sb->header_size, m.object.was, m.object.size) == 0);
	munmap(map, m.header.sb->file_size);
	job_moved_free(&m);
	shms_engine_free(e);
}

Test(engine, fsync_comes_before_done)
{
	struct shms_engine *e = job_engine_new(0, false);
	struct moved m;

	for (unsigned plain = 0; plain < 2; plain++) {
		job_store(e, &m, job_object_new(5 * MIB, NOISE, 3), 1);
		shms_engine_drain(e);
		m.n_done = 0;
		m.job.fsync = true; /* the same file once more */
		shms_engine_store(e, &m.job);
		shms_engine_drain(e);
		cr_assert(m.n_done == 1 && m.job.error == 0, "%s", m.job.reason);
		job_moved_free(&m);
		shms_engine_free(e);
		e = job_engine_new(1, true);
	}
	shms_engine_free(e);
}

/* ---- done may begin the next ----------------------------------------------------------------- */

struct chain {
	struct shms_engine *e;
	struct moved m[100];
	size_t n, n_begun;
	int deep;
};

static struct chain chain;

/* Two more for each that is done: more at a time than an engine has under way. */
static void begin_next(struct shms_job *job)
{
	cr_assert_eq(job->error, 0);
	cr_assert_eq(chain.deep, 0, "done is not called from within done");
	chain.deep++;
	chain.n++;
	for (unsigned i = 0; i < 2 && chain.n_begun < sizeof(chain.m) / sizeof(*chain.m); i++) {
		struct moved *m = &chain.m[chain.n_begun++];

		*m = chain.m[0];
		ENSURE(shms_tier_header_init(
			       &m->header,
			       &(struct shms_tier_object){.header_size = m->object.size}) == 0);
		m->job.header = &m->header;
		m->job.tier_fd = job_tier_file();
		shms_engine_store(chain.e, &m->job);
	}
	chain.deep--;
}

Test(engine, done_may_begin_another_job)
{
	for (unsigned n_threads = 0; n_threads < 3; n_threads++) {
		struct moved *first = &chain.m[0];

		chain.n = 0;
		chain.n_begun = 1;
		chain.e = job_engine_new(n_threads, false);
		*first = (struct moved){.object = job_object_new(5 * MIB, MIXED, 2)};
		ENSURE(shms_tier_header_init(&first->header, &(struct shms_tier_object){
								     .header_size = 5 * MIB}) == 0);
		first->job = (struct shms_job){.object_fd = first->object.fd,
					       .tier_fd = job_tier_file(),
					       .header = &first->header,
					       .done = begin_next};
		shms_engine_store(chain.e, &first->job);
		shms_engine_drain(chain.e);
		cr_assert_eq(chain.n, sizeof(chain.m) / sizeof(*chain.m));
		shms_engine_free(chain.e);
		for (size_t i = 0; i < chain.n; i++) {
			close(chain.m[i].job.tier_fd);
			shms_tier_header_deinit(&chain.m[i].header);
		}
		job_object_free(&first->object);
	}
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void flip(int fd, uint64_t at)
{
	_Alignas(4096) unsigned char block[4096];
	off_t begin = (off_t)(at & ~UINT64_C(4095));

	ENSURE(pread(fd, block, sizeof(block), begin) == (ssize_t)sizeof(block));
	block[at & 4095] ^= (unsigned char)(1u << at % 8);
	ENSURE(pwrite(fd, block, sizeof(block), begin) == (ssize_t)sizeof(block));
}

Test(engine, every_flipped_bit_is_found)
{
	for (unsigned round = 0; round < 4; round++) {
		struct shms_engine *e = job_engine_new(round & 1 ? 2 : 0, round & 2);
		struct moved m;
		uint64_t size, at = 0;

		job_store(e, &m, job_object_new(9 * MIB + 5, MIXED, 4), 1);
		shms_engine_drain(e);
		size = m.header.sb->file_size;
		for (unsigned i = 0; i < 60; i++) {
			at = i == 0 ? size - 1 : (at * 31 + 104729 * (uint64_t)i + round) % size;
			flip(m.job.tier_fd, at);
			shms_tier_header_deinit(&m.header);
			if (at < 4096) {
				cr_assert_lt(job_header_read(m.job.tier_fd, &m.header), 0,
					     "byte %zu", (size_t)at);
			} else {
				m.job.object_fd = -1;
				cr_assert_eq(job_header_read(m.job.tier_fd, &m.header), 0);
				shms_engine_load(e, &m.job);
				shms_engine_drain(e);
				cr_assert_eq(m.job.error, -EBADMSG, "byte %zu: %d", (size_t)at,
					     m.job.error);
				cr_assert(strncmp(m.job.reason, "frame ", 6) == 0, "%s",
					  m.job.reason);
			}
			flip(m.job.tier_fd, at);
		}
		shms_tier_header_deinit(&m.header);
		cr_assert_eq(job_header_read(m.job.tier_fd, &m.header), 0);
		shms_engine_load(e, &m.job);
		shms_engine_drain(e);
		cr_assert_eq(m.job.error, 0, "undamaged again: %s", m.job.reason);
		job_moved_free(&m);
		shms_engine_free(e);
	}
}

Test(engine, a_file_cut_while_it_is_read_is_damage)
{
	for (unsigned round = 0; round < 4; round++) {
		struct shms_engine *e = job_engine_new(round & 1 ? 2 : 0, round & 2);
		struct moved m;

		job_store(e, &m, job_object_new(9 * MIB + 5, NOISE, 4), 1);
		shms_engine_drain(e);
		ENSURE(ftruncate(m.job.tier_fd, (off_t)(6 * MIB + (round < 2 ? 100 : 0))) == 0);
		m.job.object_fd = -1;
		shms_engine_load(e, &m.job);
		shms_engine_drain(e);
		cr_assert_eq(m.job.error, -EBADMSG, "%d %s", m.job.error, m.job.reason);
		cr_assert(strstr(m.job.reason, " is cut short"), "%s", m.job.reason);
		job_moved_free(&m);
		shms_engine_free(e);
	}
}

/* ---- failures -------------------------------------------------------------------------------- */

Test(engine, an_object_that_shrank_is_an_error)
{
	for (unsigned n_threads = 0; n_threads < 3; n_threads++) {
		struct shms_engine *e = job_engine_new(n_threads, false);
		struct object o = job_object_new(30 * MIB, MIXED, 4);
		struct moved m;

		ENSURE(ftruncate(o.fd, 13 * MIB) == 0);
		job_store(e, &m, o, 1);
		shms_engine_drain(e);
		cr_assert_eq(m.n_done, 1);
		cr_assert_eq(m.job.error, -EIO);
		cr_assert_neq(m.job.reason[0], '\0');
		job_moved_free(&m);
		shms_engine_free(e);
	}
}

Test(engine, a_file_that_may_not_grow_is_too_large, .signal = 0)
{
	struct rlimit limit, before;

	signal(SIGXFSZ, SIG_IGN);
	ENSURE(getrlimit(RLIMIT_FSIZE, &before) == 0);
	for (unsigned round = 0; round < 4; round++) {
		struct shms_engine *e = job_engine_new(round & 1 ? 2 : 0, round & 2);
		struct object big = job_object_new(30 * MIB, NOISE, 4),
			      small = job_object_new(MIB, NOISE, 5);
		struct moved m[2];

		limit = before;
		limit.rlim_cur = 10 * MIB;
		ENSURE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
		job_store(e, &m[0], big, 1);
		job_store(e, &m[1], small, 1);
		shms_engine_drain(e);
		ENSURE(setrlimit(RLIMIT_FSIZE, &before) == 0);
		cr_assert_eq(m[0].n_done, 1);
		cr_assert_eq(m[0].job.error, -EFBIG, "%d: %s", m[0].job.error, m[0].job.reason);
		cr_assert_eq(m[1].n_done, 1);
		cr_assert_eq(m[1].job.error, 0, "the other one is none the worse: %s",
			     m[1].job.reason);
		job_moved_free(&m[0]);
		job_moved_free(&m[1]);
		shms_engine_free(e);
	}
}

Test(engine, a_descriptor_that_cannot_be_written_is_an_error)
{
	for (unsigned round = 0; round < 4; round++) {
		struct shms_engine *e = job_engine_new(round & 1 ? 2 : 0, round & 2);
		struct moved m;
		int null;

		job_store(e, &m, job_object_new(20 * MIB, NOISE, 4), 1);
		shms_engine_drain(e);
		job_load(e, &m); /* good so far */
		shms_engine_drain(e);
		null = open("/dev/null", O_RDONLY | O_CLOEXEC);
		close(m.job.object_fd);
		m.job.object_fd = null;
		m.n_done = 0;
		shms_engine_load(e, &m.job);
		shms_engine_drain(e);
		cr_assert_eq(m.n_done, 1);
		cr_assert_eq(m.job.error, -EIO, "EBADF: %d", m.job.error);
		job_moved_free(&m);
		shms_engine_free(e);
	}
}
