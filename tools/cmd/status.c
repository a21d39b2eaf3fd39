/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_status.c: "shmstore-admin status": the daemon in a few lines: since when it runs, on what,
 * and each partition that it watches, with the df equation of its last survey, and its disk tier.
 * With --json the daemon's document as it is. And other subcommands that ask the daemon alone.
 */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <limits.h>
#include <poll.h>
#include <shmstore/shmstore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>

#include "admin.h"
#include "alloc.h"
#include "asking.h"
#include "cleanup.h"
#include "frames.h"
#include "jsonin.h"
#include "opening.h"
#include "options.h"
#include "table.h"

static const struct table_column columns[] = {
	{"PARTITION", FIGURE_TEXT, "partition"},
	{"SIZE", FIGURE_SIZE, "size"},
	{"USED", FIGURE_SIZE, "used"},
	{"FILL", TABLE_FILL, "used/size"},
	{"ALIVE", FIGURE_COUNT, "ledgers.stores"},
	{"OBJECTS", FIGURE_COUNT, "ledgers.objects"},
	{"LINKED", FIGURE_SIZE, "survey.linked", ""},
	{"GHOSTS", FIGURE_SIZE, "survey.ghosts", ""},
	{"POOL", FIGURE_SIZE, "survey.pool", ""},
	{"INFLIGHT", FIGURE_SIZE, "survey.inflight", ""},
	{"FOREIGN", FIGURE_SIZE, "survey.foreign", ""},
	{"RESIDUAL", FIGURE_SIZE | TABLE_BAD, "survey.residual", ""},
	{"SURVEYED", TABLE_RIGHT, "[survey?{survey.age_seconds:time} ago|not yet]"},
};

static void print_document(const struct admin *a, const struct json_object *document)
{
	const struct json_object *d = jsonin_object(document, "daemon");

	figure_print(d, false, "shmstored {version}, pid {pid}, up ");
	fputs(human_duration(jsonin_real(d, "time") - jsonin_real(d, "started")), stdout);
	figure_print(d, false, ", {clients:client}, on {backend}[draining?, about to end]\n");
	if (jsonin_count(document, "partitions"))
		TABLE_LIST(a, columns, document, "partitions");
	else
		puts("watches no partition");
	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++) {
		const struct json_object *p = jsonin_at(document, "partitions", i);

		if (!jsonin_has(p, "tier"))
			continue;
		figure_print(p, false, "disk tier of {partition}: ");
		tierstate_print_asked(a, jsonin_object(p, "tier"));
	}
}

/* After a reconcile, as of that command: 1 where bytes are missing. */
static int judge(const struct json_object *document)
{
	int status = ADMIN_OK;

	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++) {
		const struct json_object *p = jsonin_at(document, "partitions", i);
		int64_t residual = jsonin_i64(jsonin_object(p, "survey"), "residual");

		if (residual)
			status = message_fail(jsonin_text(p, "partition"),
					      "%" PRId64 " bytes are not accounted for", residual);
	}
	return status;
}

int cmd_status(struct admin *a, int argc, char **argv)
{
	static const struct options_row options[] = {
		{"reconcile", 'r', NULL,
		 "have every byte accounted for first; exit status 1 if some are missing",
		 OPTIONS_FLAG},
		{NULL},
	};
	bool reconcile = false;

	OPTIONS_PARSE(a, argc, argv, "status",
		      "Shows the daemon and the partitions that it watches (with -p: that one).\v"
		      "SIZE, USED, ALIVE and OBJECTS are of the last second; the terms of the df "
		      "equation are of the last survey.",
		      .options = options, .own = &reconcile);
	return ASKING_SHOW(a, reconcile ? SHMSTORE_QUERY_RECONCILE : SHMSTORE_QUERY_STATUS,
			   .judge = reconcile ? judge : NULL, .document = print_document);
}

/* ---- quota ----------------------------------------------------------------------------------- */

/* Every limit that is set or in use, what counts against it, and who waits for room. */

static void show_used(struct table *t, size_t column, const struct json_object *o)
{
	table_size(t, column, jsonin_u64(o, "used"));
	if (jsonin_has(o, "soft") && jsonin_u64(o, "used") > jsonin_u64(o, "soft"))
		table_color(t, column, "yellow");
}

static const struct table_column quota_columns[] = {
	{"LIMIT OF", FIGURE_TEXT, "kind"},
	{"WHICH", FIGURE_TEXT, "id"},
	{"HARD", FIGURE_SIZE, "hard", "-"},
	{"SOFT", FIGURE_SIZE, "soft", "-"},
	{"USED", TABLE_RIGHT, .show = show_used},
	{"GRANTED", FIGURE_SIZE, "outstanding"},
	{"FILL", TABLE_FILL, "used+outstanding/hard"},
	{"STORES", FIGURE_COUNT, "stores"},
	{"WAITING", FIGURE_COUNT | TABLE_WARN, "waiting"},
	{"REFUSED", FIGURE_COUNT, "refused"},
};

static void print_quota(const struct admin *a, const struct json_object *p)
{
	if (!TABLE_LIST(a, quota_columns, p, "limits"))
		puts("no limits but the size of the file system");
	if (jsonin_has(p, "watermark_high"))
		figure_print(p, a->bytes,
			     "watermarks: asks for bytes back above {watermark_high:size} until "
			     "below {watermark_low:size}\n");
}

int cmd_quota(struct admin *a, int argc, char **argv)
{
	OPTIONS_PARSE(a, argc, argv, "quota",
		      "Shows the limits: of partitions, users, labels and stores.\v"
		      "USED is taken, GRANTED is what stores may take without asking; both "
		      "together never pass HARD. Above SOFT stores are asked to give back. WAITING "
		      "and REFUSED count requests. \"*\" is the limit of all that have none of "
		      "their own. To set one: " ADMIN_NAME " set user.1000.limit=4GiB");
	return ASKING_SHOW(a, SHMSTORE_QUERY_QUOTA, .partition = print_quota);
}

/* ---- set ------------------------------------------------------------------------------------- */

/* A limit of the daemon, which has the keys. */

int cmd_set(struct admin *a, int argc, char **argv)
{
	static const char *const names[] = {"KEY=VALUE", NULL};
	struct command_line line = OPTIONS_LINE(
		a, "set KEY=VALUE",
		"Sets a limit of the partition (-p, or $SHMSTORE_PARTITION; may be left out where "
		"the daemon watches one only).\v"
		"Keys: limit, soft, user.USER.limit, user.USER.soft, label.LABEL.limit, "
		"label.LABEL.soft, store.STORE.limit, store.STORE.soft; USER is a name, a number "
		"or * for all others. Values: a size such as 4GiB (for the partition also 50%), "
		"none, or default. It holds until the daemon ends; for good it belongs into "
		"shmstored.conf(5). Root and the daemon's user only.",
		.names = names, .n_needed = 1);

	options_parse(&line, argc, argv);
	if (!strchr(line.args[0], '=')) {
		message_say("set: %s: is no KEY=VALUE, such as user.1000.limit=4GiB", line.args[0]);
		return ADMIN_USAGE;
	}
	const char *partition = asking_partition(a);
	_free_ char *assignment = shms_printed("%s%s%s", partition ? partition : "",
					       partition ? " " : "", line.args[0]);
	if (!assignment)
		message_no_memory();
	_client_ struct shmstore_client *c = asking_open(a);
	asking_check(c, line.args[0], shmstore_client_set(c, assignment));
	struct json_object *o = jsonmake_new();
	jsonmake_prose(o, "partition", partition);
	jsonmake_prose(o, "set", line.args[0]);
	json_say(a, o,
		 "{set} is set for [partition?{partition}|the one partition that the daemon "
		 "watches] "
		 "until the daemon ends; to keep it, write it into shmstored.conf\n");
	return ADMIN_OK;
}

/* ---- actors ---------------------------------------------------------------------------------- */

/* Where each actor is, what waits for it, and which daemons have copies of its state. */

/* "node2 at 7 (2 MiB), node3 at 6 (2 MiB)" */
static void show_copies(struct table *t, size_t column, const struct json_object *o)
{
	char text[512] = "-";
	size_t n = 0;

	for (size_t i = 0; i < jsonin_count(o, "copies") && n < sizeof(text); i++) {
		const struct json_object *c = jsonin_at(o, "copies", i);

		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s at %" PRIu64 " (%s)",
				      i ? ", " : "", jsonin_text(c, "daemon"),
				      jsonin_u64(c, "version"), human_size(jsonin_u64(c, "bytes")));
	}
	table_text(t, column, text);
}

static const struct table_column actors_columns[] = {
	{"ACTOR", TABLE_TRUNC, "name"},
	{"UID", FIGURE_COUNT, "uid"},
	{"STATE", FIGURE_TEXT, "state"},
	{"PLACE", TABLE_TRUNC, "place", "-"},
	{"PID", FIGURE_COUNT, "pid"},
	{"DAEMON", TABLE_TRUNC, "daemon", "-"},
	{"QUEUED", FIGURE_COUNT, "queued"},
	{"MOVABLE", FIGURE_FLAG, "movable"},
	{"RESTARTS", FIGURE_COUNT, "restarts_left", "always"},
	{"OPTIONS", TABLE_WRAP,
	 "[options.copies?{options.num} by {options.selection}, {options.strategy} every "
	 "{options.frequency} s, retry {options.retry}, stale {options.preempt_from_stale}"
	 "[options.panic_on_missing?, panic on missing]|no copies]"},
	{"COPIES", TABLE_WRAP, .show = show_copies},
};

static void print_actors(const struct admin *a, const struct json_object *document)
{
	const struct json_object *o = jsonin_object(document, "actors");

	printf("%" PRIu64 " places, %zu other daemons", jsonin_u64(o, "places"),
	       jsonin_count(o, "peers"));
	figure_print(o, false,
		     ", copies [copies?on|off]; so far {answered} calls answered, {lost} lost; "
		     "{moves} actors moved, {failed} moves failed, {restarts} actors begun again, "
		     "{died} lost\n");
	if (jsonin_count(o, "actors"))
		TABLE_LIST(a, actors_columns, o, "actors");
}

int cmd_actors(struct admin *a, int argc, char **argv)
{
	OPTIONS_PARSE(a, argc, argv, "actors",
		      "Shows each actor: what it does, the place and the process where it is, or "
		      "the other daemon where it lives, and what waits for it.\v"
		      "MOVABLE: it may be moved where memory is short. RESTARTS: how often it is "
		      "still begun again when its process dies. OPTIONS: how copies of it are "
		      "made. COPIES are at other daemons, each with the version of the state that "
		      "it has. Of other users root and the daemon's user see the actors.");
	a->partition = ""; /* all: it is of the host */
	return ASKING_SHOW(a, SHMSTORE_QUERY_ACTORS, .document = print_actors);
}

/* ---- workers --------------------------------------------------------------------------------- */

/*
 * The stores that the daemon knows, by their share of the memory; or the same by user or by label.
 * Books (LINKED, PSS, USS, POOL) are of the last survey; a store that came since has only its
 * ledger's figures.
 */

/* The keys to sort by: members of a store's, user's or label's object. */
static const char *const sorts[] = {"linked", "pss", "uss", "pool", "mapped", "pid", "name"};
#define N_SORTS (sizeof(sorts) / sizeof(sorts[0]))
/* The members that they are: the books', or, for a store that came after them, the ledger's. */
static const char *const sort_members[N_SORTS] = {"-linked|ledger.linked", "-pss",    "-uss",
						  "-pool|ledger.pool",     "-mapped", "-pid"};

enum by {
	BY_STORE,
	BY_USER,
	BY_LABEL,
	N_BY
};
static const char *const by_names[N_BY] = {"store", "user", "label"};
static const struct {
	const char *list, *name;
} bys[N_BY] = {{"workers", "name"}, {"users", "user"}, {"labels", "label"}};

struct workers {
	size_t sort; /* of sorts */
	size_t by;   /* enum by */
};

/* ---- tables ---- */

/* A store that came after the survey has no books, and its ledger's figures instead. */
static const struct table_column stores[] = {
	{"STORE", FIGURE_TEXT, "name|path"},
	{"PID", FIGURE_COUNT, "pid"},
	{"USER", FIGURE_TEXT, "user"},
	{"STATE", .show = table_store_state},
	{"OBJECTS", FIGURE_COUNT, "objects|ledger.objects"},
	{"LINKED", FIGURE_SIZE, "linked|ledger.linked", "-"},
	{"PSS", FIGURE_SIZE, "pss", "-"},
	{"USS", FIGURE_SIZE, "uss", "-"},
	{"POOL", FIGURE_SIZE, "pool|ledger.pool", "-"},
	{"MAPPED", FIGURE_SIZE, "mapped"},
	{"PUT B/s", FIGURE_SIZE, "put_bytes_per_s"},
	{"CREDIT", TABLE_RIGHT, "[credit.unlimited?no limit|[credit?{credit.outstanding:size}|-]]"},
	{"ASKED BACK", FIGURE_SIZE | TABLE_UNLESS_0 | TABLE_WARN, "asked"},
	{"LABEL", TABLE_TRUNC, "label"},
};

static const struct table_column groups[] = {
	{"USER", FIGURE_TEXT, "user"},      {"LABEL", FIGURE_TEXT, "label"},
	{"STORES", FIGURE_COUNT, "stores"}, {"LINKED", FIGURE_SIZE, "linked"},
	{"PSS", FIGURE_SIZE, "pss"},        {"USS", FIGURE_SIZE, "uss"},
	{"POOL", FIGURE_SIZE, "pool"},      {"GHOSTS", FIGURE_SIZE, "ghosts"},
};

static void print_list(const struct admin *a, const struct json_object *p)
{
	const struct workers *w = a->own;
	const char *const name = bys[w->by].name, *const by = sort_members[w->sort];
	const char *const order[] = {by ? by : name, name, NULL};
	size_t n;
	const struct json_object **items = jsonin_sorted(p, bys[w->by].list, order, &n);
	struct table t;

	if (w->by == BY_STORE)
		table_init(&t, a, stores, sizeof(stores) / sizeof(stores[0]));
	else
		table_init(&t, a, groups, sizeof(groups) / sizeof(groups[0]));
	table_hide(&t, w->by == BY_USER ? "LABEL" : w->by == BY_LABEL ? "USER" : "");
	if (w->by == BY_LABEL)
		table_hide(&t, "GHOSTS");
	for (size_t i = 0; i < n; i++)
		table_object(&t, items[i]);
	table_finish(&t);
	free(items);
}

static void print_workers(const struct admin *a, const struct json_object *p)
{
	const struct workers *w = a->own;

	if (w->by != BY_STORE && !jsonin_u64(p, "survey_sequence"))
		puts("not surveyed yet");
	print_list(a, p);
	if (w->by == BY_STORE && !jsonin_count(p, "workers"))
		puts("no stores");
	if (w->by == BY_STORE && jsonin_u64(p, "left_out"))
		figure_print(p, false, "... and {left_out} more\n");
}

/* ---- the command ---- */

int cmd_workers(struct admin *a, int argc, char **argv)
{
	typedef struct workers OF;
	static const struct options_row options[] = {
		{"sort", 0, "COLUMN", "linked (default), pss, uss, pool, mapped, pid or name",
		 OPTIONS_WORD, offsetof(OF, sort), .words = sorts, .n_words = N_SORTS},
		{"by", 0, "WHAT", "add up by store (default), user or label", OPTIONS_WORD,
		 offsetof(OF, by), .words = by_names, .n_words = N_BY},
		{NULL},
	};
	struct workers w = {0};

	OPTIONS_PARSE(a, argc, argv, "workers",
		      "Shows the stores that the daemon knows, and what they take.\v"
		      "LINKED, PSS, USS and POOL are of the last survey, the rest of the last "
		      "second. CREDIT is what a store may still take without asking, ASKED BACK "
		      "what the daemon wants back from it. Who is neither root nor the daemon's "
		      "user sees his own stores. Columns are sorted downwards, names upwards; with "
		      "--json nothing is sorted or left out.",
		      .options = options, .own = &w);
	return ASKING_SHOW(a, SHMSTORE_QUERY_WORKERS, .partition = print_workers);
}

/* ---- watch ----------------------------------------------------------------------------------- */

/*
 * Prints events as they happen: for people one line of text, with --json the daemon's own line.
 * SIGINT is read of a descriptor, so that none is missed between looking and waiting: Ctrl-C
 * ends it in good order, after whole lines.
 */
struct watch {
	const struct admin *admin;
	uint64_t since;
	const char *events;
	uint64_t n_wanted; /* 0: without end */
};

/* "12:03:04 store-came  partition=/p  name=a" */
static void print_event(const char *json)
{
	struct json_object *o = jsonin_parse(json, strlen(json));

	if (!o) {
		message_say("watch: the daemon sent an event that is no JSON object");
		return;
	}
	printf("%s ", frames_clock((time_t)jsonin_real(o, "time")));
	figure_print_escaped(jsonin_text(o, "event"));
	json_object_object_foreach(o, name, value)
	{
		if (!value || strcmp(name, "time") == 0 || strcmp(name, "event") == 0 ||
		    strcmp(name, "sequence") == 0)
			continue;
		fputs("  ", stdout);
		figure_print_escaped(name);
		putchar('=');
		figure_print_escaped(
			json_object_is_type(value, json_type_string)
				? json_object_get_string(value)
				: json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN));
	}
	putchar('\n');
	jsonin_free(o);
}

static int follow(const struct watch *w, struct shmstore_client *c, int interrupts)
{
	struct pollfd fds[2] = {{.fd = interrupts, .events = POLLIN},
				{.fd = shmstore_client_fd(c), .events = POLLIN}};
	uint64_t n_printed = 0;
	const char *json;

	while (!fds[0].revents && !ferror(stdout) && (!w->n_wanted || n_printed < w->n_wanted)) {
		int r = shmstore_client_event(c, 0, NULL, &json);

		if (r < 0)
			return asking_explain(c, NULL, r);
		if (r == 0) {
			fflush(stdout); /* all that was there is out before we wait */
			if (poll(fds, 2, -1) < 0 && errno != EINTR)
				return message_fail("watch", "waiting failed: %s", strerror(errno));
			continue;
		}
		n_printed++;
		if (!w->admin->json)
			print_event(json);
		else if (strpbrk(json, "\n\r"))
			return message_fail("watch",
					    "the daemon sent an event that is not one line");
		else
			puts(json);
	}
	return ADMIN_OK;
}

int cmd_watch(struct admin *a, int argc, char **argv)
{
	typedef struct watch OF;
	static const struct options_row options[] = {
		{"since", 0, "NUMBER",
		 "first those that are kept, after the event of that number; 0 = all",
		 OPTIONS_NUMBER, offsetof(OF, since)},
		{"events", 0, "LIST", "only these, names separated by commas", OPTIONS_TEXT,
		 offsetof(OF, events)},
		{"count", 'n', "N", "end after N events (default: never)", OPTIONS_NUMBER,
		 offsetof(OF, n_wanted), 1},
		{NULL},
	};
	struct watch w = {.admin = a, .since = SHMSTORE_WATCH_NEW};
	sigset_t set;

	OPTIONS_PARSE(a, argc, argv, "watch",
		      "Prints what happens, one event a line, until it is interrupted.\v"
		      "With --json each line is one object with a member sequence, its number, "
		      "from which --since goes on after an interruption. Exit status 0 after an "
		      "interrupt, 1 where the daemon ended. The events and what to do about each "
		      "are in docs/operations.md.",
		      .options = options, .own = &w);
	/* From here on SIGINT can be read of a descriptor, and does nothing else. */
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	int interrupts = signalfd(-1, &set, SFD_CLOEXEC);
	_client_ struct shmstore_client *c = asking_open(a);
	asking_check(c, "watch", shmstore_client_watch(c, w.since, w.events));
	return follow(&w, c, interrupts);
}

/* ---- config ---------------------------------------------------------------------------------- */

/*
 * Shows the partition and the socket that commands, and programs that name none, go by here and
 * now, by what they were chosen, and what the daemon holds them to.
 */
/* By what a value was chosen. */
static const char *by(const char *option, const char *given, const char *variable)
{
	const char *set = getenv(variable);

	return given ? option : set && *set ? variable : "default";
}

static void print_limits(const struct admin *a, const struct json_object *p)
{
	figure_print(p, a->bytes, "limits of    {partition}\n");
	for (size_t i = 0; i < jsonin_count(p, "limits"); i++) {
		const struct json_object *l = jsonin_at(p, "limits", i);

		figure_print(l, a->bytes,
			     "             {kind} {id}: hard [has hard?{hard:size}|none], soft "
			     "[has soft?{soft:size}|none]\n");
	}
	if (!jsonin_count(p, "limits"))
		puts("             none but the size of the file system");
}

static void print_config(const struct admin *a, const struct json_object *o)
{
	const struct json_object *quota = jsonin_object(o, "quota");

	figure_print(
		o, false,
		"partition    {partition} ({partition_from})\n"
		"socket       {socket} ({socket_from})\n"
		"daemon       [daemon=none?none ]answers; stores look for it: {daemon_mode}\n");
	for (size_t i = 0; i < jsonin_count(quota, "partitions"); i++)
		print_limits(a, jsonin_at(quota, "partitions", i));
	if (!quota)
		puts("limits       none: the size of the file system");
}

/* Adds the daemon's socket as the library chooses it, whether somebody listens there, and the
 * limits where it watches that partition (NULL: all). */
static void add_daemon(struct json_object *o, const struct admin *a, const char *partition)
{
	_client_ struct shmstore_client *c = NULL;
	struct json_object *limits = NULL;
	bool there =
		asking_client(a, ASKING_TIMEOUT_MS, &c) == 0 && shmstore_client_connect(c) == 0;

	if (there && !asking_elsewhere(c, partition))
		asking_ask(c, SHMSTORE_QUERY_QUOTA, partition, &limits);
	jsonmake_prose(o, "socket", c ? shmstore_client_path(c) : "");
	jsonmake_prose(o, "daemon", there ? "answers" : "none");
	jsonmake_child(o, "quota", limits);
}

int cmd_config(struct admin *a, int argc, char **argv)
{
	const char *mode = getenv("SHMSTORE_DAEMON");
	char partition[PATH_MAX];

	OPTIONS_PARSE(a, argc, argv, "config",
		      "Shows which partition and which socket are in force, by what each was "
		      "chosen, and the limits that the daemon holds.\v"
		      "What shmstored would make of its file: shmstored --check-config.");
	opening_path(a, partition);
	struct json_object *o = jsonmake_new();
	jsonmake_prose(o, "partition", partition);
	jsonmake_prose(o, "partition_from", by("-p", a->partition, "SHMSTORE_PARTITION"));
	jsonmake_null(o, "socket");
	jsonmake_prose(o, "socket_from", by("--socket", a->socket, "SHMSTORE_SOCKET"));
	jsonmake_null(o, "daemon");
	jsonmake_prose(o, "daemon_mode", mode && *mode ? mode : "auto");
	add_daemon(o, a, a->partition || getenv("SHMSTORE_PARTITION") ? partition : NULL);
	json_show(a, o, print_config);
	return ADMIN_OK;
}

/* ---- version --------------------------------------------------------------------------------- */

int cmd_version(struct admin *a, int argc, char **argv)
{
	OPTIONS_PARSE(a, argc, argv, "version", "Prints the version of the library.");
	struct json_object *o = jsonmake_new();
	jsonmake_prose(o, "version", shmstore_version());
	json_say(a, o, ADMIN_NAME " {version}\n");
	return ADMIN_OK;
}
