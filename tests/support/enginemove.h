/* SPDX-License-Identifier: Apache-2.0 */
/* enginemove.h: objects of some content, and the engine's jobs that take them to a tier file and
 * back. For test_engine*.c. */
#ifndef SHMSTORE_TEST_ENGINEMOVE_H
#define SHMSTORE_TEST_ENGINEMOVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine.h"
#include "scratch.h"

#define MIB ((size_t)1 << 20)

enum content {
	NOISE,
	SORTED,
	MIXED
};

struct object {
	int fd;
	size_t size;
	unsigned char *was;
};

struct moved {
	struct shms_job job;
	struct shms_tier_header header;
	struct object object;
	int n_done;
};

struct object job_object_new(size_t size, enum content content, uint64_t seed);
void job_object_free(struct object *o);
/* A file without a name on a disk, O_DIRECT where that is possible. */
int job_tier_file(void);
/* Begins to store the object, which is the job's from then on. */
void job_store(struct shms_engine *e, struct moved *m, struct object object, int level);
/* Takes the header from the file, as everybody does. 0 or what it is refused with. */
int job_header_read(int fd, struct shms_tier_header *h);
/* Turns a stored object around: m is loading into a new file afterwards. */
void job_load(struct shms_engine *e, struct moved *m);
/* It is done, once, and what came back is what was there. */
void job_check_back(const struct moved *m);
void job_moved_free(struct moved *m);
struct shms_engine *job_engine_new(unsigned n_threads, bool plain);

#endif
