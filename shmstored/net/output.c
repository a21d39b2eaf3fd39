/* SPDX-License-Identifier: Apache-2.0 */
/* output.c: see conn.h. A packet's size is in its header: the buffers need no table. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "conn.h"
#include "wire.h"

void output_forget_documents(struct output *o)
{
	struct output_document *d;

	while ((d = o->documents)) {
		o->documents = d->next;
		free(d);
	}
	o->documents_size = 0;
}

void output_deinit(struct output *o)
{
	output_forget_documents(o);
	free(o->fills.data);
	free(o->goes.data);
	*o = (struct output){0};
}

static int make_room(struct output_side *s, size_t n)
{
	size_t size = s->size ? s->size : OUTPUT_SMALL;
	char *data;

	while (size - s->used < n)
		size *= 2;
	if (size == s->size)
		return 0;
	data = realloc(s->data, size);
	if (!data)
		return -ENOMEM;
	s->data = data;
	s->size = size;
	return 0;
}

static int append(struct output_side *s, uint16_t type, uint64_t serial, const void *body,
		  const void *tail, size_t tail_size)
{
	int r = make_room(s, sizeof(struct wire_header) + 64 + tail_size);
	size_t n;

	if (r < 0)
		return r;
	n = wire_pack(s->data + s->used, s->size - s->used, type, serial, body, tail, tail_size);
	if (!n)
		return -EMSGSIZE;
	s->used += n;
	return 0;
}

size_t output_waits(const struct output *o)
{
	return o->fills.used + o->goes.used - o->goes.at;
}

int output_add(struct output *o, size_t limit, uint16_t type, uint64_t serial, const void *body,
	       const void *tail, size_t tail_size)
{
	if (limit && output_waits(o) + sizeof(struct wire_header) + 64 + tail_size > limit)
		return -ENOBUFS;
	return append(&o->fills, type, serial, body, tail, tail_size);
}

int output_add_document(struct output *o, uint64_t serial, const char *text, size_t n)
{
	struct output_document *d;

	if (n > OUTPUT_DOCUMENTS_MAX - o->documents_size)
		return -ENOBUFS;
	d = malloc(sizeof(*d) + n);
	if (!d)
		return -ENOMEM;
	*d = (struct output_document){.serial = serial, .size = n};
	memcpy(d->text, text, n);
	LL_APPEND(o->documents, d);
	o->documents_size += n;
	return 0;
}

/* Cuts the next packet of the first document. */
static void cut(struct output *o)
{
	struct output_document *d = o->documents;
	size_t left = d->size - d->at, n = left < WIRE_DATA_MAX ? left : WIRE_DATA_MAX;
	struct wire_data body = {.flags = n < left ? WIRE_DATA_MORE : 0};

	if (append(&o->goes, WIRE_DATA, d->serial, &body, d->text + d->at, n) < 0)
		return; /* no memory: the next call tries again */
	d->at += n;
	if (n < left)
		return;
	o->documents = d->next;
	o->documents_size -= d->size;
	free(d);
}

unsigned output_next(struct output *o, struct iovec *ret, unsigned max)
{
	struct output_side *s = &o->goes;
	unsigned n = 0;

	if (s->at == s->used) {
		struct output_side emptied;

		s->used = s->at = 0;
		if (s->size > OUTPUT_SMALL) {
			free(s->data);
			s->data = NULL;
			s->size = 0;
		}
		emptied = *s;
		*s = o->fills;
		o->fills = emptied;
		if (!s->used && o->documents)
			cut(o);
	}
	for (size_t at = s->at; at < s->used && n < max; n++) {
		struct wire_header h;

		memcpy(&h, s->data + at, sizeof(h));
		ret[n] = (struct iovec){s->data + at, h.size};
		at += h.size;
	}
	return n;
}

void output_sent(struct output *o, unsigned n)
{
	struct output_side *s = &o->goes;

	for (; n && s->at < s->used; n--) {
		struct wire_header h;

		memcpy(&h, s->data + s->at, sizeof(h));
		s->at += h.size;
	}
}

bool output_empty(const struct output *o)
{
	return o->goes.at == o->goes.used && !o->fills.used && !o->documents;
}
