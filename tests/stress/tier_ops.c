/* SPDX-License-Identifier: Apache-2.0 */
/* tier_ops.c: what is done at random, see tier_damage.h: each call, and whether its
 * answer is the one that must be. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "tier_damage.h"

#define LEASE_MS   3600000u
#define EVERYTHING (1ull << 40)

const char *const op_name[N_OPS] = {"put",    "get",   "peek",   "promote", "prefetch",
				    "demote", "evict", "delete", "handoff", "adopt",
				    "pin",    "hold",  "gc",     "reopen"};
static const unsigned char weight[N_OPS] = {14, 20, 4, 8, 3, 22, 2, 6, 9, 8, 2, 4, 1, 1};

static int do_put(struct run *r, unsigned s, unsigned k)
{
	char key[16];
	size_t size = run_key(k, key);
	struct content c = run_new_content(r);
	bool pin = run_draw(r, 40) == 0 && c.size < 100000;
	int rc = content_put(r->stores[s], key, size, c,
			     SHMSTORE_REPLACE | (pin ? SHMSTORE_PIN : 0));
	if (run_refused(r, rc, c.size))
		return 0;
	if (rc < 0)
		return run_fail(r, "put s%u/key-%u of %" PRIu64 ": %d", s, k, c.size, rc);
	r->slots[s][k] = (struct slot){c, pin};
	return 0;
}

int run_get(struct run *r, struct shmstore *handle, const char *what, unsigned s, unsigned k)
{
	char key[16];
	size_t size = run_key(k, key);
	struct place p = run_look(r, s, k);
	struct content c = {0, 0};
	const char *why = "";
	int rc = content_get(handle, key, size, &c, &why);
	if (rc == -EILSEQ)
		return run_fail(r, "%s s%u/key-%u: damage (%s) was returned as data: wrong %s",
				what, s, k, damage_name[p.damaged], why);
	if (run_check(r, what, s, k, &p, rc) < 0)
		return -1;
	if (rc == 0 && c.seed != r->slots[s][k].content.seed)
		return run_fail(r, "%s s%u/key-%u: another object", what, s, k);
	if (rc == 0 && p.demoted && run_look(r, s, k).demoted)
		r->n_aside++;
	return 0;
}

static int do_peek(struct run *r, unsigned s, unsigned k)
{
	char name[8];
	snprintf(name, sizeof(name), "s%u", s);
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	options.flags = SHMSTORE_OPEN_READONLY;
	struct shmstore *handle = NULL;
	int rc = shmstore_open(r->p, name, &options, &handle);
	if (rc < 0)
		return run_fail(r, "read-only handle of s%u: %d", s, rc);
	rc = run_get(r, handle, "peek", s, k);
	shmstore_close(handle);
	return rc;
}

static int do_promote(struct run *r, unsigned s, unsigned k)
{
	char key[16];
	size_t size = run_key(k, key);
	struct place p = run_look(r, s, k);
	int rc = shmstore_promote(r->stores[s], key, size, 0);
	if (p.demoted && run_refused(r, rc, r->slots[s][k].content.size))
		return 0;
	if (run_check(r, "promote", s, k, &p, rc) < 0)
		return -1;
	return rc == 0 && run_look(r, s, k).demoted
		       ? run_fail(r, "promote s%u/key-%u: is demoted still", s, k)
		       : 0;
}

static int do_prefetch(struct run *r, unsigned s)
{
	char names[6][16];
	struct iovec keys[6];
	int results[6], good = 0;
	struct place places[6];
	unsigned first = (unsigned)run_draw(r, KEYS);
	for (unsigned i = 0; i < 6; i++) {
		keys[i] = (struct iovec){names[i], run_key((first + i) % KEYS, names[i])};
		places[i] = run_look(r, s, (first + i) % KEYS);
	}
	int rc = shmstore_prefetch(r->stores[s], keys, 6, (unsigned)run_draw(r, 3), 0, results);
	for (unsigned i = 0; i < 6; i++) {
		unsigned k = (first + i) % KEYS;
		good += results[i] == 0;
		/* error_path() is of one failure only, so the right code must do here. In a full
		 * partition the order decides. */
		if (results[i] != run_expected(r, s, k, &places[i]) &&
		    !(places[i].demoted && run_refused(r, results[i], 6 * LARGE_MAX)))
			return run_fail(r, "prefetch s%u/key-%u: %d, not %d", s, k, results[i],
					run_expected(r, s, k, &places[i]));
		if (results[i] == -EBADMSG)
			r->n_found[places[i].damaged]++;
	}
	return rc == good || r->options->megabytes < 100
		       ? 0
		       : run_fail(r, "prefetch: %d of %d", rc, good);
}

int run_demote(struct run *r, unsigned s, unsigned k)
{
	char key[16];
	size_t size = run_key(k, key);
	const struct slot *slot = &r->slots[s][k];
	struct place p = run_look(r, s, k);
	int rc = shmstore_demote(r->stores[s], key, size, 0);
	int want = !slot->content.seed ? -ENOENT : slot->pinned && !p.demoted ? -EPERM : 0;
	if (rc == -EPERM && want == 0 && run_leased(r, &slot->content))
		return 0;
	if (rc != want) {
		run_show(r, &slot->content);
		return run_fail(r, "demote s%u/key-%u: %d, not %d", s, k, rc, want);
	}
	struct place now = run_look(r, s, k);
	if (rc == 0 && !now.demoted)
		return run_fail(r, "demote s%u/key-%u: is in memory still", s, k);
	if (p.clean && p.damaged && now.id != p.id)
		r->n_rewritten++;
	return 0;
}

/* May an eviction have left it in memory? */
static bool evictable(const struct run *r, unsigned s, unsigned k)
{
	const struct slot *slot = &r->slots[s][k];
	return slot->content.seed && !slot->pinned && !run_leased(r, &slot->content);
}

static int left_behind(struct run *r, unsigned s, unsigned k)
{
	char path[RUN_PATH];
	struct place p = run_look(r, s, k);
	struct stat st = {.st_nlink = 0};
	lstat(run_path(r, s, k, path), &st);
	run_show(r, &r->slots[s][k].content);
	return run_fail(r, "evict gave up, and s%u/key-%u is in memory: links %lu, mode %o%s%s%s",
			s, k, (unsigned long)st.st_nlink, st.st_mode, p.clean ? ", clean" : "",
			p.resident ? ", resident" : "", p.damaged ? ", damaged" : "");
}

static int do_evict(struct run *r)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_evict_report report = {.size = sizeof(report)};
	what.bytes = run_draw(r, 4) ? run_draw(r, 4u << 20) + 1 : EVERYTHING;
	what.n_threads = (unsigned)run_draw(r, 3);
	int rc = shmstore_partition_evict(r->p, &what, &report);
	if (rc < 0 && rc != -ENOSPC)
		return run_fail(r, "evict: %d", rc);
	if (report.disk_full || report.error)
		return run_fail(r, "evict: disk full %d, error %d", report.disk_full, report.error);
	/* Of the mapped ones no more are taken than what is asked for. */
	for (unsigned s = 0; s < STORES && rc == -ENOSPC && what.bytes == EVERYTHING; s++)
		for (unsigned k = 0; k < KEYS; k++)
			if (evictable(r, s, k) && !run_look(r, s, k).demoted)
				return left_behind(r, s, k);
	return 0;
}

static int do_delete(struct run *r, unsigned s, unsigned k)
{
	char key[16];
	int rc = shmstore_delete(r->stores[s], key, run_key(k, key));
	int want = r->slots[s][k].content.seed ? 0 : -ENOENT;
	if (rc != want)
		return run_fail(r, "delete s%u/key-%u: %d, not %d", s, k, rc, want);
	r->slots[s][k] = (struct slot){.pinned = false};
	return 0;
}

static int do_handoff(struct run *r, unsigned s, unsigned k)
{
	if (r->n_tickets == TICKETS)
		return 0;
	char key[16];
	size_t size = run_key(k, key);
	bool as_is = run_draw(r, 2);
	struct ticket *t = &r->tickets[r->n_tickets];
	struct place p = run_look(r, s, k);
	int rc = shmstore_handoff_flags(r->stores[s], key, size, LEASE_MS,
					as_is ? SHMSTORE_AS_IS : 0, &t->ticket);
	bool without = as_is && r->slots[s][k].content.seed; /* no byte is needed */
	if (without ? rc != 0 : run_check(r, "handoff", s, k, &p, rc) < 0)
		return run_fail(r, "handoff s%u/key-%u as is: %d", s, k, rc);
	if (rc == 0) {
		t->content = r->slots[s][k].content;
		t->pinned = r->slots[s][k].pinned;
		r->n_tickets++;
	}
	return 0;
}

int run_adopt(struct run *r, unsigned s, unsigned k)
{
	if (r->n_tickets == 0)
		return 0;
	char key[16];
	size_t size = run_key(k, key), i = (size_t)run_draw(r, r->n_tickets);
	struct ticket t = r->tickets[i];
	int rc = shmstore_adopt(r->stores[s], key, size, &t.ticket, SHMSTORE_REPLACE);
	if (rc < 0)
		return run_fail(r, "adopt as s%u/key-%u: %d", s, k, rc);
	r->tickets[i] = r->tickets[--r->n_tickets];
	r->slots[s][k] = (struct slot){t.content, t.pinned};
	return run_get(r, r->stores[s], "get of the adopted", s, k);
}

static int do_pin(struct run *r, unsigned s, unsigned k)
{
	char key[16];
	size_t size = run_key(k, key);
	struct place p = run_look(r, s, k);
	bool pin = !r->slots[s][k].pinned && r->slots[s][k].content.size < 100000;
	if (pin && !run_is_one(r, &r->slots[s][k].content))
		return 0;
	int rc = shmstore_pin(r->stores[s], key, size, pin);
	if (p.demoted && run_refused(r, rc, r->slots[s][k].content.size))
		return 0;
	if (pin ? run_check(r, "pin", s, k, &p, rc) < 0
		: rc < 0 && rc != -ENOENT && !(rc == -EBADMSG && p.damaged))
		return run_fail(r, "pin s%u/key-%u %d: %d", s, k, pin, rc);
	/* It is the object that is pinned, whatever the name. */
	for (unsigned i = 0; rc == 0 && i < STORES * KEYS; i++)
		if (r->slots[i / KEYS][i % KEYS].content.seed == r->slots[s][k].content.seed)
			r->slots[i / KEYS][i % KEYS].pinned = pin;
	for (size_t i = 0; rc == 0 && i < r->n_tickets; i++)
		if (r->tickets[i].content.seed == r->slots[s][k].content.seed)
			r->tickets[i].pinned = pin;
	return 0;
}

/* Checks one held view and takes another. A view of a tier file ends with the operation: its
 * damage would be the disk's own. */
static int do_hold(struct run *r, unsigned s, unsigned k)
{
	struct held *h = &r->held[run_draw(r, VIEWS)];
	if (h->view) {
		struct content c = {0, 0};
		const char *why = content_check(h->view, &c);
		if (why || c.seed != h->content.seed)
			return run_fail(r, "an old view changed: %s", why ? why : "another object");
		h->view = shmstore_view_unref(h->view);
	}
	char key[16];
	size_t size = run_key(k, key);
	struct place p = run_look(r, s, k);
	int rc = shmstore_get(r->stores[s], key, size, 0, &h->view);
	if (run_check(r, "hold", s, k, &p, rc) < 0)
		return -1;
	if (rc == 0 && run_look(r, s, k).demoted)
		h->view = shmstore_view_unref(h->view);
	h->content = r->slots[s][k].content;
	return 0;
}

/* flags: SHMSTORE_OPEN_FRESH: the kept store is to go with its next end. */
int run_open(struct run *r, unsigned s, unsigned flags)
{
	char name[8];
	snprintf(name, sizeof(name), "s%u", s);
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	options.pack_max = 0; /* what is shared, resident or mapped in the tier is a file */
	options.keep = !flags;
	options.pack_max = 0; /* each object has a tier file of its own soon */
	options.flags = flags;
	int rc = shmstore_open(r->p, name, &options, &r->stores[s]);
	return rc < 0 ? run_fail(r, "open s%u: %d", s, rc) : 0;
}

int run_op(struct run *r, enum op op)
{
	unsigned s = (unsigned)run_draw(r, STORES), k = (unsigned)run_draw(r, KEYS);
	int rc;
	r->n_ops[op]++;
	switch (op) {
	case OP_PUT:
		return do_put(r, s, k);
	case OP_GET:
		return run_get(r, r->stores[s], "get", s, k);
	case OP_PEEK:
		return do_peek(r, s, k);
	case OP_PROMOTE:
		return do_promote(r, s, k);
	case OP_PREFETCH:
		return do_prefetch(r, s);
	case OP_DEMOTE:
		return run_demote(r, s, k);
	case OP_EVICT:
		return do_evict(r);
	case OP_DELETE:
		return do_delete(r, s, k);
	case OP_HANDOFF:
		return do_handoff(r, s, k);
	case OP_ADOPT:
		return run_adopt(r, s, k);
	case OP_PIN:
		return do_pin(r, s, k);
	case OP_HOLD:
		return do_hold(r, s, k);
	case OP_GC:
		rc = shmstore_partition_gc(r->p, 0, NULL);
		return rc < 0 ? run_fail(r, "gc: %d", rc) : 0;
	case OP_REOPEN:
		rc = shmstore_close(r->stores[s]);
		return rc < 0 ? run_fail(r, "close s%u: %d", s, rc) : run_open(r, s, 0);
	case N_OPS:
		break;
	}
	return 0;
}

enum op run_draw_op(struct run *r)
{
	unsigned total = 0, op = 0;
	for (unsigned i = 0; i < N_OPS; i++)
		total += weight[i];
	for (unsigned at = (unsigned)run_draw(r, total); at >= weight[op]; op++)
		at -= weight[op];
	return (enum op)op;
}
