/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handoff looks at its own lease again: for the object's sizes, and, of a file that is another
 * user's, for the inode that the daemon linked. A short lease may have ended and been collected by
 * then, which came back as -ENOENT, as if the key were not there.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "fakedaemon.h"
#include "interpose.h"

enum {
	SIZE = 100000,
	OTHER = 60002,
	LEASE = 60000,
};

static enum {
	AS_IT_IS,
	COLLECT, /* gc comes right after the link */
	REFUSE,  /* as the kernel refuses to link another user's file (fs.protected_hardlinks) */
} links;
static unsigned n_links;

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
	typedef int fn(int, const char *, int, const char *, int);
	int r;

	if (links != AS_IT_IS)
		n_links++;
	if (links == REFUSE) {
		errno = EPERM;
		return -1;
	}
	r = NEXT(fn *, "linkat")(from_fd, from, to_fd, to, flags);
	if (r == 0 && links == COLLECT)
		cr_assert_eq(unlinkat(to_fd, to, 0), 0);
	return r;
}

static int handoff(struct shmstore *s, struct shmstore_ticket *ret)
{
	int r;

	n_links = 0;
	r = shmstore_handoff(s, KEY("k"), LEASE, ret);
	links = AS_IT_IS;
	cr_assert_eq(n_links, 1);
	return r;
}

Test(lease_ended, before_the_sizes_were_read)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_ticket t = {.header_size = 1};
	struct shmstore *s;

	o.keep = true;
	cr_assert_eq(shmstore_open(p, "a", &o, &s), 0);
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	/* A store that was opened again does not know sizes. */
	cr_assert_eq(shmstore_open(p, "a", &o, &s), 0);
	links = COLLECT;
	cr_assert_eq(handoff(s, &t), -ESTALE);
	cr_assert_eq(t.header_size, 1, "written on success only");
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0, "the object is where it was");
	cr_assert_eq(shmstore_handoff(s, KEY("k"), LEASE, &t), 0);
	cr_assert_eq(t.buffer_size, SIZE);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
}

/* The daemon says where the lease is, and it is not there any more. */
static bool on_request(struct fake *f, int fd, const struct wire_header *h, const void *body,
		       const char *tail, void *arg)
{
	struct wire_brokered brokered = {0};
	char lease[128];

	(void)body, (void)tail, (void)arg;
	if (h->type != WIRE_BROKER)
		return false;
	snprintf(lease, sizeof(lease), "/elsewhere/inbox/%u/handoff/99999999999-0123456789abcdef",
		 (unsigned)geteuid());
	fake_reply(f, fd, WIRE_BROKERED, h->serial, &brokered, lease);
	return true;
}

Test(lease_ended, before_the_daemons_link_was_seen)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_ticket t = {.header_size = 1};
	struct shmstore *s;
	struct fake *f;

	if (geteuid() != 0)
		cr_skip_test("needs root: a file that is another user's");
	f = fake_start(p, true, on_request, NULL);
	s = scratch_store("a");
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(chown(scratch_store_path("a", "objects/k"), OTHER, OTHER), 0);
	links = REFUSE;
	cr_assert_eq(handoff(s, &t), -ESTALE);
	cr_assert_eq(t.header_size, 1, "written on success only");
	cr_assert(strstr(shmstore_error_detail(), "60000 ms"), "%s", shmstore_error_detail());
	cr_assert_eq(chown(scratch_store_path("a", "objects/k"), 0, 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	fake_stop(f);
	shmstore_partition_unref(p);
}
