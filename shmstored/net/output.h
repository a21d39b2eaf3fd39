/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.h: what waits to be sent to one client: whole packets in the order of their making, and
 * documents, of which a packet is cut whenever nothing else waits. Bounded. Pure: sends nothing.
 *
 * Two buffers: one fills while packets of the other are being sent, so a packet handed out stays
 * where it is until output_sent(). Nothing is allocated per packet: buffers grow when they must,
 * and go back to OUTPUT_SMALL when all was sent.
 */
#ifndef OUTPUT_H
#define OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define OUTPUT_SMALL         1024u
#define OUTPUT_DOCUMENTS_MAX (16u << 20) /* bytes of documents that may wait for one client */

struct output_document {
	struct output_document *next;
	uint64_t serial;
	size_t size, at;
	char text[];
};

struct output {
	struct output_side {
		char *data;
		size_t size, used, at; /* at: bytes that were sent */
	} fills, goes;
	struct output_document *documents; /* the first one is being cut */
	size_t documents_size;
};

void output_deinit(struct output *o);
/* Appends a packet. 0, -ENOBUFS (limit bytes would be passed; 0 = no limit), -ENOMEM, -EMSGSIZE
 * (the tail is longer than its type has). */
int output_add(struct output *o, size_t limit, uint16_t type, uint64_t serial, const void *body,
	       const void *tail, size_t tail_size);
/* Copies a document. 0, -ENOBUFS, -ENOMEM. */
int output_add_document(struct output *o, uint64_t serial, const char *text, size_t n);
/* Drops the parts of documents that are not cut into packets yet. */
void output_forget_documents(struct output *o);
/* The next packets, at most max; how many. They stay where they are until output_sent(). */
unsigned output_next(struct output *o, struct iovec *ret, unsigned max);
/* The first n of them were sent (or are given up). */
void output_sent(struct output *o, unsigned n);
/* Bytes of packets; what is left of documents is not among them. */
size_t output_waits(const struct output *o);
bool output_empty(const struct output *o);

#endif
