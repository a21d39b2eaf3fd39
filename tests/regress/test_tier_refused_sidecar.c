/* SPDX-License-Identifier: Apache-2.0 */
/* An eviction that looked at an object in use, and left it, left a page of memory beside it:
 * the key of its hashed name. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "api.h"
#include "demote.h"
#include "handle.h"
#include "publish.h"
#include "tiered.h"

static unsigned n_names(const char *store)
{
	unsigned n = 0;
	struct dirent *e;
	DIR *dir = opendir(scratch_store_path(store, "objects"));

	cr_assert_not_null(dir);
	while ((e = readdir(dir)))
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

Test(tier_refused_sidecar, an_object_in_use_that_is_not_demoted_is_as_before)
{
	char hashed[400];
	struct shms_keyname name;
	struct shms_tier *t;

	memset(hashed, 'k', sizeof(hashed));
	hashed[sizeof(hashed) - 1] = '\0';
	scratch_dir("size=64m");
	TIERED_OR_SKIP();
	struct shmstore *s = scratch_store("s");
	cr_assert_eq(put_pattern(s, hashed, 300000, 1, 0), 0);
	struct shmstore_view *v = get_view(s, hashed, 0);
	cr_assert_eq(shms_keyname_init(&name, KEY(hashed)), 0);
	cr_assert_eq(shms_tier_own(scratch_partition(), &t), 0);
	/* As an eviction does that has others to choose from. */
	struct shms_demote_name n = {s->objects_fd, s->clean_fd, name.name, s};
	struct shms_demote d = {.t = t, .names = &n, .n_names = 1, .mapped = false};
	cr_assert_eq(shms_demote_one(&d), -EAGAIN);
	cr_assert_eq(shmstore_locate(s, KEY(hashed)), SHMSTORE_IN_MEMORY);
	cr_assert_eq(n_names("s"), 1);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}
