/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon whose answers are cut, wrong in some bit, misplaced, or lies: the store goes on
 * alone, and finds the next one. */
#include <criterion/criterion.h>
#include <errno.h>
#include <sys/socket.h>

#include "api.h"
#include "attached.h"

/* ---- wrong ---- */

/* Answers each request of a type with the bytes of the right answer, cut or changed. */
struct wrong {
	uint16_t type;
	size_t keep;     /* bytes that are left of it; more: zeros are added */
	size_t flip;     /* byte that is inverted; SIZE_MAX: none */
	bool once_right; /* nothing is changed */
};

static bool wrong_handler(struct fake *f, int fd, const struct wire_header *h, const void *body,
			  const char *tail, void *arg)
{
	struct wrong *w = arg;
	unsigned char packet[256] = {0};
	struct wire_welcome welcome = {.version = WIRE_VERSION, .epoch = f->epoch};
	struct wire_registered reg = {.id = 1};
	struct wire_granted granted = {0};

	(void)body;
	(void)tail;
	if (h->type != w->type)
		return false;
	if (h->type == WIRE_HELLO)
		wire_pack(packet, sizeof(packet), WIRE_WELCOME, h->serial, &welcome, NULL, 0);
	else if (h->type == WIRE_REGISTER)
		wire_pack(packet, sizeof(packet), WIRE_REGISTERED, h->serial, &reg, NULL, 0);
	else
		wire_pack(packet, sizeof(packet), WIRE_GRANTED, h->serial, &granted, NULL, 0);
	if (w->flip != SIZE_MAX)
		packet[w->flip] = (unsigned char)~packet[w->flip];
	fake_send(fd, packet, w->keep);
	return true;
}

/* One store's life against such a daemon. */
static void live(struct wrong *w)
{
	struct fake *f = attach_start(false, wrong_handler, w);
	int r;

	f->room = 1 << 30;
	struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	cr_assert_eq(r, 0);
	if (w->once_right || w->type == WIRE_GRANT)
		cr_assert(attach_becomes_registered(s));
	attach_ensure_works(s);
	cr_assert_eq(attach_registered(s), w->once_right, "type %u keep %zu flip %zd", w->type,
		     w->keep, (ssize_t)w->flip);
	cr_assert_eq(shmstore_close(s), 0);
	fake_stop(f);
}

Test(attach_wrong, truncated_greetings_are_refused)
{
	for (size_t keep = 1; keep < sizeof(struct wire_header) + sizeof(struct wire_welcome);
	     keep++)
		live(&(struct wrong){WIRE_HELLO, keep, SIZE_MAX, false});
	for (size_t keep = 1; keep < sizeof(struct wire_header) + sizeof(struct wire_registered);
	     keep++)
		live(&(struct wrong){WIRE_REGISTER, keep, SIZE_MAX, false});
	live(&(struct wrong){WIRE_REGISTER,
			     sizeof(struct wire_header) + sizeof(struct wire_registered), SIZE_MAX,
			     true});
	live(&(struct wrong){WIRE_REGISTER, 200, SIZE_MAX, false});
}

Test(attach_wrong, wrong_headers_are_refused)
{
	size_t whole = sizeof(struct wire_header) + sizeof(struct wire_registered);

	for (size_t flip = 0; flip < sizeof(struct wire_header); flip++)
		live(&(struct wrong){WIRE_REGISTER, whole, flip, false});
}

Test(attach_wrong, wrong_answers_to_a_grant_end_the_connection)
{
	size_t whole = sizeof(struct wire_header) + sizeof(struct wire_granted);

	for (size_t keep = 1; keep < whole; keep++)
		live(&(struct wrong){WIRE_GRANT, keep, SIZE_MAX, false});
	for (size_t flip = 0; flip < sizeof(struct wire_header); flip++)
		live(&(struct wrong){WIRE_GRANT, whole, flip, false});
}

/* Says a thing that is well-formed, and out of place. */
static bool misplaced_handler(struct fake *f, int fd, const struct wire_header *h, const void *body,
			      const char *tail, void *arg)
{
	static const unsigned char zeros[64];

	(void)body;
	(void)tail;
	if (h->type != WIRE_GRANT)
		return false;
	fake_reply(f, fd, *(uint16_t *)arg, h->serial, zeros, NULL);
	return true;
}

Test(attach_wrong, misplaced_messages_end_the_connection)
{
	static const uint16_t types[] = {WIRE_WELCOME, WIRE_PONG,     WIRE_REGISTERED,
					 WIRE_REFUSED, WIRE_DATA,     WIRE_EVENT,
					 WIRE_ERROR,   WIRE_BROKERED, WIRE_DONE};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		uint16_t type = types[i];
		struct fake *f = attach_start(false, misplaced_handler, &type);
		int r;

		f->room = 1 << 30;
		struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
		cr_assert(attach_becomes_registered(s));
		attach_ensure_works(s);
		cr_assert_not(attach_registered(s), "type %u", type);
		shmstore_close(s);
		fake_stop(f);
	}
}

/* Grants in words, and not in the page. */
static bool liar_handler(struct fake *f, int fd, const struct wire_header *h, const void *body,
			 const char *tail, void *arg)
{
	struct wire_granted granted = {.granted = UINT64_MAX, .bytes = 1 << 30};

	(void)body;
	(void)tail;
	(void)arg;
	if (h->type != WIRE_GRANT)
		return false;
	fake_reply(f, fd, WIRE_GRANTED, h->serial, &granted, NULL);
	return true;
}

Test(attach_wrong, grants_that_are_none_are_an_error)
{
	struct fake *f = attach_start(true, liar_handler, NULL);
	int r;

	f->room = 0;
	struct shmstore *s = attach_open_as(SHMSTORE_DAEMON_AUTO, &r);
	r = put_pattern(s, "k", SIZE, 1, 0);
	cr_assert(r == -EDQUOT || r == -ENOSPC);
	cr_assert_eq(count_in_store("a", "objects"), 0);
	shmstore_close(s);
	fake_stop(f);
}
