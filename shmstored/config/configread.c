/* SPDX-License-Identifier: Apache-2.0 */
/*
 * configread.c: the grammar of shmstored.conf(5), by libConfuse: sections,
 * titles, lists, quotes, comments.
 *
 * Every value is text to libConfuse. It is checked while its line is at hand, so that an error can
 * name it, and taken over when the whole file is right: a file that is wrong anywhere changes
 * nothing. config.def alone has the keys. libConfuse gives its callbacks no argument:
 * where the error goes is in a static; configurations are read by the main thread only.
 */

#include <confuse.h>
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "config.h"
#include "wire.h"

enum section {
	DAEMON,
	HTTP,
	ARBITER,
	PRESSURE,
	PROFILE,
	STAGE,
	PEERS,
	PARTITION
};
static const char *const SECTIONS[] = {"daemon",  "http",  "arbiter", "pressure",
				       "profile", "stage", "peers",   "partition"};

struct section_key {
	enum section section;
	struct configkey key;
};

#define OFFSET_DAEMON(field)    offsetof(struct config, field)
#define OFFSET_HTTP(field)      offsetof(struct config, field)
#define OFFSET_ARBITER(field)   offsetof(struct config, field)
#define OFFSET_PRESSURE(field)  offsetof(struct config, field)
#define OFFSET_PROFILE(field)   offsetof(struct config, field)
#define OFFSET_STAGE(field)     offsetof(struct config, field)
#define OFFSET_PEERS(field)     offsetof(struct config, field)
#define OFFSET_PARTITION(field) offsetof(struct config_partition, field)

static const struct section_key KEYS[] = {
#define KEY(section, name, kind, field, standard, least, most) \
	{section, {name, OFFSET_##section(field), standard, least, most, KEY_##kind}},
#include "config.def"
#undef KEY
};
#define N_KEYS (sizeof(KEYS) / sizeof(KEYS[0]))

/*
 * libConfuse takes a file that ends within a section for a whole one. So this key, known
 * at the top only, is put after every file's text: in a section it is an error. Also the
 * most of a file that is read.
 */
#define END      "__end-of-file"
#define END_TEXT "\n" END " = 1\n"
#define FILE_MAX ((size_t)1 << 20)

static char *message; /* the first error of the file that is being read */
/* its name: sections that may stand once are made before libConfuse knows it */
static const char *reading;

/* ---- errors ---------------------------------------------------------------------------------- */

/* The names that may stand where cfg is: for who mistyped one. */
static const char *suggest(cfg_t *cfg, const char *word)
{
	const char *names[32];
	size_t n = 0;

	for (unsigned i = 0; cfg->opts[i].name && n < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(cfg->opts[i].name, END) != 0)
			names[n++] = cfg->opts[i].name;
	}
	return nearest(word, names, n);
}

/* Ours for a key of Ray's or of Gluten's, by the end of its name. NULL: it is none. */
static const char *translate(const char *word)
{
	static const char *const keys[][2] = {
		{"memory_usage_threshold", "pressure { kill"},
		{"min_memory_free_bytes", "pressure { kill"},
		{"memory_monitor_refresh_ms", "pressure { interval"},
		{"worker_killing_policy", "pressure { preempt"},
		{"count_swap_in_memory_monitor", "pressure { swap"},
		{"oom_grace_period_s", "partition { queue-grace"},
		{"num_nodes", "peers { num"},
		{"preempt_from_stale_checkpoint", "peers { preempt-from-stale"},
		{"node_selection", "peers { selection"},
		{"broadcast_strategy", "peers { strategy"},
		{"adjustStageResource.enabled", "stage { enabled"},
		{"offheap.ratio", "stage { shared-ratio"},
		{"heap.ratio", "stage { private-ratio"},
		{"fallenNode.ratio.threshold", "stage { fallen-threshold"},
		{"profileMergeConflicts", "stage { conflict"},
	};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		size_t n = strlen(word), end = strlen(keys[i][0]);

		if (n >= end && strcmp(word + n - end, keys[i][0]) == 0)
			return keys[i][1];
	}
	return NULL;
}

static __attribute__((format(printf, 2, 0))) void on_error(cfg_t *cfg, const char *format,
							   va_list args)
{
	char *what = NULL, word[128];
	const char *near = NULL, *ours = NULL;

	if (message || vasprintf(&what, format, args) < 0)
		return;
	if (sscanf(what, "no such option '%127[^']'", word) == 1) {
		if (strcmp(word, END) == 0)
			snprintf(what, strlen(what) + 1, "a \"}\" is missing");
		else if (!(ours = translate(word)))
			near = suggest(cfg, word);
	}
	if (asprintf(&message, "%s:%d: %s%s%s%s", reading, cfg->line, what,
		     ours   ? "; here that is \""
		     : near ? "; did you mean \""
			    : "",
		     ours   ? ours
		     : near ? near
			    : "",
		     ours   ? " = ... }\""
		     : near ? "\"?"
			    : "") < 0)
		message = NULL;
	free(what);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* libConfuse's: looks at a value when it is read. */
static int check_key(cfg_t *cfg, cfg_opt_t *opt, const char *value, void *result)
{
	const struct configkey *k = NULL;

	for (size_t i = 0; i < N_KEYS && !k; i++)
		if (strcmp(KEYS[i].key.name, opt->name) == 0 &&
		    strcmp(SECTIONS[KEYS[i].section], cfg->name) == 0)
			k = &KEYS[i].key;
	if (!k || configkey_check(k, value) < 0) {
		cfg_error(cfg, "%s: \"%s\" is not right here: it takes %s", opt->name, value,
			  k ? configkey_help(k->kind) : "");
		return -1;
	}
	memcpy(result, &value, sizeof(value));
	return 0;
}

/* The size of the file system that a partition is on, or will be made on. 0: not known. */
static uint64_t file_system_size(const char *path)
{
	char parent[4096], *slash;
	struct statvfs fs;

	snprintf(parent, sizeof(parent), "%s", path);
	while (statvfs(parent, &fs) < 0) {
		slash = strrchr(parent, '/');
		if (errno != ENOENT || !slash || slash == parent)
			return 0;
		*slash = '\0';
	}
	return (uint64_t)fs.f_blocks * fs.f_frsize;
}

/* "none", or a size; a percentage is of the partition's file system. */
static int parse_limit(cfg_t *cfg, const char *value, uint64_t *ret)
{
	uint64_t total = strcmp(cfg->name, "partition") == 0 ? file_system_size(cfg_title(cfg)) : 0;

	if (strcmp(value, "none") == 0) {
		*ret = 0;
		return 0;
	}
	return config_parse_size(value, total, ret) == 0 && *ret > 0 ? 0 : -EINVAL;
}

static int check_limit(cfg_t *cfg, cfg_opt_t *opt, const char *value, void *result)
{
	bool percent = strcmp(cfg->name, "partition") == 0;
	uint64_t bytes;

	if (parse_limit(cfg, value, &bytes) < 0) {
		cfg_error(cfg, "%s: \"%s\" is not right here: it takes a size, as 4GiB%s, or none",
			  opt->name, value, percent ? " or 50%" : "");
		return -1;
	}
	memcpy(result, &value, sizeof(value));
	return 0;
}

int configread_standards(bool partition, void *base)
{
	int r = 0;

	for (const struct section_key *k = KEYS; r == 0 && k < KEYS + N_KEYS; k++)
		if ((k->section == PARTITION) == partition && k->key.standard)
			r = configkey_store(&k->key, k->key.standard, base);
	return r;
}

void configread_clear(bool partition, void *base)
{
	for (const struct section_key *k = KEYS; k < KEYS + N_KEYS; k++)
		if ((k->section == PARTITION) == partition)
			configkey_clear(&k->key, base);
}

/* ---- taking over ----------------------------------------------------------------------------- */

static int take_keys(cfg_t *cfg, enum section section, void *base)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < N_KEYS; i++) {
		const char *text =
			KEYS[i].section == section ? cfg_getstr(cfg, KEYS[i].key.name) : NULL;

		if (text)
			r = configkey_store(&KEYS[i].key, text, base);
	}
	return r;
}

static int take_limit(cfg_t *cfg, struct config_partition *p, uint32_t kind, const char *id)
{
	const char *hard = cfg_getstr(cfg, "limit"), *soft = cfg_getstr(cfg, "soft");
	struct config_limit *l;

	if (!hard && !soft)
		return 0;
	l = config_limit_get(p, kind, id);
	if (!l)
		return -ENOMEM;
	if (hard)
		parse_limit(cfg, hard, &l->hard);
	if (soft)
		parse_limit(cfg, soft, &l->soft);
	if (l->hard && l->hard != CONFIG_LIMIT_DEFAULT && l->soft != CONFIG_LIMIT_DEFAULT &&
	    l->soft > l->hard) {
		cfg_error(cfg, "%s \"%s\": soft is more than limit; make it less, or leave it out",
			  cfg->name, cfg_title(cfg));
		return -EINVAL;
	}
	return 0;
}

const char *config_user_id(const char *name, char room[16])
{
	const struct passwd *pw;
	uint64_t uid;

	if (strcmp(name, "*") == 0)
		return name;
	if (configkey_number(name, 10, 0, UINT32_MAX - 1, &uid) < 0) {
		pw = getpwnam(name);
		if (!pw)
			return NULL;
		uid = pw->pw_uid;
	}
	snprintf(room, 16, "%" PRIu64, uid);
	return room;
}

static int take_named(cfg_t *cfg, struct config_partition *p, const char *section, uint32_t kind)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < cfg_size(cfg, section); i++) {
		cfg_t *sub = cfg_getnsec(cfg, section, i);
		const char *id = cfg_title(sub);
		char room[16];

		if (kind == WIRE_LIMIT_USER)
			id = config_user_id(id, room);
		if (id) {
			r = take_limit(sub, p, kind, id);
		} else {
			cfg_error(sub, "no such user: %s; name one that exists, a number, or \"*\"",
				  cfg_title(sub));
			r = -EINVAL;
		}
	}
	return r;
}

static int take_partition(cfg_t *cfg, struct config *c)
{
	struct config_partition *p;
	int r;

	if (*cfg_title(cfg) != '/') {
		cfg_error(cfg, "partition \"%s\": its title is its path, which begins with /",
			  cfg_title(cfg));
		return -EINVAL;
	}
	p = config_partition_find(c, cfg_title(cfg));
	if (!p)
		p = config_partition_add(c, cfg_title(cfg));
	if (!p)
		return -ENOMEM;
	r = take_keys(cfg, PARTITION, p);
	if (r == 0)
		r = take_limit(cfg, p, WIRE_LIMIT_PARTITION, "");
	if (r == 0)
		r = take_named(cfg, p, "user", WIRE_LIMIT_USER);
	if (r == 0)
		r = take_named(cfg, p, "label", WIRE_LIMIT_LABEL);
	return r == 0 ? take_named(cfg, p, "store", WIRE_LIMIT_STORE) : r;
}

static int take_rule(cfg_t *cfg, struct config *c)
{
	const char *from[64], *to[64], *bad = "";
	unsigned n_from = cfg_size(cfg, "from"), n_to = cfg_size(cfg, "to");
	int r;

	if (n_from == 0 || n_to == 0 || n_from > 64 || n_to > 64) {
		cfg_error(cfg, "handoff \"%s\": from and to each take 1 to 64 users or groups",
			  cfg_title(cfg));
		return -EINVAL;
	}
	for (unsigned i = 0; i < n_from; i++)
		from[i] = cfg_getnstr(cfg, "from", i);
	for (unsigned i = 0; i < n_to; i++)
		to[i] = cfg_getnstr(cfg, "to", i);
	r = rules_add(&c->rules, cfg_title(cfg), from, n_from, to, n_to, &bad);
	if (r == -EINVAL)
		cfg_error(cfg,
			  "handoff \"%s\": \"%s\": no such user or group; it takes user:NAME, "
			  "group:NAME, uid:N, gid:N or any",
			  cfg_title(cfg), bad);
	return r;
}

/* ---- copies of one actor --------------------------------------------------------------------- */

static int take_word(const char *word, size_t n, struct config_copies *to, char why[CONFIG_WHY])
{
	const size_t first = offsetof(struct config, peers.copies);
	size_t n_key = strcspn(word, "=");
	char text[CONFIG_WHY] = "";

	for (size_t i = 0; n_key < n && n < sizeof(text) && i < N_KEYS; i++) {
		struct configkey k = KEYS[i].key;

		if (KEYS[i].section != PEERS || k.offset < first ||
		    k.offset >= first + sizeof(*to) || strlen(k.name) != n_key ||
		    memcmp(word, k.name, n_key) != 0)
			continue;
		k.offset -= first;
		memcpy(text, word + n_key + 1, n - n_key - 1);
		if (configkey_check(&k, text) == 0)
			return configkey_store(&k, text, to);
		snprintf(why, CONFIG_WHY,
			 "\"%.*s\" is not right for copies of an actor: %s takes %s", (int)n, word,
			 k.name, configkey_help(k.kind));
		return -EINVAL;
	}
	snprintf(why, CONFIG_WHY,
		 "\"%.*s\" says nothing of copies of an actor: it takes KEY=VALUE with the keys of "
		 "the section peers, as num=explicit:2",
		 (int)(n < 64 ? n : 64), word);
	return -EINVAL;
}

int config_copies_read(const char *words, const struct config_copies *from,
		       struct config_copies *ret, char why[CONFIG_WHY])
{
	struct config_copies c = *from;
	int r = 0;

	if (from->selection) {
		c.selection = strdup(from->selection);
		r = c.selection ? 0 : -ENOMEM;
	}
	for (words += strspn(words, " "); r == 0 && *words; words += strspn(words, " ")) {
		size_t n = strcspn(words, " ");

		r = take_word(words, n, &c, why);
		words += n;
	}
	if (r < 0)
		config_copies_clear(&c);
	else
		*ret = c;
	return r;
}

void config_copies_clear(struct config_copies *c)
{
	free(c->selection);
	c->selection = NULL;
}

/* ---- the grammar ----------------------------------------------------------------------------- */

/* The keys of one section as libConfuse wants them; room for more after
 * them. Returns their number. */
static size_t section_opts(enum section section, cfg_opt_t *opts)
{
	size_t n = 0;

	for (size_t i = 0; i < N_KEYS; i++) {
		if (KEYS[i].section == section)
			opts[n++] =
				(cfg_opt_t)CFG_STR_CB(KEYS[i].key.name, 0, CFGF_NONE, check_key);
	}
	return n;
}

#define TITLED (CFGF_MULTI | CFGF_TITLE | CFGF_NO_TITLE_DUPES)

static cfg_t *make_parser(void)
{
	static const cfg_opt_t end = CFG_END();
	cfg_opt_t opts[PARTITION][N_KEYS + 1], partition_opts[N_KEYS + 6], root[PARTITION + 4];
	cfg_opt_t limit_opts[] = {CFG_STR_CB("limit", 0, CFGF_NONE, check_limit),
				  CFG_STR_CB("soft", 0, CFGF_NONE, check_limit), CFG_END()};
	cfg_opt_t rule_opts[] = {CFG_STR_LIST("from", 0, CFGF_NONE),
				 CFG_STR_LIST("to", 0, CFGF_NONE), CFG_END()};
	size_t n = section_opts(PARTITION, partition_opts);
	cfg_t *cfg;

	partition_opts[n++] = limit_opts[0];
	partition_opts[n++] = limit_opts[1];
	partition_opts[n++] = (cfg_opt_t)CFG_SEC("user", limit_opts, TITLED);
	partition_opts[n++] = (cfg_opt_t)CFG_SEC("label", limit_opts, TITLED);
	partition_opts[n++] = (cfg_opt_t)CFG_SEC("store", limit_opts, TITLED);
	partition_opts[n] = end;
	for (n = 0; n < PARTITION; n++) {
		opts[n][section_opts((enum section)n, opts[n])] = end;
		root[n] = (cfg_opt_t)CFG_SEC(SECTIONS[n], opts[n], CFGF_NONE);
	}
	root[n++] = (cfg_opt_t)CFG_SEC("partition", partition_opts, TITLED);
	root[n++] = (cfg_opt_t)CFG_SEC("handoff", rule_opts, TITLED);
	root[n++] = (cfg_opt_t)CFG_STR(END, 0, CFGF_NONE);
	root[n] = end;
	/* It copies the options, all the way down. */
	cfg = cfg_init(root, CFGF_NONE);
	if (cfg)
		cfg_set_error_function(cfg, on_error);
	return cfg;
}

/* To libConfuse an '=' ends a value without quotes: conservative=p95 becomes
 * conservative:p95, which says the same. */
static void quote_choice(char *text)
{
	static const char word[] = "conservative=";
	char *at, *before;

	for (at = text; (at = strstr(at, word)) != NULL;) {
		for (before = at; before > text && (before[-1] == ' ' || before[-1] == '\t');)
			before--;
		at += sizeof(word) - 2;
		if (before > text && before[-1] == '=')
			*at = ':';
	}
}

/* The file's text with END after it. 0, -errno; -EFBIG. */
static int read_text(const char *file, char **ret, size_t *ret_n)
{
	FILE *f = fopen(file, "re");
	char *text;
	size_t n;
	int r = 0;

	if (!f)
		return -errno;
	text = malloc(FILE_MAX + sizeof(END_TEXT));
	if (!text) {
		fclose(f);
		return -ENOMEM;
	}
	n = fread(text, 1, FILE_MAX, f);
	if (ferror(f))
		r = errno ? -errno : -EIO;
	else if (n == FILE_MAX)
		r = -EFBIG;
	fclose(f);
	if (r < 0) {
		free(text);
		return r;
	}
	if (n && text[n - 1] == '\n')
		n--; /* END_TEXT has one: the line after the last is the one that is said */
	memcpy(text + n, END_TEXT, sizeof(END_TEXT));
	quote_choice(text);
	*ret = text;
	*ret_n = n + sizeof(END_TEXT) - 1;
	return 0;
}

int configread_file(struct config *c, const char *file, char **ret_error)
{
	cfg_t *cfg = make_parser();
	char *text = NULL;
	FILE *f = NULL;
	size_t n = 0;
	int r = cfg ? read_text(file, &text, &n) : -ENOMEM;

	message = NULL;
	reading = file;
	if (r < 0 && asprintf(&message, "%s: %s; check the path and its permissions", file,
			      strerror(-r)) < 0)
		message = NULL;
	if (r == 0 && !(f = fmemopen(text, n, "r")))
		r = -ENOMEM;
	if (r == 0 && cfg_parse_fp(cfg, f) != CFG_SUCCESS)
		r = -EINVAL;
	for (unsigned i = 0; r == 0 && i < PARTITION; i++)
		r = take_keys(cfg_getsec(cfg, SECTIONS[i]), (enum section)i, c);
	for (unsigned i = 0; r == 0 && i < cfg_size(cfg, "partition"); i++)
		r = take_partition(cfg_getnsec(cfg, "partition", i), c);
	for (unsigned i = 0; r == 0 && i < cfg_size(cfg, "handoff"); i++)
		r = take_rule(cfg_getnsec(cfg, "handoff", i), c);
	if (f)
		fclose(f);
	free(text);
	cfg_free(cfg);
	if (r < 0)
		*ret_error = message;
	else
		free(message);
	message = NULL;
	return r;
}
