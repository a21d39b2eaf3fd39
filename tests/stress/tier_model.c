/* SPDX-License-Identifier: Apache-2.0 */
/* tier_model.c: what must be, see tier_damage.h. Where an object lies is read from the names (a
 * stub says its file's id), not asked from the library. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tier_damage.h"

#define SLACK (3u << 20) /* of a partition: pages of stores, blocks that are not full */

uint64_t run_draw(struct run *r, uint64_t n)
{
	r->random ^= r->random << 13;
	r->random ^= r->random >> 7;
	r->random ^= r->random << 17;
	return r->random % n;
}

int run_fail(struct run *r, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	if (!r->failed) {
		printf("FAIL tier damage: ");
		vprintf(format, args);
		printf(" [%s; %s]\n", shmstore_error_detail(), shmstore_error_path());
	}
	va_end(args);
	r->failed = true;
	return -1;
}

size_t run_key(unsigned k, char ret[16])
{
	return (size_t)snprintf(ret, 16, "key-%u", k);
}

const char *run_path(const struct run *r, unsigned s, unsigned k, char ret[RUN_PATH])
{
	snprintf(ret, RUN_PATH, "%s/stores/s%u/objects/key-%u", r->path, s, k);
	return ret;
}

static const char *resident_path(const struct run *r, uint64_t id, char ret[RUN_PATH])
{
	snprintf(ret, RUN_PATH, "%s/tier/%u/%016" PRIx64 ".object", r->path, (unsigned)getuid(),
		 id);
	return ret;
}

struct place run_look(struct run *r, unsigned s, unsigned k)
{
	char path[RUN_PATH];
	struct place p = {.demoted = false};
	p.demoted = damage_stub_id(run_path(r, s, k, path), &p.id);
	if (!p.demoted) {
		snprintf(path, sizeof(path), "%s/stores/s%u/clean/key-%u", r->path, s, k);
		p.clean = damage_stub_id(path, &p.id);
	}
	if (p.demoted || p.clean) {
		p.resident = access(resident_path(r, p.id, path), F_OK) == 0;
		p.damaged = r->book ? damage_of(r->book, p.id) : DAMAGE_NONE;
	}
	return p;
}

/* The answer that is expected of a call that needs the object's bytes. */
int run_expected(const struct run *r, unsigned s, unsigned k, const struct place *p)
{
	if (!r->slots[s][k].content.seed)
		return -ENOENT;
	return p->demoted && p->damaged && !p->resident ? -EBADMSG : 0;
}

/* A damage was found: said of the right file, and nothing has changed. */
static int found(struct run *r, const char *what, unsigned s, unsigned k, const struct place *p)
{
	char path[RUN_PATH], key[16];
	snprintf(path, sizeof(path), "%s/%016" PRIx64, r->files, p->id);
	if (strcmp(shmstore_error_path(), path) != 0 || shmstore_error_detail()[0] == '\0')
		return run_fail(r,
				"%s s%u/key-%u: %s (%s) is said of another file, or without a word",
				what, s, k, path, damage_name[p->damaged]);
	struct place now = run_look(r, s, k);
	if (!now.demoted || now.id != p->id ||
	    shmstore_contains(r->stores[s], key, run_key(k, key)) != 1)
		return run_fail(r, "%s s%u/key-%u: its name changed with the error", what, s, k);
	r->n_found[p->damaged]++;
	return 0;
}

/* Compares a call's answer with the expected one, and a damage's report. */
int run_check(struct run *r, const char *what, unsigned s, unsigned k, const struct place *p,
	      int rc)
{
	int want = run_expected(r, s, k, p);
	if (rc != want)
		return run_fail(r,
				"%s s%u/key-%u: %d, not %d (%s%s%s, tier file %016" PRIx64 " %s)",
				what, s, k, rc, want, p->demoted ? "demoted" : "in memory",
				p->clean ? ", clean" : "", p->resident ? ", resident" : "", p->id,
				damage_name[p->damaged]);
	if (p->demoted && p->resident)
		r->n_resident++;
	return rc == -EBADMSG ? found(r, what, s, k, p) : 0;
}

void run_show(struct run *r, const struct content *c)
{
	for (unsigned i = 0; i < STORES * KEYS; i++) {
		const struct slot *slot = &r->slots[i / KEYS][i % KEYS];
		char path[RUN_PATH];
		struct stat st = {.st_nlink = 0};
		if (slot->content.seed != c->seed)
			continue;
		lstat(run_path(r, i / KEYS, i % KEYS, path), &st);
		struct place p = run_look(r, i / KEYS, i % KEYS);
		printf("     s%u/key-%u: %s pinned, inode %lu, links %lu, mode %o, %s%s%s "
		       "%016" PRIx64 " %s\n",
		       i / KEYS, i % KEYS, slot->pinned ? "to be" : "not", (unsigned long)st.st_ino,
		       (unsigned long)st.st_nlink, st.st_mode, p.demoted ? "demoted" : "in memory",
		       p.clean ? ", clean" : "", p.resident ? ", resident" : "", p.id,
		       damage_name[p.damaged]);
	}
}

/* The file that a name gives without the disk: its own, or the resident. 0: its
 * tier file has to be read. */
static ino_t file_of(struct run *r, const char *path, const struct place *p)
{
	char resident[RUN_PATH];
	struct stat st = {.st_ino = 0};
	if (!p->demoted)
		return lstat(path, &st) == 0 ? st.st_ino : 0;
	return lstat(resident_path(r, p->id, resident), &st) == 0 ? st.st_ino : 0;
}

struct seen {
	bool any, same;
	ino_t file;
	uint64_t id; /* where that has to be read */
};

static void see(struct seen *seen, ino_t file, uint64_t id)
{
	id = file ? 0 : id;
	seen->same &= !seen->any || (seen->file == file && seen->id == id);
	*seen = (struct seen){true, seen->same, file, id};
}

bool run_is_one(struct run *r, const struct content *c)
{
	struct seen seen = {.same = true};
	char path[RUN_PATH];
	for (unsigned i = 0; i < STORES * KEYS; i++) {
		if (r->slots[i / KEYS][i % KEYS].content.seed != c->seed)
			continue;
		struct place p = run_look(r, i / KEYS, i % KEYS);
		see(&seen, file_of(r, run_path(r, i / KEYS, i % KEYS, path), &p), p.id);
	}
	for (size_t i = 0; i < r->n_tickets; i++) {
		if (r->tickets[i].content.seed != c->seed)
			continue;
		struct place p = {.id = 0};
		p.demoted = damage_stub_id(r->tickets[i].ticket.path, &p.id);
		see(&seen, file_of(r, r->tickets[i].ticket.path, &p), p.id);
	}
	return seen.same;
}

bool run_one_file(struct run *r)
{
	struct {
		ino_t inode;
		uint64_t id;
	} names[STORES * KEYS] = {0};
	for (unsigned i = 0; i < STORES * KEYS; i++) {
		const struct content *c = &r->slots[i / KEYS][i % KEYS].content;
		struct place p =
			c->seed ? run_look(r, i / KEYS, i % KEYS) : (struct place){.demoted = true};
		char path[RUN_PATH];
		struct stat st;
		if (!p.clean || lstat(run_path(r, i / KEYS, i % KEYS, path), &st) < 0)
			continue;
		names[i].inode = st.st_ino;
		names[i].id = p.id;
		for (unsigned j = 0; j < i; j++)
			if (names[j].inode && names[j].id == p.id && names[j].inode != st.st_ino) {
				run_show(r, c);
				run_fail(r, "s%u/key-%u and s%u/key-%u are one object in two files",
					 j / KEYS, j % KEYS, i / KEYS, i % KEYS);
				return false;
			}
	}
	return true;
}

struct content run_new_content(struct run *r)
{
	static const uint64_t middle[] = {0, 100, 4000, 60000, 200000, 200000, 700000};
	uint64_t m = run_draw(r, 24) == 0 ? 7000000
					  : middle[run_draw(r, sizeof(middle) / sizeof(middle[0]))];
	struct content c = {++r->next_seed, m ? m * 4 / 5 + run_draw(r, m * 2 / 5) : 0};
	if (run_draw(r, 2))
		c.seed |= CONTENT_SOFT;
	return c;
}

bool run_leased(const struct run *r, const struct content *c)
{
	for (size_t i = 0; i < r->n_tickets; i++)
		if (r->tickets[i].content.seed == c->seed)
			return true;
	return false;
}

/* Bytes that no eviction can free: leased, viewed, pinned, and other stores' pools. At
 * most: some are counted twice. */
static uint64_t unevictable(struct run *r)
{
	struct shmstore_usage u = {0};
	uint64_t sum = shmstore_partition_usage(r->p, 0, &u) == 0 ? u.pool : 0;
	for (size_t i = 0; i < r->n_tickets; i++)
		sum += r->tickets[i].content.size;
	for (size_t i = 0; i < VIEWS; i++)
		sum += r->held[i].view ? r->held[i].content.size : 0;
	for (unsigned i = 0; i < STORES * KEYS; i++)
		sum += r->slots[i / KEYS][i % KEYS].pinned
			       ? r->slots[i / KEYS][i % KEYS].content.size
			       : 0;
	return sum;
}

/* Was it right to refuse an object of this size? */
bool run_refused(struct run *r, int rc, uint64_t size)
{
	return rc == -ENOSPC && unevictable(r) + size + SLACK > (uint64_t)r->options->megabytes
									<< 20;
}
