/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_profile.c: profile_load() on arbitrary text: what a user loads, and what the
 * daemon finds in its directory.
 *
 * The first byte: FIX_SUM puts the right checksum behind the rest, so that what is behind that
 * check is reached; PRIOR loads it as a prior. A refused text changes nothing. An accepted text
 * can be written, and loaded again: the second text is the first.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile.h"
#include "scratch.h"

enum {
	FIX_SUM = 1,
	PRIOR = 2
};

#define KEYS_MAX 8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long n_accepted, n_refused;

static void report(void)
{
	fprintf(stderr, "accepted: %lu, refused: %lu\n", n_accepted, n_refused);
}

static void begin(void)
{
	static bool once;

	if (!once)
		atexit(report);
	once = true;
}

/* A profile that has something to lose. */
static struct profile *some_profile(void)
{
	const struct profile_name name = {"c", "f", "g"};
	const struct profile_task task = {.used = {7, 8, 9}, .has = {true, true, true}};
	struct profile *p = profile_new(KEYS_MAX);

	ENSURE(p && profile_feed(p, &name, &task) == 0);
	return p;
}

/* Each key of the profile can be found, and its figures make sense. */
static void use(const struct profile *p)
{
	uint64_t values[PROFILE_RING], life_ms, peaks[PROFILE_PHASES];

	ENSURE(profile_n_keys(p) <= KEYS_MAX);
	for (const struct profile_key *k = profile_next(p, NULL); k; k = profile_next(p, k)) {
		struct profile_name name = profile_name_of(k);

		ENSURE(profile_find(p, &name) == k);
		for (int r = 0; r < PROFILE_RESOURCES; r++) {
			struct profile_stat s = profile_stat(k, (enum profile_resource)r);

			ENSURE(s.peak <= PROFILE_MOST && s.average <= PROFILE_MOST &&
			       s.p95 <= PROFILE_MOST);
			ENSURE(profile_values(k, (enum profile_resource)r, values) <= PROFILE_RING);
			for (int how = PROFILE_NONE; how <= PROFILE_AVERAGE; how++)
				(void)profile_estimate(k, (enum profile_resource)r,
						       (enum profile_strategy)how, 1, 2);
		}
		ENSURE(profile_phases(k, &life_ms, peaks) <= PROFILE_PHASES);
		(void)profile_remaining(k, life_ms / 2);
	}
}

static void again(struct profile *p)
{
	struct profile *other = profile_new(KEYS_MAX);
	const char *why = "";
	char *first, *second;
	size_t n, m;

	first = profile_text(p, &n);
	ENSURE(other && first && profile_load(other, first, n, false, &why) == 0);
	second = profile_text(other, &m);
	ENSURE(second && m == n && memcmp(first, second, n) == 0);
	free(first);
	free(second);
	profile_free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct profile *p;
	const char *why = NULL;
	char *text, *before, *after;
	size_t n, n_before, n_after;
	int r;

	begin();
	if (!size)
		return 0;
	n = size - 1;
	/* Of exactly its size: a read behind it is seen. */
	text = malloc(n + sizeof("crc32c 01234567"));
	ENSURE(text);
	memcpy(text, data + 1, n);
	if (data[0] & FIX_SUM) {
		char sum[sizeof("crc32c 01234567\n")];

		snprintf(sum, sizeof(sum), "crc32c %08" PRIx32 "\n", crc32c(text, n));
		memcpy(text + n, sum, sizeof(sum) - 1);
		n += sizeof(sum) - 1;
	}
	text = realloc(text, n ? n : 1);
	p = some_profile();
	before = profile_text(p, &n_before);
	r = profile_load(p, text, n, (data[0] & PRIOR) != 0, &why);
	if (r == 0) {
		n_accepted++;
		use(p);
		again(p);
	} else {
		n_refused++;
		after = profile_text(p, &n_after);
		ENSURE((r == -EBADMSG || r == -EPROTONOSUPPORT) && why && *why);
		ENSURE(n_after == n_before && memcmp(before, after, n_after) == 0);
		free(after);
	}
	free(before);
	free(text);
	profile_free(p);
	return 0;
}
