/* SPDX-License-Identifier: Apache-2.0 */
/* Scrubbing the tier: whole files are fine, every damage is found and named, and no more is read in
 * a second than was asked for. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "sys.h"
#include "tier.h"
#include "tiered.h"
#include "tierformat.h"

enum {
	MB = 1 << 20
};

TestSuite(tier_verify, .timeout = 120);

struct found {
	unsigned n, n_bad;
	int error;
	char path[TIERED_PATH + 256], reason[256];
	uint64_t bytes;
	/* progress */
	unsigned n_calls, stop_after;
	uint64_t last, all;
};

static int on_finding(const struct shmstore_verify_finding *f, void *arg)
{
	struct found *to = arg;

	to->n++;
	to->bytes = f->bytes;
	if (!f->error)
		return 0;
	to->n_bad++;
	to->error = f->error;
	snprintf(to->path, sizeof(to->path), "%s", f->path);
	snprintf(to->reason, sizeof(to->reason), "%s", f->reason);
	return 0;
}

static int on_progress(uint64_t bytes, uint64_t bytes_all, void *arg)
{
	struct found *to = arg;

	cr_assert_geq(bytes, to->last);
	cr_assert_leq(bytes, bytes_all);
	to->last = bytes;
	to->all = bytes_all;
	return ++to->n_calls == to->stop_after;
}

static int verify(struct found *ret, uint64_t rate)
{
	struct shmstore_tier_verify what = {.size = sizeof(what),
					    .rate = rate,
					    .fn = on_finding,
					    .progress = on_progress,
					    .arg = ret};
	struct shmstore_partition *p = scratch_partition();
	int r = shmstore_tier_verify(p, &what);

	shmstore_partition_unref(p);
	return r;
}

static struct shmstore *store(void)
{
	static char words[9 * MB];
	struct iovec iov = {words, sizeof(words)};
	struct shmstore *s = scratch_store("a");

	/* Noise, which stays raw, and what compresses; both of several frames. */
	for (size_t i = 0; i < sizeof(words); i += 8)
		memcpy(words + i, &i, 8);
	cr_assert_eq(put_pattern(s, "raw", 9 * MB, 1, 0), 0);
	cr_assert_eq(shmstore_put(s, KEY("packed"), NULL, 0, &iov, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "clean", MB, 2, 0), 0);
	cr_assert_eq(put_pattern(s, "memory", MB, 3, 0), 0);
	for (const char *const *k = (const char *const[]){"raw", "packed", "clean", NULL}; *k; k++)
		cr_assert_eq(shmstore_demote(s, KEY(*k), 0), 0, "%s", shmstore_error_detail());
	cr_assert_eq(shmstore_promote(s, KEY("clean"), 0), 0);
	return s;
}

static uint64_t size_of(const char *key)
{
	struct stat st;

	cr_assert_eq(stat(tiered_file("a", key), &st), 0);
	return (uint64_t)st.st_size;
}

Test(tier_verify, whole_files_are_fine_and_all_of_them_is_read)
{
	struct found f = {0};
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = store();
	cr_assert_eq(verify(&f, 0), 0, "%s", shmstore_error_detail());
	cr_assert_eq(f.n, 3);
	cr_assert_eq(f.n_bad, 0, "%s: %s", f.path, f.reason);
	cr_assert_eq(f.bytes, size_of("raw") + size_of("packed") + size_of("clean"));
	cr_assert_eq(f.last, f.bytes);
	cr_assert_eq(f.all, f.bytes);
	cr_assert_eq(shmstore_close(s), 0);
}

/* Some bytes of every part of both kinds of file: header, key, table, padding, frames, the end. */
Test(tier_verify, a_changed_byte_anywhere_is_found_and_its_file_named)
{
	static const char *const keys[] = {"raw", "packed", "clean"};
	struct shmstore *s;
	uint64_t n_tried = 0;

	TIERED_OR_SKIP();
	s = store();
	for (size_t k = 0; k < 3; k++) {
		uint64_t size = size_of(keys[k]);
		uint64_t at[] = {0,    8,    100,  160,      257,         400,
				 4095, 4096, 5000, size / 2, size - 4096, size - 1};

		for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
			struct found f = {0};

			tiered_damage("a", keys[k], at[i]);
			cr_assert_eq(verify(&f, 0), 0);
			cr_assert_eq(f.n, 3);
			cr_assert_eq(f.n_bad, 1, "%s, byte %llu", keys[k],
				     (unsigned long long)at[i]);
			cr_assert_eq(f.error, -EBADMSG, "%s", f.reason);
			cr_assert_str_eq(f.path, tiered_file("a", keys[k]));
			cr_assert_neq(f.reason[0], '\0');
			tiered_damage("a", keys[k], at[i]); /* back */
			n_tried++;
		}
	}
	cr_assert_eq(n_tried, 36);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(tier_verify, a_file_cut_short_or_missing_is_found)
{
	struct found f = {0};
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = store();
	cr_assert_eq(chmod(tiered_file("a", "raw"), 0600), 0);
	cr_assert_eq(truncate(tiered_file("a", "raw"), 5 * MB), 0);
	cr_assert_eq(verify(&f, 0), 0);
	cr_assert_eq(f.n_bad, 1);
	cr_assert_str_eq(f.path, tiered_file("a", "raw"));
	cr_assert_eq(unlink(tiered_file("a", "raw")), 0);
	f = (struct found){0};
	cr_assert_eq(verify(&f, 0), 0);
	cr_assert_eq(f.n_bad, 1);
	cr_assert_eq(f.error, -EBADMSG);
	cr_assert_not_null(strstr(f.reason, "missing"));
	/* Of a clean copy nothing is lost. */
	cr_assert_eq(unlink(tiered_file("a", "clean")), 0);
	f = (struct found){0};
	cr_assert_eq(verify(&f, 0), 0);
	cr_assert_eq(f.n_bad, 1);
	cr_assert_eq(shmstore_delete(s, KEY("raw")), 0);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(tier_verify, files_of_no_object_are_not_looked_at)
{
	struct found f = {0};
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = store();
	cr_assert_eq(unlink(scratch_store_path("a", "objects/raw")), 0);
	cr_assert_eq(verify(&f, 0), 0);
	cr_assert_eq(f.n, 2);
	cr_assert_eq(f.n_bad, 0);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(tier_verify, the_rate_is_a_bound)
{
	struct found f = {0};
	struct shmstore *s;
	uint64_t begin, rate = 32 * MB, ns;

	TIERED_OR_SKIP();
	s = store();
	begin = shms_now_mono_ns();
	cr_assert_eq(verify(&f, rate), 0);
	ns = shms_now_mono_ns() - begin;
	cr_assert_eq(f.n_bad, 0);
	/* Never more than was allowed by now: a bound from below, whatever else the machine
	 * does. */
	cr_assert_geq((double)ns, (double)f.bytes / (double)rate * 1e9 * 0.99);
	cr_assert_gt(f.n_calls, 4);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(tier_verify, it_ends_when_it_is_told_to)
{
	struct found f = {.stop_after = 2};
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = store();
	cr_assert_eq(verify(&f, 1), -ECANCELED, "a byte a second would take years");
	cr_assert_eq(f.n_calls, 2);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(tier_verify, bad_arguments_and_no_tier_are_said)
{
	struct shmstore_tier_verify what = {.size = sizeof(what)};
	struct shmstore_partition *p = scratch_partition();
	struct found f = {0};

	cr_assert_eq(verify(&f, 0), -ENOENT);
	cr_assert_eq(shmstore_tier_verify(p, &what), -EINVAL);
	cr_assert_eq(shmstore_tier_verify(p, NULL), -EINVAL);
	what.fn = on_finding;
	what.size = 8;
	cr_assert_eq(shmstore_tier_verify(p, &what), -EINVAL);
	cr_assert_eq(shmstore_tier_verify(NULL, &what), -EINVAL);
	shmstore_partition_unref(p);
}

/* ---- shmstore_partition_verify() on stubs ---------------------------------------------------- */

/* Verifies the partition's memory: how many of the findings are bad; the last one is in *ret. */
static unsigned verify_memory(struct found *ret)
{
	struct shmstore_partition *p = scratch_partition();

	*ret = (struct found){0};
	cr_assert_eq(shmstore_partition_verify(p, on_finding, ret), 0);
	shmstore_partition_unref(p);
	return ret->n_bad;
}

Test(tier_verify, a_stub_is_fine_with_its_anchor_and_its_file_and_not_without)
{
	char away[2 * TIERED_PATH];
	struct shms_stub stub;
	struct shmstore *s;
	struct found f;

	TIERED_OR_SKIP();
	s = store();
	cr_assert_eq(verify_memory(&f), 0, "%s: %s", f.path, f.reason);
	snprintf(away, sizeof(away), "%s-away", tiered_disk());
	cr_assert_eq(rename(tiered_disk(), away), 0);
	cr_assert_eq(verify_memory(&f), 2);
	cr_assert_eq(f.error, -EIO);
	cr_assert_eq(rename(away, tiered_disk()), 0);

	cr_assert_eq(unlink(tiered_file("a", "clean")), 0);
	cr_assert_eq(verify_memory(&f), 0, "of a clean copy nothing is lost");
	cr_assert_eq(unlink(tiered_file("a", "raw")), 0);
	cr_assert_eq(verify_memory(&f), 1);
	cr_assert_eq(f.error, -EBADMSG);
	cr_assert_str_eq(f.path, scratch_store_path("a", "objects/raw"));
	cr_assert_not_null(strstr(f.reason, "missing"));

	cr_assert(tiered_stub("a", "objects", "packed", &stub));
	snprintf(away, sizeof(away), "%s/tier/%u/%016llx.stub", scratch_partition_path(),
		 (unsigned)geteuid(), (unsigned long long)stub.id);
	cr_assert_eq(unlink(away), 0);
	cr_assert_eq(verify_memory(&f), 2);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(tier_verify, a_link_that_is_no_stub_is_no_object)
{
	struct shmstore *s;
	struct found f;

	TIERED_OR_SKIP();
	s = scratch_store("a");
	cr_assert_eq(symlink("shmstore-tier:1:zz", scratch_store_path("a", "objects/k")), 0);
	cr_assert_eq(verify_memory(&f), 1);
	cr_assert_eq(f.error, -EBADMSG);
	cr_assert_eq(unlink(scratch_store_path("a", "objects/k")), 0);
	cr_assert_eq(shmstore_close(s), 0);
}
