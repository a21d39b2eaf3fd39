/* SPDX-License-Identifier: Apache-2.0 */
/* A mark is read back as it was written, a damaged one is refused, and what proves that a partition
 * is gone is neither less nor more. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tiermark.h"

static struct shms_tiermark example(void)
{
	struct shms_tiermark m = {
		.uuid = "5a4f9c0e-8a0b-4c4e-9f9f-0d2a6f1b7c11",
		.host = "0123456789abcdef0123456789abcdef",
		.boot = "fedcba9876543210fedcba9876543210",
		.device = UINT64_MAX,
		.fsid = 0x0123456789abcdefu,
		.path = "/dev/shm/with a space",
	};
	return m;
}

Test(tiermark, what_is_written_is_read)
{
	struct shms_tiermark m = example(), back;
	char text[SHMS_TIERMARK_TEXT];

	cr_assert_eq(shms_tiermark_format(&m, text), 0);
	cr_assert_eq(shms_tiermark_parse(text, &back), 0);
	cr_assert_eq(memcmp(&m, &back, sizeof(m)), 0);
	m.fsid = 0; /* as it was written before there was one */
	cr_assert_eq(shms_tiermark_format(&m, text), 0);
	cr_assert_null(strstr(text, "fsid"));
	cr_assert_eq(shms_tiermark_parse(text, &back), 0);
	cr_assert_eq(memcmp(&m, &back, sizeof(m)), 0);
	snprintf(m.host, sizeof(m.host), "-");
	memset(m.path, 'p', sizeof(m.path) - 1);
	m.path[0] = '/';
	cr_assert_eq(shms_tiermark_format(&m, text), 0);
	cr_assert_eq(shms_tiermark_parse(text, &back), 0);
	cr_assert_str_eq(back.host, "-");
	cr_assert_str_eq(back.path, m.path);
	m.path[7] = '\n';
	cr_assert_eq(shms_tiermark_format(&m, text), -EINVAL);
}

Test(tiermark, any_cut_or_changed_text_is_refused_or_says_something_else)
{
	struct shms_tiermark m = example(), back;
	char text[SHMS_TIERMARK_TEXT], cut[SHMS_TIERMARK_TEXT];
	size_t n;

	cr_assert_eq(shms_tiermark_format(&m, text), 0);
	n = strlen(text);
	for (size_t i = 0; i < n; i++) {
		memcpy(cut, text, i);
		cut[i] = '\0';
		cr_assert_lt(shms_tiermark_parse(cut, &back), 0, "%zu bytes", i);
		memcpy(cut, text, n + 1);
		cut[i] = '\t';
		if (shms_tiermark_parse(cut, &back) == 0)
			cr_assert_neq(memcmp(&m, &back, sizeof(m)), 0, "byte %zu", i);
	}
	snprintf(cut, sizeof(cut), "%sx", text);
	cr_assert_eq(shms_tiermark_parse(cut, &back), -EBADMSG);
	memcpy(cut, text, n + 1);
	memcpy(strchr(cut, '1'), "2", 1);
	cr_assert_eq(shms_tiermark_parse(cut, &back), -ENOTSUP);
}

Test(tiermark, gone_is_only_what_is_proved_to_be)
{
	static const struct {
		bool same_boot, same_host, known_host, whole, mounted, gone;
	} cases[] = {
		{.same_boot = false, .same_host = true, .known_host = true, .gone = true},
		{.same_boot = false,
		 .same_host = true,
		 .known_host = true,
		 .mounted = true,
		 .gone = true},
		{.same_boot = false,
		 .same_host = true,
		 .known_host = false,
		 .whole = true,
		 .gone = false},
		{.same_boot = false,
		 .same_host = false,
		 .known_host = true,
		 .whole = true,
		 .gone = false},
		{.same_boot = true,
		 .same_host = true,
		 .known_host = true,
		 .whole = true,
		 .gone = true},
		{.same_boot = true,
		 .same_host = true,
		 .known_host = true,
		 .whole = false,
		 .gone = false},
		{.same_boot = true,
		 .same_host = true,
		 .known_host = true,
		 .whole = true,
		 .mounted = true,
		 .gone = false},
		{.same_boot = true,
		 .same_host = true,
		 .known_host = true,
		 .mounted = true,
		 .gone = false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct shms_tiermark m = example();
		struct shms_tiermark_facts f = {
			.here = m, .whole = cases[i].whole, .mounted = cases[i].mounted};
		const char *why = NULL;

		if (!cases[i].same_boot)
			m.boot[0] = '0';
		if (!cases[i].same_host)
			m.host[0] = 'f';
		if (!cases[i].known_host) {
			snprintf(m.host, sizeof(m.host), "-");
			snprintf(f.here.host, sizeof(f.here.host), "-");
		}
		cr_assert_eq(shms_tiermark_gone(&m, &f, &why), cases[i].gone, "case %zu: %s", i,
			     why);
		cr_assert(why && *why);
	}
}

/* A device number that was given anew proves it, where both mounts are known. */
Test(tiermark, another_mount_of_the_same_device_proves_it)
{
	struct shms_tiermark m = example();
	struct shms_tiermark_facts f = {.here = m, .mounted = true};
	const char *why = NULL;

	cr_assert_not(shms_tiermark_gone(&m, &f, &why), "the same mount");
	f.here.fsid++;
	cr_assert(shms_tiermark_gone(&m, &f, &why));
	f.here.device--;
	cr_assert_not(shms_tiermark_gone(&m, &f, &why), "another device");
	f.here.device++;
	f.here.fsid = 0;
	cr_assert_not(shms_tiermark_gone(&m, &f, &why), "unknown here");
	f.here.fsid = m.fsid + 1;
	m.fsid = 0;
	cr_assert_not(shms_tiermark_gone(&m, &f, &why), "unknown there");
}

/* Where /proc could not be read, a boot is all zero: another one than any, and
 * yet no proof of anything. */
Test(tiermark, an_unknown_boot_proves_nothing)
{
	struct shms_tiermark m = example();
	struct shms_tiermark_facts f = {.here = m, .whole = true};
	const char *why = NULL;

	memset(f.here.boot, '0', 32);
	cr_assert_not(shms_tiermark_gone(&m, &f, &why));
	f.here = m;
	memset(m.boot, '0', 32);
	cr_assert_not(shms_tiermark_gone(&m, &f, &why));
	memset(f.here.boot, '0', 32);
	cr_assert_not(shms_tiermark_gone(&m, &f, &why));
}
