/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profiletext.c: a profile as text, and back.
 *
 *   shmstore-profile 1
 *   key HASH LANG FUNC GROUP killed HAD LEFT LEFT lives N V… phases N V… private N SUM PEAK COUNT
 *   V… STEPS I C… shared … cpu … crc32c HEX
 *
 * Names have %XX for blanks, '%', and what is not printable ASCII, and a '-' in front. The checksum
 * is of everything before its line. It tells a torn file; who writes one by hand can make it right,
 * so that each number is checked for being possible, too: what is wrong anywhere is refused whole.
 */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profilekey.h"

#define HEADING  "shmstore-profile 1\n"
#define SUM_LINE sizeof("crc32c 01234567") /* with its end */

static const char *const resource_names[PROFILE_RESOURCES] = {"private", "shared", "cpu"};

/*
 * Bit by bit for the table of 16 half bytes, half byte by half byte for the content. A
 * profile is some hundred kilobytes, once in a minute: a library or the processor's
 * instruction would gain a millisecond.
 */
#define POLYNOMIAL 0x82f63b78u

uint32_t crc32c(const void *bytes, size_t n)
{
	const uint8_t *at = bytes;
	uint32_t table[16], crc = UINT32_MAX;

	for (uint32_t i = 0; i < 16; i++) {
		table[i] = i;
		for (unsigned bit = 0; bit < 4; bit++)
			table[i] = table[i] >> 1 ^ (table[i] & 1 ? POLYNOMIAL : 0);
	}
	for (size_t i = 0; i < n; i++) {
		crc ^= at[i];
		crc = crc >> 4 ^ table[crc & 15];
		crc = crc >> 4 ^ table[crc & 15];
	}
	return ~crc;
}

static void write_name(FILE *f, const char *name)
{
	fputs(" -", f);
	for (; *name; name++) {
		if (*name > ' ' && *name < 0x7f && *name != '%')
			fputc(*name, f);
		else
			fprintf(f, "%%%02x", (unsigned)(unsigned char)*name);
	}
}

static void write_ring(FILE *f, const struct profilering *ring)
{
	fprintf(f, " %" PRIu32, ring->n);
	for (uint32_t i = 0; i < ring->n; i++)
		fprintf(f, " %" PRIu64, profilering_at(ring, i));
}

static void write_values(FILE *f, const char *name, const struct profilevalues *v)
{
	unsigned n = 0;

	fprintf(f, " %s %" PRIu64 " %" PRIu64 " %" PRIu64, name, v->n, v->sum,
		profilevalues_peak(v));
	write_ring(f, &v->ring);
	for (unsigned i = 0; i < PROFILE_BUCKETS; i++)
		n += v->buckets[i] != 0;
	fprintf(f, " %u", n);
	for (unsigned i = 0; i < PROFILE_BUCKETS; i++)
		if (v->buckets[i])
			fprintf(f, " %u %" PRIu32, i, v->buckets[i]);
}

static void write_key(FILE *f, const struct profile_key *k)
{
	uint64_t life, peaks[PROFILE_PHASES];
	unsigned n = profile_phases(k, &life, peaks);

	fputs("key ", f);
	for (unsigned i = 0; i < sizeof(k->hash); i++)
		fprintf(f, "%02x", k->hash[i]);
	write_name(f, k->name.lang);
	write_name(f, k->name.func);
	write_name(f, k->name.group);
	fprintf(f, " killed %" PRIu64 " %" PRIu32 " %" PRIu32 " lives", k->killed_had,
		k->killed_left, k->preempted_left);
	write_ring(f, &k->lives);
	fprintf(f, " phases %u", n);
	for (unsigned i = 0; i < n; i++)
		fprintf(f, " %" PRIu64, peaks[i]);
	for (int r = 0; r < PROFILE_RESOURCES; r++)
		write_values(f, resource_names[r], &k->of[r]);
	fputc('\n', f);
}

static int compare_fed(const void *a, const void *b)
{
	const struct profile_key *const *x = a, *const *y = b;

	return ((*x)->fed > (*y)->fed) - ((*x)->fed < (*y)->fed);
}

/* The one that was fed longest ago first: in this order they are read again. */
static bool write_keys(FILE *f, const struct profile *p)
{
	uint32_t n = 0;
	const struct profile_key **keys = calloc((size_t)profile_n_keys(p) + 1, sizeof(*keys));

	if (!keys)
		return false;
	for (const struct profile_key *k = p->keys; k; k = k->hh.next)
		keys[n++] = k;
	qsort(keys, n, sizeof(*keys), compare_fed);
	for (uint32_t i = 0; i < n; i++)
		write_key(f, keys[i]);
	free(keys);
	return true;
}

char *profile_text(const struct profile *p, size_t *ret_length)
{
	char *text = NULL, sum[SUM_LINE + 1];
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);
	bool failed;

	if (!f)
		return NULL;
	fputs(HEADING, f);
	failed = !write_keys(f, p);
	failed |= fflush(f) != 0;
	if (!failed) {
		snprintf(sum, sizeof(sum), "crc32c %08" PRIx32 "\n", crc32c(text, n));
		fputs(sum, f);
	}
	failed |= ferror(f) != 0;
	failed |= fclose(f) != 0;
	if (failed) {
		free(text);
		return NULL;
	}
	*ret_length = n;
	return text;
}

/* Reading. The first thing that is not as it must be sets why, and from
 * there on nothing is read. */
struct reader {
	const char *at, *end;
	const char *why;
};

static void wrong(struct reader *r, const char *why)
{
	if (!r->why)
		r->why = why;
}

/* Up to the next blank or the line's end, which stays. */
static size_t word(struct reader *r, const char **ret)
{
	const char *from = r->at;

	while (r->at < r->end && *r->at != ' ' && *r->at != '\n')
		r->at++;
	*ret = from;
	if (r->at == from || r->at == r->end)
		wrong(r, "a word is missing");
	return (size_t)(r->at - from);
}

static void blank(struct reader *r)
{
	if (r->why || r->at == r->end || *r->at != ' ')
		wrong(r, "a blank was expected");
	else
		r->at++;
}

static void expect(struct reader *r, const char *what)
{
	const char *w;
	size_t n;

	blank(r);
	n = word(r, &w);
	if (n != strlen(what) || memcmp(w, what, n) != 0)
		wrong(r, "a line is not as it should be");
}

static uint64_t number(struct reader *r, uint64_t most)
{
	uint64_t value = 0;
	const char *w;
	size_t n;

	blank(r);
	if (r->why)
		return 0;
	n = word(r, &w);
	for (size_t i = 0; i < n; i++) {
		if (w[i] < '0' || w[i] > '9' || __builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(w[i] - '0'), &value)) {
			wrong(r, "not a number");
			return 0;
		}
	}
	if (value > most)
		wrong(r, "a number is too large");
	return r->why ? 0 : value;
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void read_name(struct reader *r, char ret[PROFILE_NAME + 1])
{
	const char *w;
	size_t n, length = 0;

	blank(r);
	n = r->why ? 0 : word(r, &w);
	if (!n || *w != '-') {
		wrong(r, "a name is missing");
		n = 0;
	}
	for (size_t i = 1; i < n && !r->why; i++) {
		int c = (unsigned char)w[i];

		if (c == '%') {
			int high = i + 2 < n ? hex(w[i + 1]) : -1,
			    low = i + 2 < n ? hex(w[i + 2]) : -1;

			c = high < 0 || low < 0 ? -1 : high * 16 + low;
			i += 2;
		}
		if (c <= 0 || length == PROFILE_NAME)
			wrong(r, "a name is wrong");
		else
			ret[length++] = (char)c;
	}
	ret[length] = 0;
}

static void read_ring(struct reader *r, struct profilering *ring)
{
	uint64_t n = number(r, PROFILE_RING);

	for (uint64_t i = 0; i < n && !r->why; i++)
		profilering_add(ring, number(r, PROFILE_MOST));
}

static void read_values(struct reader *r, const char *name, struct profilevalues *v)
{
	uint64_t n, last = 0;

	expect(r, name);
	v->n = number(r, UINT64_MAX);
	v->sum = number(r, UINT64_MAX);
	v->session_peak = number(r, PROFILE_MOST);
	read_ring(r, &v->ring);
	if (v->ring.n > v->n || (v->ring.n && v->ring.sorted[v->ring.n - 1] > v->session_peak) ||
	    (v->n && !v->ring.n) || (v->n ? v->sum / v->n > PROFILE_MOST : v->sum != 0))
		wrong(r, "the numbers of a key contradict each other");
	n = number(r, PROFILE_BUCKETS);
	for (uint64_t i = 0; i < n && !r->why; i++) {
		uint64_t step = number(r, PROFILE_BUCKETS - 1), count = number(r, UINT32_MAX);

		if (!count || (i && step <= last))
			wrong(r, "a histogram is wrong");
		v->buckets[step] = (uint32_t)count;
		last = step;
	}
}

static void read_content(struct reader *r, struct profile_key *k)
{
	expect(r, "killed");
	k->killed_had = number(r, PROFILE_MOST);
	k->killed_left = (uint32_t)number(r, PROFILE_RING);
	k->preempted_left = (uint32_t)number(r, PROFILE_RING);
	if (!k->killed_had != !k->killed_left)
		wrong(r, "the numbers of a key contradict each other");
	expect(r, "lives");
	read_ring(r, &k->lives);
	expect(r, "phases");
	k->phases.n = (unsigned)number(r, PROFILE_PHASES);
	k->phases.n_tasks = k->phases.n != 0;
	for (unsigned i = 0; i < k->phases.n; i++)
		k->phases.now[i] = number(r, PROFILE_MOST);
	for (int i = 0; i < PROFILE_RESOURCES; i++)
		read_values(r, resource_names[i], &k->of[i]);
	if (r->at == r->end || *r->at != '\n')
		wrong(r, "a line is not as it should be");
}

static int read_key(struct reader *r, struct profile *into)
{
	char names[3][PROFILE_NAME + 1] = {{0}}, text[2 * 16 + 1];
	struct profile_name name = {.lang = names[0], .func = names[1], .group = names[2]};
	struct profile_key *k;
	const char *hash;
	uint32_t before = profile_n_keys(into);

	if (r->end - r->at < 4 || memcmp(r->at, "key ", 4) != 0) {
		wrong(r, "a line is not as it should be");
		return -EBADMSG;
	}
	r->at += 4;
	if (word(r, &hash) != 32)
		wrong(r, "a hash is wrong");
	for (int i = 0; i < 3; i++)
		read_name(r, names[i]);
	if (r->why)
		return -EBADMSG;
	if (before == into->max_keys) {
		wrong(r, "there are too many keys");
		return -EBADMSG;
	}
	k = profilekey_get(into, &name);
	if (!k)
		return -ENOMEM;
	for (int i = 0; i < 16; i++)
		snprintf(text + (size_t)i * 2, 3, "%02x", k->hash[i]);
	if (profile_n_keys(into) == before)
		wrong(r, "a key is there twice");
	else if (memcmp(text, hash, 32) != 0)
		wrong(r, "a hash is wrong");
	else
		read_content(r, k);
	r->at += !r->why;
	return r->why ? -EBADMSG : 0;
}

/* The heading and the checksum. length: then that of what lies between. */
static int frame(const char *text, size_t length, struct reader *r)
{
	static const char name[] = "shmstore-profile ";
	const char *sum;
	char right[SUM_LINE + 1];

	*r = (struct reader){.at = text, .end = text + length};
	if (length < sizeof(name) - 1 || memcmp(text, name, sizeof(name) - 1) != 0) {
		wrong(r, "it is no profile");
		return -EBADMSG;
	}
	if (length < sizeof(HEADING) - 1 || memcmp(text, HEADING, sizeof(HEADING) - 1) != 0) {
		wrong(r, "another version has written it");
		return -EPROTONOSUPPORT;
	}
	r->at += sizeof(HEADING) - 1;
	if ((size_t)(r->end - r->at) < SUM_LINE) {
		wrong(r, "it is cut off");
		return -EBADMSG;
	}
	sum = r->end - SUM_LINE;
	snprintf(right, sizeof(right), "crc32c %08" PRIx32 "\n",
		 crc32c(text, (size_t)(sum - text)));
	if (memcmp(sum, right, SUM_LINE) != 0) {
		wrong(r, "its checksum is wrong");
		return -EBADMSG;
	}
	r->end = sum;
	return 0;
}

int profile_load(struct profile *p, const char *text, size_t length, bool prior,
		 const char **ret_why)
{
	struct profile *fresh = profile_new(p->max_keys);
	struct reader r;
	int err;

	if (!fresh)
		return -ENOMEM;
	err = frame(text, length, &r);
	while (!err && r.at < r.end)
		err = read_key(&r, fresh);
	if (!err) {
		struct profile_key *old = p->keys;

		for (struct profile_key *k = fresh->keys; prior && k; k = k->hh.next)
			profilekey_to_prior(k);
		p->keys = fresh->keys;
		p->n_fed = fresh->n_fed;
		fresh->keys = old;
	} else if (ret_why) {
		*ret_why = r.why ? r.why : "no memory";
	}
	profile_free(fresh);
	return err;
}
