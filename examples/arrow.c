// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a table that Python's Store.put_arrow() put: in place, without pickle,
 * without a library of Arrow's.
 *
 * 	cc arrow.c $(pkg-config --cflags --libs shmstore) -o arrow && ./arrow STORE KEY
 *
 * The object's buffer is a stream of Arrow's IPC format, a row of messages: the word 0xffffffff,
 * the size of the message's metadata, the metadata, and the body. The metadata is a flatbuffer, of
 * which this program knows as much as it needs: a table's field is found by the table's list of
 * offsets. The first message is the schema; each batch of records follows with the column's buffers
 * in its body. Columns of int64, float64 and strings are read here, which are flat: two buffers and
 * three, of which the first one says by bits which values are there. A program that wants all types
 * gives the buffer to nanoarrow or to Arrow's C++ library, which copy nothing either.
 *
 * Another process wrote the bytes, so that each access is checked against the end of what it lies
 * in.
 */
#include <inttypes.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SCHEMA = 1,
	BATCH = 3
}; /* Message.header_type */
enum {
	INT = 2,
	FLOAT = 3,
	STRING = 5
}; /* Field.type_type */
enum {
	MAX_COLUMNS = 64,
	DOUBLE_PRECISION = 2
};

struct bytes {
	const unsigned char *at;
	uint64_t size;
};

struct column {
	char name[64];
	int type;
	int64_t n, n_null, bytes;
	double sum;
};

static struct column columns[MAX_COLUMNS];
static uint32_t n_columns;

static void check(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "arrow: %s\n", what);
		exit(1);
	}
}

static void succeeded(int r, const char *what)
{
	if (r < 0) {
		fprintf(stderr, "arrow: %s: %s\n", what, shmstore_strerror(r));
		exit(1);
	}
}

static struct bytes part(struct bytes of, uint64_t offset, uint64_t size)
{
	check(offset <= of.size && size <= of.size - offset,
	      "the stream is damaged: something lies outside of it");
	return (struct bytes){of.at + offset, size};
}

/* A little-endian number of size bytes, wherever it lies. */
static uint64_t number(struct bytes of, uint64_t offset, size_t size)
{
	uint64_t value = 0;

	memcpy(&value, part(of, offset, size).at, size);
	return value;
}

/* -- flatbuffers: positions are from the start of the metadata */

/* Where the table's field lies; 0: it is left out, which means its default, 0. */
static uint64_t field(struct bytes meta, uint64_t table, uint64_t i)
{
	uint64_t list = table - (uint64_t)(int32_t)number(meta, table, 4);
	uint64_t offset = 4 + 2 * i < number(meta, list, 2) ? number(meta, list + 4 + 2 * i, 2) : 0;

	return offset ? table + offset : 0;
}

static uint64_t scalar(struct bytes meta, uint64_t table, uint64_t i, size_t size)
{
	uint64_t at = field(meta, table, i);

	return at ? number(meta, at, size) : 0;
}

/* A table, a string or a vector lies as far on as its field says. */
static uint64_t follow(struct bytes meta, uint64_t at)
{
	check(at != 0, "the stream is damaged: a part of its metadata is missing");
	return at + number(meta, at, 4);
}

/* -- messages */

static void read_schema(struct bytes meta, uint64_t schema)
{
	uint64_t fields = follow(meta, field(meta, schema, 1));

	n_columns = (uint32_t)number(meta, fields, 4);
	check(n_columns <= MAX_COLUMNS, "the table has too many columns for this example");
	for (uint32_t i = 0; i < n_columns; i++) {
		uint64_t one = follow(meta, fields + 4 + 4 * i),
			 name = follow(meta, field(meta, one, 0));
		uint64_t type = follow(meta, field(meta, one, 3));
		struct column *c = &columns[i];
		struct bytes text = part(meta, name + 4, number(meta, name, 4));

		snprintf(c->name, sizeof(c->name), "%.*s", (int)(text.size < 60 ? text.size : 60),
			 (const char *)text.at);
		c->type = (int)scalar(meta, one, 2, 1);
		check((c->type == STRING || (c->type == INT && scalar(meta, type, 0, 4) == 64) ||
		       (c->type == FLOAT && scalar(meta, type, 0, 2) == DOUBLE_PRECISION)) &&
			      !field(meta, one, 4),
		      "this example reads columns of int64, float64 and strings");
	}
}

static struct bytes buffer(struct bytes meta, uint64_t buffers, uint64_t i, struct bytes body)
{
	check(i < number(meta, buffers, 4), "the stream is damaged: a column lacks a buffer");
	return part(body, number(meta, buffers + 4 + 16 * i, 8),
		    number(meta, buffers + 12 + 16 * i, 8));
}

static void add(struct column *c, struct bytes values, uint64_t k)
{
	int64_t whole;
	double real;

	if (c->type == STRING) { /* of n strings there are n + 1 offsets */
		c->bytes += (int64_t)(int32_t)number(values, 4 * k + 4, 4) -
			    (int32_t)number(values, 4 * k, 4);
	} else if (c->type == INT) {
		memcpy(&whole, values.at + 8 * k, sizeof(whole));
		c->sum += (double)whole;
	} else {
		memcpy(&real, values.at + 8 * k, sizeof(real));
		c->sum += real;
	}
}

static void read_batch(struct bytes meta, uint64_t batch, struct bytes body)
{
	uint64_t nodes = follow(meta, field(meta, batch, 1)),
		 buffers = follow(meta, field(meta, batch, 2)), next = 0;

	check(!field(meta, batch, 3), "this example reads no compressed batches");
	check(number(meta, nodes, 4) == n_columns,
	      "the stream is damaged: a batch has other columns than the table");
	for (uint32_t i = 0; i < n_columns; i++) {
		struct column *c = &columns[i];
		uint64_t n = number(meta, nodes + 4 + 16 * i, 8),
			 n_null = number(meta, nodes + 12 + 16 * i, 8);
		struct bytes valid = buffer(meta, buffers, next++, body),
			     values = buffer(meta, buffers, next++, body);

		check(n <= values.size / (c->type == STRING ? 4 : 8) &&
			      (!n_null || n / 8 <= valid.size),
		      "the stream is damaged: a buffer is too short");
		for (uint64_t k = 0; k < n; k++)
			if (!n_null || (number(valid, k / 8, 1) >> k % 8 & 1))
				add(c, values, k);
		next += c->type == STRING; /* the characters */
		c->n += (int64_t)n;
		c->n_null += (int64_t)n_null;
	}
}

static void read_stream(struct bytes stream)
{
	uint64_t at = 0, size;

	while (at < stream.size && (size = number(stream, at + 4, 4)) != 0) { /* 0: the end */
		struct bytes meta = part(stream, at + 8, size);
		uint64_t message = number(meta, 0, 4), kind = scalar(meta, message, 1, 1);
		struct bytes body = part(stream, at + 8 + size, scalar(meta, message, 3, 8));

		check(number(stream, at, 4) == UINT32_MAX,
		      "the stream is damaged: no message begins here");
		check(kind == SCHEMA || kind == BATCH, "this example reads no dictionaries");
		if (kind == SCHEMA)
			read_schema(meta, follow(meta, field(meta, message, 2)));
		else
			read_batch(meta, follow(meta, field(meta, message, 2)), body);
		at += 8 + size + body.size;
	}
}

int main(int argc, char **argv)
{
	static const char media_type[] = "application/vnd.apache.arrow.stream";
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *partition;
	struct shmstore *store;
	struct shmstore_view *view;
	struct bytes stream;
	uint64_t size;

	check(argc == 3, "usage: arrow STORE KEY");
	options.flags = SHMSTORE_OPEN_READONLY;
	succeeded(shmstore_partition_open(NULL, 0, &partition), "the partition");
	succeeded(shmstore_open(partition, argv[1], &options, &store), argv[1]);
	succeeded(shmstore_get(store, argv[2], strlen(argv[2]), 0, &view), argv[2]);
	const void *header = shmstore_view_header(view, &size);
	check(size == strlen(media_type) && memcmp(header, media_type, size) == 0,
	      "the object holds no Arrow table");
	stream.at = shmstore_view_buffer(view, 0, &stream.size);
	read_stream(stream);
	for (uint32_t i = 0; i < n_columns; i++) {
		struct column *c = &columns[i];

		printf("%s: %" PRId64 " rows, %" PRId64 " null, ", c->name, c->n, c->n_null);
		if (c->type == STRING)
			printf("%" PRId64 " bytes of text\n", c->bytes);
		else
			printf("sum %.10g\n", c->sum);
	}
	shmstore_view_unref(view);
	shmstore_close(store);
	shmstore_partition_unref(partition);
	return 0;
}
