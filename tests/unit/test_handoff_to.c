/* SPDX-License-Identifier: Apache-2.0 */
/* handoff_to: the donor's side, with a daemon that answers, refuses, lies, or says nothing. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "fakedaemon.h"

enum {
	SIZE = 100000,
	OTHER = 60002,
	LEASE = 60000,
};

/* The daemon's answer to a BROKER, and the error that the call must return. */
struct answer {
	const char *name;
	const char *path; /* of BROKERED; NULL: refuse, or with error 0 say nothing */
	int error;        /* of REFUSED */
	int expected;
};

static const struct answer ANSWERS[] = {
	{"a lease", "/elsewhere/inbox/60002/handoff/99999999999-0123456789abcdef", 0, 0},
	{"no rule", NULL, -EPERM, -EPERM},
	{"a full inbox", NULL, -EDQUOT, -EDQUOT},
	{"no access lists", NULL, -ENOTSUP, -ENOTSUP},
	{"an error of no list", NULL, -EKEYEXPIRED, -EIO},
	{"a refusal that is none", NULL, 5, -EPERM},
	{"no path", "", 0, -EBADMSG},
	{"a path without a lease", "/elsewhere/inbox/60002/handoff/x", 0, -EBADMSG},
	{"a name only", "99999999999-0123456789abcdef", 0, -EBADMSG},
	{"nothing", NULL, 0, -ETIMEDOUT},
};
#define N_ANSWERS (sizeof(ANSWERS) / sizeof(ANSWERS[0]))

struct seen {
	const struct answer *answer;
	uint32_t to_uid, lease_ms;
	char tail[SHMSTORE_TICKET_PATH];
	bool leased; /* the path that came was there */
};

static bool on_request(struct fake *f, int fd, const struct wire_header *h, const void *body,
		       const char *tail, void *arg)
{
	struct wire_brokered brokered = {0};
	struct wire_refused refused = {0};
	const struct wire_broker *b = body;
	struct seen *seen = arg;
	struct stat st;

	if (h->type != WIRE_BROKER)
		return false;
	seen->to_uid = b->to_uid;
	seen->lease_ms = b->lease_ms;
	snprintf(seen->tail, sizeof(seen->tail), "%.*s", (int)h->tail, tail);
	seen->leased = stat(seen->tail, &st) == 0;
	refused.error = seen->answer->error;
	if (seen->answer->path)
		fake_reply(f, fd, WIRE_BROKERED, h->serial, &brokered, seen->answer->path);
	else if (seen->answer->error)
		fake_reply(f, fd, WIRE_REFUSED, h->serial, &refused, "because");
	return true;
}

static struct fake *start(struct seen *seen)
{
	struct shmstore_partition *p = scratch_partition();
	struct fake *f = fake_start(p, true, on_request, seen);

	shmstore_partition_unref(p);
	return f;
}

ParameterizedTestParameters(handoff_to, the_daemons_answer_is_the_calls)
{
	static size_t which[N_ANSWERS];

	for (size_t i = 0; i < N_ANSWERS; i++)
		which[i] = i;
	return cr_make_param_array(size_t, which, N_ANSWERS);
}

ParameterizedTest(size_t *which, handoff_to, the_daemons_answer_is_the_calls)
{
	const struct answer *answer = &ANSWERS[*which];
	struct seen seen = {.answer = answer};
	struct fake *f = start(&seen);
	struct shmstore *s = scratch_store("a");
	struct shmstore_ticket t = {.header_size = 1};
	char expected[SCRATCH_PATH + 64];

	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff_to(s, KEY("k"), OTHER, LEASE, &t), answer->expected, "%s",
		     answer->name);
	cr_assert(seen.leased, "what was sent is a lease that is there");
	cr_assert_eq(seen.to_uid, OTHER);
	cr_assert_eq(seen.lease_ms, 0);
	if (answer->expected == 0) {
		/* The daemon's partition is elsewhere: ours is where we look. */
		snprintf(expected, sizeof(expected),
			 "%s/inbox/60002/handoff/99999999999-0123456789abcdef",
			 scratch_partition_path());
		cr_assert_str_eq(t.path, expected);
		cr_assert_eq(t.buffer_size, SIZE);
		cr_assert_eq(count_in_store("a", "handoff"), 1, "this daemon did not move it");
		cr_assert_eq(unlink(seen.tail), 0);
	} else {
		cr_assert_eq(t.header_size, 1, "written on success only");
		cr_assert_eq(count_in_store("a", "handoff"), 0, "%s: nothing is left",
			     answer->name);
	}
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	fake_stop(f);
}

Test(handoff_to, our_own_user_needs_no_daemon)
{
	struct shmstore *a, *b;
	struct shmstore_ticket t;

	fake_nowhere();
	a = scratch_store("a");
	b = scratch_store("b");
	cr_assert_eq(put_pattern(a, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff_to(a, KEY("k"), geteuid(), LEASE, &t), 0);
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, 0), 0);
	cr_assert_eq(shmstore_handoff_to(a, KEY("k"), OTHER, LEASE, &t), -EPERM);
	cr_assert_eq(count_in_store("a", "handoff"), 0);
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(b), 0);
	ensure_nothing_left();
}

Test(handoff_to, arguments_are_checked)
{
	struct seen seen = {.answer = &ANSWERS[0]};
	struct fake *f = start(&seen);
	struct shmstore *s = scratch_store("a");
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff_to(NULL, KEY("k"), OTHER, LEASE, &t), -EINVAL);
	cr_assert_eq(shmstore_handoff_to(s, KEY("k"), OTHER, LEASE, NULL), -EINVAL);
	cr_assert_eq(shmstore_handoff_to(s, KEY("k"), OTHER, 0, &t), -EINVAL);
	cr_assert_eq(shmstore_handoff_to(s, KEY("k"), OTHER, WIRE_BROKER_LEASE + UINT64_C(1), &t),
		     -EINVAL);
	cr_assert_eq(shmstore_handoff_to(s, NULL, 3, OTHER, LEASE, &t), -EINVAL);
	cr_assert_eq(shmstore_handoff_to(s, KEY("none"), OTHER, LEASE, &t), -ENOENT);
	cr_assert_eq(f->n_requests[WIRE_BROKER], 0);
	cr_assert_eq(shmstore_close(s), 0);
	fake_stop(f);
}
