/* SPDX-License-Identifier: Apache-2.0 */
#include "crowded.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "api.h"
#include "scratch.h"
#include "sys.h"
#include "tiered.h"

bool crowded_begin(const struct shmstore_tier_config *config)
{
	scratch_dir("size=64m");
	return scratch_is_mount() && tiered_begin(config);
}

uint64_t crowded_used(void)
{
	struct statvfs fs;

	ENSURE(statvfs(scratch_partition_path(), &fs) == 0);
	return (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

static int64_t stamp(int fd)
{
	struct stat st;

	ENSURE(futimens(fd, NULL) == 0);
	ENSURE(fstat(fd, &st) == 0);
	return shms_stat_ns(&st.st_ctim);
}

void crowded_tick(void)
{
	/* A file's time is not the clock's: the kernel may give several changes one time. */
	static int fd = -1;
	int64_t then;

	if (fd < 0)
		fd = memfd_create("tick", MFD_CLOEXEC);
	then = stamp(fd);
	while (stamp(fd) <= then)
		continue;
}

const char *nth(unsigned i)
{
	static char text[8][16];
	static unsigned n;

	snprintf(text[n % 8], sizeof(text[0]), "k%u", i);
	return text[n++ % 8];
}

void crowded_fill(struct shmstore *s, unsigned first, unsigned n, unsigned flags)
{
	for (unsigned i = first; i < first + n; i++) {
		int r = put_pattern(s, nth(i), CROWDED_SIZE, i, flags);

		if (r < 0)
			fprintf(stderr, "put %u: %s %s\n", i, shmstore_strerror(r),
				shmstore_error_detail());
		ENSURE(r == 0);
		crowded_tick();
	}
}

bool crowded_in_memory(struct shmstore *s, unsigned i)
{
	int where = shmstore_locate(s, KEY(nth(i)));

	ENSURE(where > 0);
	return where == SHMSTORE_IN_MEMORY;
}

unsigned crowded_count(struct shmstore *s, unsigned first, unsigned n)
{
	unsigned found = 0;

	for (unsigned i = first; i < first + n; i++)
		found += crowded_in_memory(s, i);
	return found;
}

int crowded_evict(struct shmstore_evict what, struct shmstore_evict_report *ret)
{
	struct shmstore_partition *p = scratch_partition();
	int r = shmstore_partition_evict(p, &what, ret);

	shmstore_partition_unref(p);
	return r;
}

int crowded_evict_bytes(uint64_t bytes, struct shmstore_evict_report *ret)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;

	what.bytes = bytes;
	return crowded_evict(what, ret);
}

void crowded_finish(struct shmstore *s, unsigned first, unsigned n)
{
	for (unsigned i = first; i < first + n; i++)
		ENSURE(get_pattern(s, nth(i), CROWDED_SIZE, i) == 0);
	ensure_books_close();
	ENSURE(shmstore_close(s) == 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

unsigned crowded_fill_up(struct shmstore *s, unsigned flags, unsigned at_least)
{
	unsigned n = 0;
	int r;

	while ((r = put_pattern(s, nth(n), CROWDED_SIZE, n, flags | SHMSTORE_NO_EVICT)) == 0)
		n++;
	ENSURE(r == -ENOSPC);
	ENSURE(n >= at_least);
	return n;
}

struct shmstore_tier_config crowded_limit(uint64_t max)
{
	struct shmstore_tier_config config = SHMSTORE_TIER_CONFIG_INIT;

	config.max = max;
	config.level = 0;
	return config;
}
