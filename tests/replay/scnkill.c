/* SPDX-License-Identifier: Apache-2.0 */
/* scnkill.c: the domain "kill": whom a policy takes, and what levels mean. */
#include <stdlib.h>
#include <string.h>

#include "memtext.h"
#include "policy.h"
#include "scn.h"
#include "scnnames.h"

#define WORKERS_MAX 512u
#define NAME_ROOM   32

struct worker {
	char name[NAME_ROOM], owner[NAME_ROOM];
	struct policy_worker is;
};

struct choice {
	char name[NAME_ROOM];
	bool retry;
};

struct state {
	struct policy policy;
	struct worker workers[WORKERS_MAX];
	size_t n_workers;
	struct choice victims[WORKERS_MAX], order[WORKERS_MAX];
	size_t n_victims, n_order;
	bool selected, drained, levelled;
	enum policylevel level;
};

static void begin(void *state)
{
	struct state *s = state;

	s->policy = (struct policy){.kind = POLICY_SHM, .idle = POLICY_IDLE_BYTES};
}

static void do_policy(struct state *s, struct scn *c)
{
	struct amount total = scn_amount(c, "total", AMOUNT_UNKNOWN);
	struct amount buffer = memlimit_buffer(total, RATIO(5, 100), INT64_C(3) << 30);

	s->policy.kind = POLICY_LIFO;
	while (s->policy.kind < POLICY_SHM &&
	       strcmp(policy_name(s->policy.kind), scn_text(c, "name", "shm")) != 0)
		s->policy.kind++;
	if (strcmp(policy_name(s->policy.kind), scn_text(c, "name", "shm")) != 0)
		scn_wrong(c, "no such policy");
	s->policy.kill = scn_amount(c, "thr|kill", AMOUNT_UNKNOWN);
	s->policy.gate = scn_amount(c, "gate", AMOUNT_UNKNOWN);
	s->policy.buffer = scn_number(c, "buf", buffer.bytes);
	s->policy.idle = scn_number(c, "idle", POLICY_IDLE_BYTES);
}

static struct worker *find_worker(struct state *s, const char *name)
{
	for (size_t i = 0; i < s->n_workers; i++)
		if (!strcmp(s->workers[i].name, name))
			return &s->workers[i];
	return NULL;
}

static bool parse_work(const char *kind, enum policy_work *ret)
{
	static const struct {
		const char *name;
		enum policy_work work;
	} kinds[] = {
		{"task", POLICY_TASK}, {"actor", POLICY_ACTOR}, {"actor_task", POLICY_ACTOR_TASK},
		{"idle", POLICY_IDLE}, {"cold", POLICY_COLD},   {"io", POLICY_IO},
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].name, kind)) {
			*ret = kinds[i].work;
			return true;
		}
	return false;
}

static enum policylevel level(struct scn *c, const char *key, enum policylevel otherwise)
{
	const char *text = scn_option(c, key);

	if (text && strcmp(text, "none") != 0 && !scn_level(text, &otherwise))
		scn_wrong(c, "%s: no such level: %s", key, text);
	return otherwise;
}

/* A worker that is there already changes what the line names. */
static void do_worker(struct state *s, struct scn *c)
{
	const char *name = scn_need_word(c, 0), *owner = scn_option(c, "owner");
	struct worker *w = find_worker(s, name);
	struct policylevel_wish wish = {.class = POLICYLEVEL_UNSAID,
					.n_children = (uint64_t)scn_number(c, "children", 0)};

	if (strlen(name) >= NAME_ROOM || strlen(owner ? owner : "") >= NAME_ROOM ||
	    (!w && s->n_workers == WORKERS_MAX)) {
		scn_wrong(c, "too long a name, or too many workers");
		return;
	}
	if (!w) {
		w = &s->workers[s->n_workers++];
		*w = (struct worker){.is.level = POLICYLEVEL_NEVER};
		strcpy(w->name, name);
	}
	if (owner)
		strcpy(w->owner, owner);
	if (scn_named(c, "kind") && !parse_work(scn_text(c, "kind", ""), &w->is.work))
		scn_wrong(c, "no such kind");
	w->is.retries = scn_number(c, "retries|restarts", w->is.retries);
	w->is.start = scn_number(c, "t", w->is.start);
	w->is.private = scn_amount(c, "mem|private", w->is.private);
	w->is.sole = scn_amount(c, "sole", w->is.sole);
	scn_amount(c, "mapped", AMOUNT_UNKNOWN); /* of what others map, too, nothing is freed */
	wish.retriable = policy_is_retriable(&w->is);
	wish.instance = level(c, "level", w->is.level);
	w->is.level = policylevel_resolve(&wish);
}

static int compare_workers(const void *a, const void *b)
{
	const struct worker *x = a, *y = b;

	return scn_compare_names(x->name, y->name);
}

static void remove_worker(struct state *s, struct worker *w)
{
	size_t after = (size_t)(s->workers + s->n_workers - w) - 1;

	memmove(w, w + 1, after * sizeof(*w));
	s->n_workers--;
}

/* Ids in the order of names; owners by the first worker that has them. */
static void number(struct state *s, struct policy_worker *ret)
{
	qsort(s->workers, s->n_workers, sizeof(s->workers[0]), compare_workers);
	for (size_t i = 0; i < s->n_workers; i++) {
		struct worker *w = &s->workers[i];
		size_t owner = 0;

		while (strcmp(s->workers[owner].owner, w->owner) != 0)
			owner++;
		w->is.id = i;
		w->is.owner = owner;
		ret[i] = w->is;
	}
}

static void select_wave(struct state *s, struct amount used)
{
	struct policy_worker workers[WORKERS_MAX];
	struct policy_victim victims[WORKERS_MAX];

	number(s, workers);
	s->n_victims = policy_select(&s->policy, used, workers, s->n_workers, victims);
	for (size_t i = 0; i < s->n_victims; i++) {
		struct worker *w = &s->workers[victims[i].worker->id];

		w->is.life = victims[i].worker->life;
		strcpy(s->victims[i].name, w->name);
		s->victims[i].retry = victims[i].retry;
	}
	s->selected = true;
}

static void do_drain(struct state *s, struct scn *c)
{
	struct amount used = scn_amount(c, "used", AMOUNT_UNKNOWN);

	s->n_order = 0;
	s->drained = true;
	for (;;) {
		select_wave(s, used);
		if (!s->n_victims)
			return;
		for (size_t i = 0; i < s->n_victims; i++) {
			remove_worker(s, find_worker(s, s->victims[i].name));
			s->order[s->n_order++] = s->victims[i];
		}
	}
}

/* "dead": the process has ended; "gone": nobody speaks of it any more. */
static void do_end(struct state *s, struct scn *c, bool gone)
{
	struct worker *w = find_worker(s, scn_need_word(c, 0));

	if (!w)
		scn_wrong(c, "no such worker");
	else if (gone)
		remove_worker(s, w);
	else
		w->is.life = POLICY_DEAD;
}

static void do_resolve(struct state *s, struct scn *c)
{
	struct policy_worker w = {.retries = scn_number(c, "retries|restarts", 0)};
	struct policylevel_wish wish = {
		.automatic = scn_flag(c, "auto", false),
		.n_children = (uint64_t)scn_number(c, "children", 0),
		.class = level(c, "class", POLICYLEVEL_UNSAID),
		.instance = level(c, "instance", POLICYLEVEL_UNSAID),
	};

	if (!parse_work(scn_text(c, "kind", "task"), &w.work))
		scn_wrong(c, "no such kind");
	wish.retriable = policy_is_retriable(&w);
	s->levelled = true;
	s->level = policylevel_resolve(&wish);
}

static bool verb(void *state, struct scn *c, const char *verb)
{
	if (!strcmp(verb, "policy"))
		do_policy(state, c);
	else if (!strcmp(verb, "worker"))
		do_worker(state, c);
	else if (!strcmp(verb, "select"))
		select_wave(state, scn_amount(c, "used", AMOUNT_UNKNOWN));
	else if (!strcmp(verb, "drain"))
		do_drain(state, c);
	else if (!strcmp(verb, "dead") || !strcmp(verb, "gone"))
		do_end(state, c, *verb == 'g');
	else if (!strcmp(verb, "resolve"))
		do_resolve(state, c);
	else
		return false;
	return true;
}

/* ID:RETRY, and as the line says: without the flag, or with "-", it is not asked for. */
static void found_choices(struct scn *c, const struct choice *choices, size_t n,
			  const char *expected)
{
	char element[NAME_ROOM + 4];

	for (size_t i = 0; i < n; i++) {
		const char *flag = choices[i].retry ? "1" : "0", *colon;

		if (!scn_element(&expected, ',', element, sizeof(element)))
			element[0] = 0;
		colon = strchr(element, ':');
		if (*element && !colon)
			scn_found_element(c, "%s", choices[i].name);
		else
			scn_found_element(c, "%s:%s", choices[i].name,
					  colon && !strcmp(colon, ":-") ? "-" : flag);
	}
	scn_found_end(c);
}

static bool found(void *state, struct scn *c, const char *key, const char *expected)
{
	const struct state *s = state;

	if (!strcmp(key, "victims") && s->selected)
		found_choices(c, s->victims, s->n_victims, expected);
	else if (!strcmp(key, "order") && s->drained)
		found_choices(c, s->order, s->n_order, expected);
	else if (!strcmp(key, "level") && s->levelled && s->level == POLICYLEVEL_AUTO)
		scn_found(c, "auto");
	else if (!strcmp(key, "level") && s->levelled)
		scn_found(c, "%d", s->level);
	else
		return false;
	return true;
}

const struct scn_domain scn_kill_domain = {"kill", sizeof(struct state), begin, verb, found, NULL};
