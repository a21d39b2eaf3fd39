/* SPDX-License-Identifier: Apache-2.0 */
/* enginemove.h's objects, tier files and jobs. */
#include "enginemove.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void fill(unsigned char *at, size_t size, enum content content, uint64_t seed)
{
	uint64_t x = seed << 32, step = seed | 1;

	pattern_fill(at, size, seed);
	if (content == NOISE)
		return;
	for (size_t i = 0; i + 8 <= size; i += 8) {
		step = step * UINT64_C(6364136223846793005) + 1442695040888963407;
		x += step >> 49;
		if (content == SORTED || i / SHMS_TIER_FRAME % 2 == 0)
			memcpy(at + i, &x, 8);
	}
}

struct object job_object_new(size_t size, enum content content, uint64_t seed)
{
	struct object o = {memfd_create("object", MFD_CLOEXEC), size, malloc(size)};

	ENSURE(o.fd >= 0 && o.was);
	fill(o.was, size, content, seed);
	ENSURE(pwrite(o.fd, o.was, size, 0) == (ssize_t)size);
	return o;
}

void job_object_free(struct object *o)
{
	close(o->fd);
	free(o->was);
}

int job_tier_file(void)
{
	int fd = open("/var/tmp", O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);

	if (fd < 0)
		fd = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	ENSURE(fd >= 0);
	return fd;
}

static void count_done(struct shms_job *job)
{
	struct moved *m = job->arg;

	m->n_done++;
}

void job_store(struct shms_engine *e, struct moved *m, struct object object, int level)
{
	struct shms_tier_object o = {.id = 7,
				     .generation = 8,
				     .header_size = object.size < 4096 ? object.size : 4096,
				     .key = "key",
				     .key_size = 3,
				     .level = level};

	o.buffer_size = object.size - o.header_size;
	*m = (struct moved){.object = object};
	ENSURE(shms_tier_header_init(&m->header, &o) == 0);
	m->job = (struct shms_job){.object_fd = object.fd,
				   .tier_fd = job_tier_file(),
				   .header = &m->header,
				   .done = count_done,
				   .arg = m};
	shms_engine_store(e, &m->job);
}

int job_header_read(int fd, struct shms_tier_header *h)
{
	_Alignas(4096) unsigned char first[4096];
	struct stat st;
	uint64_t need;
	int r;

	ENSURE(fstat(fd, &st) == 0);
	if (pread(fd, first, sizeof(first), 0) != (ssize_t)sizeof(first))
		return -EBADMSG;
	r = shms_tier_header_need(first, sizeof(first), (uint64_t)st.st_size, &need);
	if (r < 0)
		return r;
	ENSURE(shms_tier_header_alloc(h, need) == 0);
	ENSURE(pread(fd, h->bytes, need, 0) == (ssize_t)need);
	return shms_tier_header_parse(h, need, (uint64_t)st.st_size, NULL);
}

void job_load(struct shms_engine *e, struct moved *m)
{
	shms_tier_header_deinit(&m->header);
	cr_assert_eq(job_header_read(m->job.tier_fd, &m->header), 0);
	m->n_done = 0;
	m->job.object_fd = memfd_create("back", MFD_CLOEXEC);
	ENSURE(m->job.object_fd >= 0);
	shms_engine_load(e, &m->job);
}

void job_check_back(const struct moved *m)
{
	unsigned char *now = malloc(m->object.size + 1);

	ENSURE(now);
	cr_assert_eq(m->n_done, 1, "done is called once: %d", m->n_done);
	cr_assert_eq(m->job.error, 0, "%s", m->job.reason);
	cr_assert_eq(pread(m->job.object_fd, now, m->object.size + 1, 0), (ssize_t)m->object.size);
	cr_assert(memcmp(now, m->object.was, m->object.size) == 0,
		  "what comes back is what was there");
	free(now);
}

void job_moved_free(struct moved *m)
{
	close(m->job.tier_fd);
	if (m->job.object_fd >= 0 && m->job.object_fd != m->object.fd)
		close(m->job.object_fd);
	job_object_free(&m->object);
	shms_tier_header_deinit(&m->header);
}

struct shms_engine *job_engine_new(unsigned n_threads, bool plain)
{
	struct shms_engine *e = NULL;

	ENSURE(shms_engine_new(
		       &(struct shms_engine_options){.n_threads = n_threads, .no_ring = plain},
		       &e) == 0);
	return e;
}
