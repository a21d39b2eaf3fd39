/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ticket.c: the triplet as one line of text and back: "shmstore1:<header size>:<buffer
 * size>:<path>", the path percent-encoded where a byte is not printable ASCII, is a space or is
 * '%'. Pure. Any deviation is -EBADMSG.
 */
#include <errno.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <string.h>

#include "detail.h"
#include "name.h"

static const char PREFIX[] = "shmstore1:";

static bool plain(unsigned char c)
{
	return c > ' ' && c < 0x7f && c != '%';
}

int shmstore_ticket_format(const struct shmstore_ticket *t, char *ret_text, size_t text_size)
{
	char text[SHMSTORE_TICKET_TEXT];
	size_t n;

	if (!t || !ret_text || t->path[0] != '/' || !memchr(t->path, '\0', sizeof(t->path)))
		return !t || !ret_text
			       ? shms_detail_null(!t ? "t" : "ret_text")
			       : shms_detail(-EINVAL, NULL,
					     "the ticket's path is not absolute, or does not end");
	n = (size_t)snprintf(text, sizeof(text), "%s%llu:%llu:", PREFIX,
			     (unsigned long long)t->header_size,
			     (unsigned long long)t->buffer_size);
	for (const char *s = t->path; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (plain(c)) {
			text[n++] = (char)c;
		} else {
			text[n++] = '%';
			text[n++] = SHMS_NAME_DIGITS[c >> 4];
			text[n++] = SHMS_NAME_DIGITS[c & 15];
		}
	}
	text[n++] = '\0';
	if (n > text_size)
		return shms_detail(-EINVAL, NULL,
				   "the ticket takes %zu bytes, and there is room for %zu", n,
				   text_size);
	memcpy(ret_text, text, n);
	return 0;
}

/* A canonical decimal number ended by ':'. Returns what follows, NULL if there is none. */
static const char *parse_number(const char *s, uint64_t *ret)
{
	uint64_t n = 0;
	const char *start = s;

	for (; *s >= '0' && *s <= '9'; s++) {
		uint64_t d = (uint64_t)(*s - '0');

		if (n > (UINT64_MAX - d) / 10)
			return NULL;
		n = n * 10 + d;
	}
	if (s == start || *s != ':' || (*start == '0' && s > start + 1))
		return NULL;
	*ret = n;
	return s + 1;
}

#define NO_TICKET "\"%.200s\" is no ticket, or not the whole of one"

int shmstore_ticket_parse(const char *text, struct shmstore_ticket *ret)
{
	struct shmstore_ticket t = {0};
	const char *s;
	size_t n = 0;

	if (!text || !ret)
		return shms_detail_null(!text ? "text" : "ret");
	if (strncmp(text, PREFIX, sizeof(PREFIX) - 1) != 0)
		return shms_detail(-EBADMSG, NULL, NO_TICKET, text);
	s = parse_number(text + sizeof(PREFIX) - 1, &t.header_size);
	s = s ? parse_number(s, &t.buffer_size) : NULL;
	if (!s || *s != '/')
		return shms_detail(-EBADMSG, NULL, NO_TICKET, text);
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (n >= sizeof(t.path) - 1)
			return shms_detail(-EBADMSG, NULL, NO_TICKET, text);
		if (c == '%') {
			int hi = shms_name_digit(s[1]), lo = hi >= 0 ? shms_name_digit(s[2]) : -1;

			if (lo < 0)
				return shms_detail(-EBADMSG, NULL, NO_TICKET, text);
			c = (unsigned char)(hi << 4 | lo);
			if (c == '\0' || plain(c))
				return shms_detail(-EBADMSG, NULL, NO_TICKET, text);
			s += 2;
		} else if (!plain(c)) {
			return shms_detail(-EBADMSG, NULL, NO_TICKET, text);
		}
		t.path[n++] = (char)c;
	}
	*ret = t;
	return 0;
}
