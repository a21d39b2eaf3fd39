/* SPDX-License-Identifier: Apache-2.0 */
/* Values and files of the configuration: what is taken, what is refused and with which words. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "scratch.h"
#include "wire.h"

#define MIB (UINT64_C(1) << 20)

static const char *file_at(const char *name, const char *text)
{
	static char path[SCRATCH_PATH];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", scratch_dir(NULL), name);
	f = fopen(path, "w");
	ENSURE(f && fputs(text, f) >= 0 && fclose(f) == 0);
	return path;
}

static struct config *right(const char *text)
{
	struct config *c;
	char *error = NULL;

	cr_assert_eq(config_read(file_at("x.conf", text), &c, &error), 0, "%s: %s", text, error);
	return c;
}

/* The file is refused, and the error begins with its name and line and has each of the words. */
static void wrong(const char *text, int line, const char *word, const char *other)
{
	char start[SCRATCH_PATH + 16], *error = NULL;
	const char *path = file_at("x.conf", text);
	struct config *c;

	cr_assert_eq(config_read(path, &c, &error), -EINVAL, "%s", text);
	snprintf(start, sizeof(start), "%s:%d: ", path, line);
	cr_assert(error && strncmp(error, start, strlen(start)) == 0, "%s: %s", text, error);
	cr_assert(strstr(error, word), "%s: no \"%s\" in: %s", text, word, error);
	cr_assert(strstr(error, other), "%s: no \"%s\" in: %s", text, other, error);
	free(error);
}

Test(config, sizes)
{
	static const struct {
		const char *text;
		uint64_t total, bytes;
	} good[] = {
		{"0", 0, 0},
		{"4096", 0, 4096},
		{"1K", 0, 1024},
		{"64MiB", 0, 64 * MIB},
		{"1.5G", 0, 1536 * MIB},
		{"2kB", 0, 2000},
		{"1T", 0, UINT64_C(1) << 40},
		{"50%", 1000, 500},
		{"12.5%", 8000, 1000},
		{"100%", 4096 * MIB, 4096 * MIB},
	};
	static const char *const bad[] = {"",      "x",   "-1",   "1x",  "1 2",
					  "0x10",  "1e9", "nan",  "inf", ".",
					  "1..5K", "K",   "101%", "5%%", "99999999T"};
	uint64_t bytes;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		cr_assert_eq(config_parse_size(good[i].text, good[i].total, &bytes), 0, "%s",
			     good[i].text);
		cr_assert_eq(bytes, good[i].bytes, "%s: %lu", good[i].text, (unsigned long)bytes);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert_eq(config_parse_size(bad[i], 1000, &bytes), -EINVAL, "%s", bad[i]);
	cr_assert_eq(config_parse_size("50%", 0, &bytes), -EINVAL, "a percentage of nothing");
}

Test(config, durations)
{
	static const char *const bad[] = {"", "x", "-1s", "1y", "1 s s", "0x1", "1e3"};
	uint64_t ns;

	cr_assert(configkey_duration("250ms", &ns) == 0 && ns == 250000000);
	cr_assert(configkey_duration("10s", &ns) == 0 && ns == 10000000000);
	cr_assert(configkey_duration("7", &ns) == 0 && ns == 7000000000);
	cr_assert(configkey_duration("5min", &ns) == 0 && ns == 300000000000);
	cr_assert(configkey_duration("1.5h", &ns) == 0 && ns == 5400000000000);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert_eq(configkey_duration(bad[i], &ns), -EINVAL, "%s", bad[i]);
}

Test(config, a_profile_s_choice_needs_no_quotes)
{
	static const char *const texts[] = {
		"profile { private = conservative=p95 }",
		"profile { private =\tconservative=p95\n}",
		"profile {\nprivate=conservative=p95\n}",
		"profile { private = \"conservative=p95\" }",
	};

	for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct config *c = right(texts[i]);

		cr_assert_eq(c->profile.strategy.strategy, PROFILE_P95, "%s", texts[i]);
		config_free(c);
	}
	wrong("profile { private = conservative=p96 }", 1, "private", "p96");
}

Test(config, empty_file_is_the_defaults)
{
	struct config *c;

	setenv("SHMSTORE_PARTITION", "/dev/shm/of-this-test", 1);
	c = right("# nothing\n");
	cr_assert_eq(c->n_partitions, 1);
	cr_assert_str_eq(c->partitions[0].path, "/dev/shm/of-this-test");
	cr_assert(c->partitions[0].create);
	cr_assert_eq(c->credit, 64 * MIB);
	cr_assert_eq(c->http_port, 9477);
	cr_assert_str_eq(c->http_address, "127.0.0.1");
	cr_assert_null(config_free(c));
	cr_assert_null(config_free(NULL));
}

Test(config, disk_keys)
{
	struct config *c = right(
		"partition \"/a\" { disk.path = /var/lib/x\n disk.max = 4G\n disk.min-free = 2M\n"
		"disk.level = 3\n disk.fsync = yes\n disk.high = 60%\n disk.low = 0% }\n"
		"partition \"/b\" { disk.path = none\n disk.min-free = 3M\n disk.max = none }\n"
		"partition \"/c\" { }\n");
	const struct config_disk *d = &c->partitions[0].disk;

	cr_assert_str_eq(d->path, "/var/lib/x");
	cr_assert(d->max == 4096 * MIB && d->min_free == 2 * MIB && d->level == 3 && d->fsync);
	cr_assert(d->high == 60 && d->low == 0);
	d = &c->partitions[1].disk;
	cr_assert_str_eq(d->path, "none");
	cr_assert(d->max == 0 && d->min_free == 3 * MIB);
	d = &c->partitions[2].disk;
	cr_assert_null(d->path);
	cr_assert(d->max == 0 && d->min_free == 1024 * MIB && d->level == 1 && !d->fsync);
	cr_assert(d->high == 85 && d->low == 75);
	cr_assert(d->scrub_ns == 7 * UINT64_C(86400000000000) && d->scrub_rate == 16 * MIB);
	config_free(c);
}

Test(config, disk_values_that_cannot_be)
{
	static const char *const bad[] = {
		"disk.path = x",   "disk.path = \"\"", "disk.max = 5",     "disk.max = 10%",
		"disk.level = 20", "disk.fsync = 2",   "disk.high = 101%", "disk.high = 85",
		"disk.high = -1%", "disk.high = %",    "disk.low = 100%",  "disk.low = 1000%",
		"disk.low = 7.5%", "disk.min-free = x"};
	char text[128], *error;
	struct config *c;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(text, sizeof(text), "partition \"/a\" {\n%s\n}\n", bad[i]);
		wrong(text, 2, "is not right here", "disk.");
	}
	cr_assert_eq(config_read(file_at("y.conf",
					 "partition \"/a\" { disk.high = 50%\n disk.low = 50% }\n"),
				 &c, &error),
		     -EINVAL);
	cr_assert(strstr(error, "disk.low is not below disk.high"), "%s", error);
	free(error);
}

Test(config, partitions_have_limits_of_each_kind)
{
	const struct config_limit want[] = {
		{WIRE_LIMIT_PARTITION, (char[]){""}, 8 * MIB, 4 * MIB},
		{WIRE_LIMIT_USER, (char[]){"*"}, 2 * MIB, CONFIG_LIMIT_DEFAULT},
		{WIRE_LIMIT_USER, (char[]){"0"}, 3 * MIB, MIB},
		{WIRE_LIMIT_LABEL, (char[]){"w"}, CONFIG_LIMIT_DEFAULT, MIB},
		{WIRE_LIMIT_STORE, (char[]){"s"}, MIB, CONFIG_LIMIT_DEFAULT},
	};
	struct config *c =
		right("partition \"/a\" { limit = 8M\n soft = 4M\n user \"*\" { limit = 2M }\n"
		      "user \"root\" { limit = 3M\n soft = 1M } label \"w\" { soft = 1M }\n store "
		      "\"s\" { limit = 1M } }\n"
		      "partition \"/b\" { watermark-low = 70%\n watermark-high = 2M\n "
		      "survey-interval = 5min }\n");

	cr_assert_eq(c->n_partitions, 2);
	cr_assert_eq(c->partitions[0].n_limits, sizeof(want) / sizeof(want[0]));
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		const struct config_limit *l = &c->partitions[0].limits[i];

		cr_assert(l->kind == want[i].kind && strcmp(l->id, want[i].id) == 0 &&
				  l->hard == want[i].hard && l->soft == want[i].soft,
			  "limit %zu: %u %s", i, l->kind, l->id);
	}
	cr_assert_eq(c->partitions[1].watermark_low, 700000);
	cr_assert_eq(c->partitions[1].watermark_high, 2 * MIB);
	cr_assert_eq(c->partitions[1].survey_interval_ns, 300000000000);
	config_free(c);
}

Test(config, errors_name_file_line_and_the_nearest_key)
{
	wrong("daemon {\n credti = 1M\n}\n", 2, "credti", "\"credit\"");
	wrong("\n\npratition \"/a\" {\n}\n", 3, "pratition", "\"partition\"");
	wrong("partition \"/a\" {\n user \"0\" {\n  limt = 1M\n }\n}\n", 3, "limt", "\"limit\"");
	wrong("http {\n\n port = 70000\n}\n", 3, "port", "70000");
	wrong("http {\n enabled = perhaps\n}\n", 2, "enabled", "yes or no");
	wrong("daemon {\n credit = 1B\n}\n", 2, "credit", "\"1B\"");
	wrong("daemon {\n log-level = loud\n}\n", 2, "log-level", "loud");
	wrong("partition \"a\" { }\n", 1, "\"a\"", "path");
	wrong("partition \"/a\" { }\npartition \"/a\" { }\n", 2, "duplicate", "/a");
	wrong("partition \"/a\" {\n limit = 1M\n soft = 2M\n}\n", 4, "soft", "limit");
	wrong("partition \"/a\" {\n user \"no such user\" { limit = 1M }\n}\n", 2, "no such user",
	      "name one");
	wrong("partition \"/a\" {\n label \"x\" { limit = 50% }\n}\n", 2, "50%", "size");
	wrong("handoff \"h\" {\n from = { any }\n}\n", 3, "from and to", "\"h\"");
	wrong("handoff \"h\" {\n from = { any }\n to = { \"user:no such\" }\n}\n", 4,
	      "user:no such", "user:NAME");
	wrong("daemon {\n credit = 1M\n", 3, "missing", "}");
	wrong("daemon {\n socket = \"/x\n", 4, "end of file", "");
}

Test(config, words_of_one_actor_s_copies)
{
	static const char *const bad[] = {"retry",           "=3",
					  "retry=",          "retry=x",
					  "frequency=1ms",   "timeout=5s",
					  "name=a",          "recover-after=1s",
					  "retry=1 num=all", "preempt-from-stale=maxage"};
	struct config *c = right(
		"peers { selection = random\n retry = 7\n preempt-from-stale = \"maxage:5\" }\n");
	struct config_copies own;
	char why[CONFIG_WHY] = "";

	cr_assert(c->peers.copies.stale.policy == CKPT_MAXAGE && c->peers.copies.stale.ms == 5);
	cr_assert_eq(config_copies_read("", &c->peers.copies, &own, why), 0);
	cr_assert_str_eq(own.selection, "random");
	cr_assert(own.retry == 7 && own.num.k == 1 && own.stale.ms == 5 && !own.on);
	config_copies_clear(&own);
	cr_assert_eq(config_copies_read(
			     "  copies=yes num=explicit:2,min=1  selection=fixed:a,b retry=0 "
			     "frequency=20ms "
			     "panic-on-missing=yes preempt-from-stale=always strategy=all retry=2",
			     &c->peers.copies, &own, why),
		     0, "%s", why);
	cr_assert(own.on && own.num.k == 2 && own.retry == 2 && own.frequency_ns == 20000000 &&
		  own.panic_on_missing);
	cr_assert(own.stale.policy == CKPT_ALWAYS && own.strategy == CKPT_ALL);
	cr_assert_str_eq(own.selection, "fixed:a,b");
	cr_assert_str_eq(own.num.text, "explicit:2,min=1");
	cr_assert_str_eq(c->peers.copies.selection, "random");
	config_copies_clear(&own);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		why[0] = '\0';
		cr_assert_eq(config_copies_read(bad[i], &c->peers.copies, &own, why), -EINVAL, "%s",
			     bad[i]);
		cr_assert(strlen(why) > 20, "%s: %s", bad[i], why);
	}
	config_free(c);
}

Test(config, files_that_cannot_be_read_are_named)
{
	const char *path = file_at("dir.d", "");
	struct config *c;
	char *error = NULL;

	cr_assert_eq(config_read("/nonexistent/x.conf", &c, &error), -ENOENT);
	cr_assert(error && strstr(error, "/nonexistent/x.conf: "));
	free(error);
	unlink(path);
	ENSURE(mkdir(path, 0700) == 0);
	error = NULL;
	cr_assert_eq(config_read(path, &c, &error), -EISDIR);
	cr_assert(error && strstr(error, path));
	free(error);
	/* Drop-ins that cannot be listed are not none. */
	file_at("z.conf.d", "");
	error = NULL;
	cr_assert_eq(config_read(file_at("z.conf", ""), &c, &error), -ENOTDIR);
	cr_assert(error && strstr(error, "z.conf.d: "));
	free(error);
}
