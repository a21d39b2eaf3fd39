/* SPDX-License-Identifier: Apache-2.0 */
/* The tier's configuration as text, and whose word is taken for it. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "partition.h"
#include "scratch.h"
#include "tier.h"

static const struct shms_tier_config SAMPLE = {.path = "/srv/tier with blanks",
					       .max = UINT64_MAX,
					       .min_free = 1u << 30,
					       .level = 19,
					       .fsync = true,
					       .high = 100,
					       .low = 99};

Test(tierconfig, round_trips)
{
	char text[8192];
	struct shms_tier_config c;

	cr_assert_eq(shms_tier_config_format(&SAMPLE, text, sizeof(text)), 0);
	cr_assert_eq(shms_tier_config_parse(text, &c), 0);
	cr_assert_str_eq(c.path, SAMPLE.path);
	cr_assert_eq(c.max, SAMPLE.max);
	cr_assert_eq(c.min_free, SAMPLE.min_free);
	cr_assert_eq(c.level, SAMPLE.level);
	cr_assert(c.fsync);
	cr_assert_eq(c.high, 100);
	cr_assert_eq(c.low, 99);
}

Test(tierconfig, a_text_that_does_not_fit_is_no_text)
{
	char text[64];

	cr_assert_eq(shms_tier_config_format(&SAMPLE, text, sizeof(text)), -EINVAL);
}

/* Every text that is cut short, and every one with a line less, is damaged: nothing is guessed. */
Test(tierconfig, a_part_of_it_is_refused)
{
	char text[8192], part[8192];
	struct shms_tier_config c;
	size_t size;

	cr_assert_eq(shms_tier_config_format(&SAMPLE, text, sizeof(text)), 0);
	size = strlen(text);
	for (size_t i = 0; i < size; i++) {
		memset(part, 0, sizeof(part));
		memcpy(part, text, i);
		cr_assert_lt(shms_tier_config_parse(part, &c), 0, "%zu of %zu bytes", i, size);
	}
	for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
		memset(part, 0, sizeof(part));
		memcpy(part, text, (size_t)(line - text));
		strcat(part, strchr(line, '\n') + 1);
		cr_assert_lt(shms_tier_config_parse(part, &c), 0, "%s", part);
	}
}

Test(tierconfig, values_out_of_range_are_refused)
{
	static const char *const texts[] = {
		"shmstore tier 1\npath relative\nmax 0\nmin-free 0\nlevel 1\nfsync 0\nhigh 85\nlow "
		"75\n",
		"shmstore tier 1\npath /t\nmax x\nmin-free 0\nlevel 1\nfsync 0\nhigh 85\nlow 75\n",
		"shmstore tier 1\npath /t\nmax -1\nmin-free 0\nlevel 1\nfsync 0\nhigh 85\nlow 75\n",
		"shmstore tier 1\npath /t\nmax 18446744073709551616\nmin-free 0\nlevel 1\nfsync "
		"0\nhigh 85\nlow 75\n",
		"shmstore tier 1\npath /t\nmax 0\nmin-free 0\nlevel 20\nfsync 0\nhigh 85\nlow 75\n",
		"shmstore tier 1\npath /t\nmax 0\nmin-free 0\nlevel 1\nfsync 2\nhigh 85\nlow 75\n",
		"shmstore tier 1\npath /t\nmax 0\nmin-free 0\nlevel 1\nfsync 0\nhigh 101\nlow 75\n",
		"shmstore tier 1\npath /t\nmax 0\nmin-free 0\nlevel 1\nfsync 0\nhigh 75\nlow 75\n",
		"shmstore tier 1\npath /t\nmax 0\nmin-free 0\nlevel 1\nfsync 0\nhigh 85\nlow "
		"75\nmore 1\n",
	};
	struct shms_tier_config c;
	char text[512];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		strcpy(text, texts[i]);
		cr_assert_eq(shms_tier_config_parse(text, &c), -EBADMSG, "%s", texts[i]);
	}
	strcpy(text, "shmstore tier 2\npath /t\n");
	cr_assert_eq(shms_tier_config_parse(text, &c), -ENOTSUP);
}

static const char *below(const char *name)
{
	static char path[SCRATCH_PATH + 32];

	snprintf(path, sizeof(path), "%s/%s", scratch_partition_path(), name);
	return path;
}

static void write_config(const char *text, mode_t mode)
{
	const char *path = below("tier/config");
	FILE *f;

	unlink(path);
	f = fopen(path, "w");
	ENSURE(f && fputs(text, f) >= 0 && fclose(f) == 0 && chmod(path, mode) == 0);
}

Test(tierconfig, only_the_owners_word_is_taken)
{
	struct shmstore_partition *p = scratch_partition();
	struct shms_tier_config c;
	char text[8192];

	cr_assert_eq(shms_tier_config_read(p, &c), -ENOENT);
	cr_assert_eq(mkdir(below("tier"), 0755), 0);
	cr_assert_eq(shms_tier_config_format(&SAMPLE, text, sizeof(text)), 0);
	write_config(text, 0444);
	cr_assert_eq(shms_tier_config_read(p, &c), 0);
	cr_assert_str_eq(c.path, SAMPLE.path);
	/* Somebody else may have written it. */
	write_config(text, 0464);
	cr_assert_eq(shms_tier_config_read(p, &c), -EPERM);
	cr_assert_str_neq(shmstore_error_detail(), "");
	write_config("shmstore tier 1\n", 0444);
	cr_assert_eq(shms_tier_config_read(p, &c), -EBADMSG);
	if (geteuid() == 0) {
		write_config(text, 0444);
		cr_assert_eq(chown(below("tier/config"), 12345, (gid_t)-1), 0);
		cr_assert_eq(shms_tier_config_read(p, &c), -EPERM);
	}
	/* A link to a configuration elsewhere is none. */
	cr_assert_eq(unlink(below("tier/config")), 0);
	cr_assert_eq(symlink("/etc/hostname", below("tier/config")), 0);
	cr_assert_lt(shms_tier_config_read(p, &c), 0);
	shmstore_partition_unref(p);
}
