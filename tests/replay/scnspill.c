/* SPDX-License-Identifier: Apache-2.0 */
/* scnspill.c: the domain "spill": when a store spills, which objects go into one file, and how long that lives. */
#include <string.h>

#include "scn.h"
#include "spillbatch.h"
#include "spillfile.h"

#define OBJECTS_MAX 512u
#define FILES_MAX   64u
#define NAME_ROOM   32

struct file {
	char name[NAME_ROOM], names[OBJECTS_MAX][NAME_ROOM];
	struct spillfile_object objects[OBJECTS_MAX];
	struct spillfile is;
};

struct state {
	struct spillbatch_config config;
	char names[OBJECTS_MAX][NAME_ROOM];
	struct spillbatch_object objects[OBJECTS_MAX];
	size_t n_objects, batch[OBJECTS_MAX], n_batch, n_files, file; /* file: the last that a line spoke of */
	bool triggered, due, batched;
	enum spillbatch_outcome outcome;
	struct file files[FILES_MAX];
};

static void begin(void *state)
{
	((struct state *)state)->config = SPILLBATCH_DEFAULTS;
}

static void do_trigger(struct state *s, struct scn *c)
{
	struct amount used = scn_amount(c, "used|primary|bytes", AMOUNT_UNKNOWN);
	struct amount capacity = scn_amount(c, "cap|capacity", AMOUNT_UNKNOWN);
	bool failed = scn_flag(c, "create_failed|failed", false);

	s->config.threshold = scn_ratio(c, "thr|threshold", s->config.threshold);
	s->triggered = true;
	s->due = failed || spillbatch_is_due(&s->config, used, capacity);
}

static void do_cfg(struct state *s, struct scn *c)
{
	int64_t fused = scn_number(c, "maxfuse", (int64_t)s->config.max_fused);

	s->config.min_bytes = scn_number(c, "min", s->config.min_bytes);
	s->config.max_file = scn_number(c, "maxfile", s->config.max_file);
	s->config.threshold = scn_ratio(c, "thr|threshold", s->config.threshold);
	s->config.max_fused = fused > 0 ? (size_t)fused : 0;
}

/* ID:SIZE, or ID:SIZE:SPILLABLE */
static bool read_object(const char *text, char *name, struct spillbatch_object *o)
{
	struct amount size;
	char part[NAME_ROOM];

	*o = (struct spillbatch_object){.spillable = true};
	if (!scn_element(&text, ':', name, NAME_ROOM) || !scn_element(&text, ':', part, sizeof(part)) ||
	    !scn_read_amount(part, &size) || !size.known || size.bytes < 0)
		return false;
	o->size = size.bytes;
	o->spillable = strcmp(text, "0") != 0;
	return !*text || !strcmp(text, "0") || !strcmp(text, "1");
}

static void do_objs(struct state *s, struct scn *c)
{
	char text[2 * NAME_ROOM];

	s->n_objects = 0;
	for (const char *at = scn_need_word(c, 0); *at && !scn_is_wrong(c);) {
		if (s->n_objects == OBJECTS_MAX || !scn_element(&at, ',', text, sizeof(text)) ||
		    !read_object(text, s->names[s->n_objects], &s->objects[s->n_objects]))
			scn_wrong(c, "not a list of up to %u ID:SIZE:SPILLABLE", OBJECTS_MAX);
		else
			s->n_objects++;
	}
}

static void do_batch(struct state *s, struct scn *c)
{
	bool writing = scn_number(c, "inflight", 0) > 0;

	s->batched = true;
	s->outcome = spillbatch_choose(&s->config, s->objects, s->n_objects, writing, s->batch, &s->n_batch);
}

static int64_t size_of(const struct state *s, const char *name)
{
	for (size_t i = 0; i < s->n_objects; i++)
		if (!strcmp(s->names[i], name))
			return s->objects[i].size;
	return 0;
}

/* "file NAME objs=a,b", "file a,b", or of the last batch. */
static void do_file(struct state *s, struct scn *c)
{
	const char *objects = scn_option(c, "objs"), *word = scn_word(c, 0);
	struct file *f = &s->files[s->n_files];
	size_t n = 0;

	if (s->n_files == FILES_MAX || strlen(word ? word : "") >= NAME_ROOM) {
		scn_wrong(c, "too many files, or too long a name");
		return;
	}
	*f->name = 0;
	if (objects && word)
		strcpy(f->name, word);
	else if (word)
		objects = word;
	if (!objects)
		for (; n < s->n_batch && s->outcome == SPILLBATCH_GO; n++)
			strcpy(f->names[n], s->names[s->batch[n]]);
	for (const char *at = objects ? objects : ""; *at && !scn_is_wrong(c); n++)
		if (n == OBJECTS_MAX || !scn_element(&at, ',', f->names[n], NAME_ROOM))
			scn_wrong(c, "not a list of names");
	for (size_t i = 0; i < n; i++) {
		f->names[i][strcspn(f->names[i], ":")] = 0;
		f->objects[i].size = size_of(s, f->names[i]);
	}
	if (n == 0 || spillfile_init(&f->is, f->objects, n) < 0)
		scn_wrong(c, "nothing that a file could be made of");
	s->file = s->n_files++;
}

/* Objects that no file has are freed as well: those were never spilled. */
static void do_free(struct state *s, struct scn *c)
{
	const char *names = scn_need_word(c, 0);
	char name[NAME_ROOM];

	while (*names && !scn_is_wrong(c)) {
		if (!scn_element(&names, ',', name, sizeof(name)))
			scn_wrong(c, "not a list of names");
		for (size_t i = 0; i < s->n_files; i++)
			for (size_t j = 0; j < s->files[i].is.n; j++)
				if (!strcmp(s->files[i].names[j], name) && !s->files[i].objects[j].freed) {
					spillfile_free(&s->files[i].is, j);
					s->file = i;
				}
	}
}

static bool verb(void *state, struct scn *c, const char *verb)
{
	if (!strcmp(verb, "trigger"))
		do_trigger(state, c);
	else if (!strcmp(verb, "cfg"))
		do_cfg(state, c);
	else if (!strcmp(verb, "objs"))
		do_objs(state, c);
	else if (!strcmp(verb, "batch"))
		do_batch(state, c);
	else if (!strcmp(verb, "file"))
		do_file(state, c);
	else if (!strcmp(verb, "free"))
		do_free(state, c);
	else
		return false;
	return true;
}

static void found_batch(const struct state *s, struct scn *c)
{
	if (s->outcome == SPILLBATCH_DEFER) {
		scn_found(c, "defer");
		return;
	}
	for (size_t i = 0; i < s->n_batch; i++)
		scn_found_element(c, "%s", s->names[s->batch[i]]);
	scn_found_end(c);
}

static bool is_one_of(const char *word, const char *const *words)
{
	for (; *words; words++)
		if (!strcmp(word, *words))
			return true;
	return false;
}

/* Whether it is still there: by the line's own word, where that is true. */
static void found_file(const struct file *f, struct scn *c, const char *expected)
{
	static const char *const there[] = {"kept", "live", "1", NULL}, *const gone[] = {"deleted", "gone", "0", NULL};
	const char *const *words = f->is.n_live ? there : gone;

	scn_found(c, "%s", is_one_of(expected, words) ? expected : words[0]);
}

static bool found(void *state, struct scn *c, const char *key, const char *expected)
{
	const struct state *s = state;

	if (!strcmp(key, "spill") && s->triggered)
		scn_found(c, "%d", s->due);
	else if (!strcmp(key, "batch") && s->batched)
		found_batch(s, c);
	else if (!strcmp(key, "file") && s->n_files)
		found_file(&s->files[s->file], c, expected);
	else if (scn_n_words(c) && !strcmp(scn_word(c, 0), "file")) {
		size_t i = 0;

		while (i < s->n_files && strcmp(s->files[i].name, key) != 0)
			i++;
		if (i == s->n_files)
			return false;
		found_file(&s->files[i], c, expected);
	} else {
		return false;
	}
	return true;
}

const struct scn_domain scn_spill_domain = {"spill", sizeof(struct state), begin, verb, found, NULL};
