/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets as text. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "scratch.h"

static void round_trip(const struct shmstore_ticket *t, bool truncate)
{
	static char text[SHMSTORE_TICKET_TEXT], cut[SHMSTORE_TICKET_TEXT];
	struct shmstore_ticket back;
	size_t n;

	cr_assert_eq(shmstore_ticket_format(t, text, sizeof(text)), 0);
	n = strlen(text);
	cr_assert_lt(n, sizeof(text));
	for (size_t i = 0; i < n; i++)
		cr_assert(text[i] > ' ' && text[i] < 0x7f, "one word of printable text");
	memset(&back, 0xaa, sizeof(back));
	cr_assert_eq(shmstore_ticket_parse(text, &back), 0, "%s", text);
	cr_assert_eq(back.header_size, t->header_size);
	cr_assert_eq(back.buffer_size, t->buffer_size);
	cr_assert_str_eq(back.path, t->path);
	/* Room for exactly that and for one byte less. */
	memset(cut, 'x', sizeof(cut));
	cr_assert_eq(shmstore_ticket_format(t, cut, n + 1), 0);
	cr_assert_str_eq(cut, text);
	memset(cut, 'x', sizeof(cut));
	cr_assert_eq(shmstore_ticket_format(t, cut, n), -EINVAL);
	cr_assert_eq(cut[0], 'x', "nothing is written on failure");
	if (!truncate)
		return;
	/* A truncated ticket is no ticket, or one of a shorter path; never one of other sizes. */
	for (size_t k = 0; k < n; k++) {
		int r;

		memcpy(cut, text, k);
		cut[k] = '\0';
		memset(&back, 0xaa, sizeof(back));
		r = shmstore_ticket_parse(cut, &back);
		if (r == 0) {
			cr_assert_eq(back.header_size, t->header_size);
			cr_assert_eq(back.buffer_size, t->buffer_size);
			cr_assert_eq(strncmp(back.path, t->path, strlen(back.path)), 0);
			cr_assert_lt(strlen(back.path), strlen(t->path));
			cr_assert_eq(back.path[0], '/');
		} else {
			cr_assert_eq(r, -EBADMSG, "'%s'", cut);
			cr_assert_eq(((unsigned char *)&back)[0], 0xaa,
				     "nothing is written on failure");
		}
	}
}

static struct shmstore_ticket ticket(const char *path, uint64_t header_size, uint64_t buffer_size)
{
	struct shmstore_ticket t = {.header_size = header_size, .buffer_size = buffer_size};

	snprintf(t.path, sizeof(t.path), "%s", path);
	return t;
}

Test(ticket, usual_ticket_round_trips_and_every_truncation_is_safe)
{
	struct shmstore_ticket t =
		ticket("/mnt/shm/stores/worker-1/handoff/123456-0123456789abcdef", 4096, 67108864);

	round_trip(&t, true);
}

Test(ticket, odd_paths_round_trip)
{
	static const char *const paths[] = {
		"/",        "/a b/c\td\ne\r",      "/100%/%41/%%", "/:/:1:2:", "/\x01\x7f\x80\xff",
		"/\"'\\`$", "/\xc3\xa9t\xc3\xa9/", "/ ",           "/.../..",  "/shmstore1:1:2:/x",
	};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		struct shmstore_ticket t = ticket(paths[i], i, i * 64);

		round_trip(&t, true);
	}
}

Test(ticket, every_byte_in_a_path_round_trips)
{
	for (int c = 1; c < 256; c++) {
		char path[8] = {'/', 'a', (char)c, 'b', 0};
		struct shmstore_ticket t = ticket(path, 64, 0);

		round_trip(&t, false);
	}
}

Test(ticket, limits_of_sizes_and_path_round_trip)
{
	struct shmstore_ticket t = ticket("/x", UINT64_MAX, UINT64_MAX);

	round_trip(&t, true);
	t = ticket("/x", 0, 0);
	round_trip(&t, true);
	memset(t.path, '\xff', sizeof(t.path));
	t.path[0] = '/';
	t.path[sizeof(t.path) - 1] = '\0';
	t.header_size = t.buffer_size = UINT64_MAX;
	round_trip(&t, false); /* the longest text there is: SHMSTORE_TICKET_TEXT suffices */
}

Test(ticket, ticket_without_end_or_root_is_refused_by_format)
{
	struct shmstore_ticket t = ticket("/x", 1, 2);
	char text[SHMSTORE_TICKET_TEXT];

	cr_assert_eq(shmstore_ticket_format(NULL, text, sizeof(text)), -EINVAL);
	cr_assert_eq(shmstore_ticket_format(&t, NULL, 0), -EINVAL);
	cr_assert_eq(shmstore_ticket_format(&t, text, 0), -EINVAL);
	t.path[0] = 'x';
	cr_assert_eq(shmstore_ticket_format(&t, text, sizeof(text)), -EINVAL);
	t.path[0] = '\0';
	cr_assert_eq(shmstore_ticket_format(&t, text, sizeof(text)), -EINVAL);
	memset(t.path, '/', sizeof(t.path));
	cr_assert_eq(shmstore_ticket_format(&t, text, sizeof(text)), -EINVAL);
}

Test(ticket, malformed_text_is_refused)
{
	static const char *const texts[] = {
		"",
		"shmstore1",
		"shmstore1:",
		"shmstore1:1",
		"shmstore1:1:",
		"shmstore1:1:2",
		"shmstore1:1:2:",
		"shmstore1:1:2:x",
		"shmstore1::2:/x",
		"shmstore1:1::/x",
		"shmstore1:-1:2:/x",
		"shmstore1:+1:2:/x",
		"shmstore1: 1:2:/x",
		"shmstore1:01:2:/x",
		"shmstore1:0x1:2:/x",
		"shmstore1:1.0:2:/x",
		"shmstore1:18446744073709551616:2:/x",
		"shmstore1:1:99999999999999999999:/x",
		"shmstore1:1:2:/x y",
		"shmstore1:1:2:/x\n",
		"shmstore1:1:2:/x\x80",
		"shmstore1:1:2:/x%",
		"shmstore1:1:2:/x%4",
		"shmstore1:1:2:/x%zz",
		"shmstore1:1:2:/x%00",
		"shmstore1:1:2:/x%41",
		"shmstore1:1:2:/x%2f",
		"shmstore1:1:2:%2Fx",
		"shmstore2:1:2:/x",
		"Shmstore1:1:2:/x",
		" shmstore1:1:2:/x",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct shmstore_ticket t;

		memset(&t, 0xaa, sizeof(t));
		cr_assert_eq(shmstore_ticket_parse(texts[i], &t), -EBADMSG, "'%s'", texts[i]);
		cr_assert_eq(((unsigned char *)&t)[0], 0xaa, "'%s'", texts[i]);
	}
	cr_assert_eq(shmstore_ticket_parse(NULL, &(struct shmstore_ticket){0}), -EINVAL);
	cr_assert_eq(shmstore_ticket_parse("shmstore1:1:2:/x", NULL), -EINVAL);
}

Test(ticket, path_of_4095_bytes_is_taken_and_4096_is_not)
{
	static char text[SHMSTORE_TICKET_TEXT];
	struct shmstore_ticket t;
	size_t n = (size_t)sprintf(text, "shmstore1:1:2:/");

	memset(text + n, 'x', 4094);
	text[n + 4094] = '\0';
	cr_assert_eq(shmstore_ticket_parse(text, &t), 0);
	cr_assert_eq(strlen(t.path), 4095);
	text[n + 4094] = 'x';
	text[n + 4095] = '\0';
	cr_assert_eq(shmstore_ticket_parse(text, &t), -EBADMSG);
}
