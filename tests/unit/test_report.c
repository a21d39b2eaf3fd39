/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reports and the metrics of a partition that is made by hand: what is said of whom, and who
 * may see it. Names are of the worst kind that file systems allow.
 */
#include <criterion/criterion.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "actord.h"
#include "config.h"
#include "fields.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "member.h"
#include "report.h"

#define ALICE 1001u
#define BOB   1002u
#define EVIL  "we\"ird\\\n\xff"

/* Literals where the structures have what they own. */
#define T(literal) ((char *)(uintptr_t)(literal))

static struct survey_store stores[] = {
	{.name = T("a1"),
	 .path = T("/p/stores/a1"),
	 .label = T("dask"),
	 .address = T(""),
	 .pid = 11,
	 .uid = ALICE,
	 .alive = SHMSTORE_ALIVE,
	 .books = {.n_objects = 3, .linked = 300, .pss = 200, .uss = 100, .pool = 10}},
	{.name = T(EVIL),
	 .path = T("/p/stores/" EVIL),
	 .label = T(EVIL),
	 .address = T("tcp://x"),
	 .pid = 12,
	 .uid = BOB,
	 .alive = SHMSTORE_ALIVE,
	 .books = {.n_objects = 1, .linked = 100, .pss = 50, .uss = 25, .pool = 5}},
	{.name = T("a2"),
	 .path = T("/p/stores/a2"),
	 .label = T("dask"),
	 .address = T(""),
	 .pid = 13,
	 .uid = ALICE,
	 .alive = SHMSTORE_DEAD,
	 .keep = true,
	 .books = {.n_objects = 7, .linked = 70, .pss = 70, .uss = 70, .pool = 0}},
	{.name = T("b2"),
	 .path = T("/p/stores/b2"),
	 .label = T("dask"),
	 .address = T(""),
	 .pid = 14,
	 .uid = BOB,
	 .alive = SHMSTORE_DEAD,
	 .books = {.n_objects = 2, .linked = 20, .pss = 20, .uss = 20, .pool = 0}},
};
static struct survey_user users[] = {
	{.uid = ALICE,
	 .name = T("alice"),
	 .books = {.uid = ALICE, .linked = 370, .pool = 10, .ghosts = 0, .n_stores = 2},
	 .pss = 270,
	 .uss = 170},
	{.uid = BOB,
	 .name = T("bob"),
	 .books = {.uid = BOB, .linked = 120, .pool = 5, .ghosts = 4096, .n_stores = 2},
	 .pss = 70,
	 .uss = 45},
};
static struct survey_holder holders[] = {
	{.kind = SHMSTORE_HOLD_GHOST,
	 .pid = 12,
	 .uid = BOB,
	 .command = "secret",
	 .inode = 5,
	 .bytes = 4096,
	 .mapped = 4096,
	 .path = T("/p/x"),
	 .key = T("k"),
	 .first = true},
};
static struct survey survey = {
	.sequence = 9,
	.time_ns = 1700000000123456789,
	.duration_ns = 1500000,
	.usage = {.size = 1 << 20,
		  .used = 4601,
		  .linked = 490,
		  .ghosts = 4096,
		  .pool = 15,
		  .n_stores = 4,
		  .n_objects = 13},
	.stores = stores,
	.n_stores = 4,
	.users = users,
	.n_users = 2,
	.holders = holders,
	.n_holders = 1,
	.n_holders_left_out = 2,
};

static struct config_partition partition_config = {.path = T("/p"),
						   .survey_interval_ns = 1000000000};
static struct config config = {.partitions = &partition_config, .n_partitions = 1};
static struct account account = {
	.config = &partition_config,
	.path = T("/p"),
	.uuid = "00000000-0000-0000-0000-000000000001",
	.survey = &survey,
	.tick = {.time_ns = 2000000000,
		 .size = 1 << 20,
		 .used = 5000,
		 .used_max = 6000,
		 .n_members = 3,
		 .put_n = 30,
		 .handoff_n = 7},
	.before = {.time_ns = 1000000000, .put_n = 10, .handoff_n = 8},
};
/* a1 lives on, the evil one was replaced by another process, c1 came after the survey. */
static struct member members[] = {
	{.account = &account,
	 .found = &stores[0],
	 .next = &members[1],
	 .path = T("/p/stores/a1"),
	 .name = "a1",
	 .label = "dask",
	 .address = "",
	 .pid = 11,
	 .uid = ALICE,
	 .last = {.linked_n = 4, .linked_bytes = 400, .mapped_bytes = 77}},
	{.account = &account,
	 .found = &stores[1],
	 .next = &members[2],
	 .path = T("/p/stores/" EVIL),
	 .name = EVIL,
	 .label = EVIL,
	 .address = "",
	 .pid = 99,
	 .uid = BOB},
	{.account = &account,
	 .path = T("/p/stores/c1"),
	 .name = "c1",
	 .label = "",
	 .address = "",
	 .pid = 15,
	 .uid = ALICE},
};
static struct host host = {.started_ns = 1600000000000000000,
			   .epoch = 42,
			   .config = &config,
			   .accounts = &account,
			   .actord = &actord_none,
			   .n_conns = 3};

static void set_up(void)
{
	struct json_object *fields = json_object_new_object();

	account.host = &host;
	account.members = members;
	cr_assert_eq(loop_new(&host.loop), 0);
	cr_assert_eq(events_new(&host.events), 0);
	for (int i = 0; i < 25; i++)
		history_add(&account.history,
			    &(struct history_sample){
				    .time_ns = (1700000000 + i) * INT64_C(1000000000) + 123456,
				    .used = (uint64_t)i});
	json_object_object_add(fields, "uid", json_object_new_int(BOB));
	events_emit(host.events, EVENT_STORE_CAME, NULL, fields);
	events_emit(host.events, EVENT_CONFIG, NULL, NULL);
}

static void tear_down(void)
{
	events_free(host.events);
	loop_free(host.loop);
}

TestSuite(report, .init = set_up, .fini = tear_down);

/* Follows names and indices: "partitions", "0", "workers". NULL: not there. */
static struct json_object *at(struct json_object *o, const char *path)
{
	char copy[128], *next = copy, *word;

	snprintf(copy, sizeof(copy), "%s", path);
	while (o && (word = strsep(&next, "/")) != NULL) {
		if (json_object_is_type(o, json_type_array))
			o = json_object_array_get_idx(o, (size_t)atoi(word));
		else if (!json_object_object_get_ex(o, word, &o))
			return NULL;
	}
	return o;
}

static uint64_t number_at(struct json_object *o, const char *path)
{
	cr_assert(json_object_is_type(at(o, path), json_type_int), "%s in %s", path,
		  json_object_to_json_string(o));
	return json_object_get_uint64(at(o, path));
}

static const char *text_at(struct json_object *o, const char *path)
{
	cr_assert_not_null(at(o, path), "%s in %s", path, json_object_to_json_string(o));
	return json_object_get_string(at(o, path));
}

static size_t length_at(struct json_object *o, const char *path)
{
	return json_object_array_length(at(o, path));
}

/* Made, printed, and read again: what a client sees. */
static struct json_object *report_since(enum wire_question what, unsigned uid, uint64_t since)
{
	struct json_object *made = report_make(&host, what, "", uid, since), *read;
	const char *text;

	cr_assert_not_null(made);
	text = json_object_to_json_string_ext(made, JSON_C_TO_STRING_PLAIN);
	cr_assert(printable_is(text, strlen(text)));
	read = json_tokener_parse(text);
	cr_assert_not_null(read, "%s", text);
	json_object_put(made);
	return read;
}

static struct json_object *report(enum wire_question what, unsigned uid)
{
	return report_since(what, uid, 0);
}

Test(report, status_says_what_the_tick_and_the_survey_say)
{
	struct json_object *o = report(WIRE_QUERY_STATUS, REPORT_ALL);

	cr_assert_eq(number_at(o, "daemon/epoch"), 42);
	cr_assert_eq(number_at(o, "daemon/clients"), 3);
	cr_assert_eq(number_at(o, "daemon/events/store-came"), 1);
	cr_assert_str_eq(text_at(o, "daemon/view"), "all");
	cr_assert_eq(number_at(o, "partitions/0/used"), 5000);
	cr_assert_eq(number_at(o, "partitions/0/available"), (1 << 20) - 5000);
	cr_assert_eq(number_at(o, "partitions/0/used_max"), 6000);
	cr_assert_str_eq(text_at(o, "partitions/0/ledgers/put_per_s"), "20.000");
	cr_assert_str_eq(text_at(o, "partitions/0/ledgers/handoff_per_s"), "0.000",
			 "a counter that fell is no rate");
	cr_assert_eq(number_at(o, "partitions/0/survey/sequence"), 9);
	cr_assert_str_eq(text_at(o, "partitions/0/survey/time"), "1700000000.123");
	cr_assert_eq(number_at(o, "partitions/0/survey/used"), 4601);
	cr_assert_eq(number_at(o, "partitions/0/survey/residual"), 0);
	json_object_put(o);
	o = report(WIRE_QUERY_STATUS, ALICE);
	cr_assert_str_eq(text_at(o, "daemon/view"), "own");
	json_object_put(o);
	o = report(WIRE_QUERY_STATUS, REPORT_NOBODY);
	cr_assert_str_eq(text_at(o, "daemon/view"), "totals");
	json_object_put(o);
}

Test(report, no_survey_so_far)
{
	static const enum wire_question all[] = {WIRE_QUERY_STATUS,  WIRE_QUERY_WORKERS,
						 WIRE_QUERY_QUOTA,   WIRE_QUERY_HOLDERS,
						 WIRE_QUERY_HISTORY, WIRE_QUERY_EVENTS};
	char *text;
	size_t n;

	account.survey = NULL;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		json_object_put(report(all[i], REPORT_ALL));
	cr_assert_eq(metrics_make(&host, NULL, REPORT_ALL, true, &text, &n), 0);
	free(text);
	account.survey = &survey;
}

Test(report, unknown_partition)
{
	cr_assert_null(report_make(&host, WIRE_QUERY_STATUS, "/q", REPORT_ALL, 0));
}

Test(report, workers_live_ones_first_then_the_dead)
{
	struct json_object *o = report(WIRE_QUERY_WORKERS, REPORT_ALL);

	cr_assert_eq(length_at(o, "partitions/0/workers"), 5);
	cr_assert_str_eq(text_at(o, "partitions/0/workers/0/name"), "a1");
	cr_assert_eq(number_at(o, "partitions/0/workers/0/pss"), 200, "of the survey");
	cr_assert_eq(number_at(o, "partitions/0/workers/0/ledger/linked"), 400, "of its page, now");
	cr_assert_eq(number_at(o, "partitions/0/workers/0/mapped"), 77);
	cr_assert_str_eq(text_at(o, "partitions/0/workers/0/user"), "alice");
	cr_assert_str_eq(text_at(o, "partitions/0/workers/1/name"), "we\"ird\\\\x0a\\xff");
	cr_assert_null(at(o, "partitions/0/workers/1/pss"), "another process than the survey saw");
	cr_assert_null(at(o, "partitions/0/workers/2/pss"), "it came after the survey");
	cr_assert_str_eq(text_at(o, "partitions/0/workers/3/name"), "a2");
	cr_assert_not(json_object_get_boolean(at(o, "partitions/0/workers/3/alive")));
	cr_assert_str_eq(text_at(o, "partitions/0/workers/4/name"), "b2");
	cr_assert_eq(length_at(o, "partitions/0/users"), 2);
	cr_assert_eq(length_at(o, "partitions/0/labels"), 2);
	cr_assert_str_eq(text_at(o, "partitions/0/labels/0/label"), "dask");
	cr_assert_eq(number_at(o, "partitions/0/labels/0/stores"), 3);
	cr_assert_eq(number_at(o, "partitions/0/labels/0/linked"), 390);
	json_object_put(o);
}

Test(report, others_are_totals)
{
	struct json_object *o = report(WIRE_QUERY_WORKERS, ALICE);

	cr_assert_eq(length_at(o, "partitions/0/workers"), 3);
	for (int i = 0; i < 3; i++) {
		char path[64];

		snprintf(path, sizeof(path), "partitions/0/workers/%d/uid", i);
		cr_assert_eq(number_at(o, path), ALICE);
	}
	cr_assert_eq(length_at(o, "partitions/0/users"), 2);
	cr_assert_eq(number_at(o, "partitions/0/users/1/linked"), 120);
	cr_assert_eq(length_at(o, "partitions/0/labels"), 1);
	cr_assert_eq(number_at(o, "partitions/0/labels/0/stores"), 2, "the label's stores of hers");
	json_object_put(o);
	o = report(WIRE_QUERY_HOLDERS, ALICE);
	cr_assert_eq(length_at(o, "partitions/0/holders"), 0);
	cr_assert_eq(number_at(o, "partitions/0/ghosts"), 4096);
	json_object_put(o);
	o = report(WIRE_QUERY_HOLDERS, BOB);
	cr_assert_eq(length_at(o, "partitions/0/holders"), 1);
	cr_assert_eq(number_at(o, "partitions/0/left_out"), 2);
	json_object_put(o);
	o = report(WIRE_QUERY_EVENTS, ALICE);
	cr_assert_eq(length_at(o, "events"), 1);
	cr_assert_str_eq(text_at(o, "events/0/event"), "config");
	json_object_put(o);
	o = report(WIRE_QUERY_EVENTS, BOB);
	cr_assert_eq(length_at(o, "events"), 2);
	json_object_put(o);
}

Test(report, totals_only_name_nobody)
{
	static const enum wire_question all[] = {WIRE_QUERY_STATUS,  WIRE_QUERY_WORKERS,
						 WIRE_QUERY_QUOTA,   WIRE_QUERY_HOLDERS,
						 WIRE_QUERY_HISTORY, WIRE_QUERY_EVENTS};
	static const char *const secrets[] = {"a1",        "a2",   "b2",     "c1",
					      "we\\\"ird", "dask", "secret", "stores/"};
	char *text;
	size_t n;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct json_object *o = report(all[i], REPORT_NOBODY);
		const char *said = json_object_to_json_string(o);

		for (size_t k = 0; k < sizeof(secrets) / sizeof(secrets[0]); k++) {
			char quoted[32];

			snprintf(quoted, sizeof(quoted), "\"%s", secrets[k]);
			cr_assert_null(strstr(said, quoted), "%s in %s", quoted, said);
		}
		cr_assert_null(strstr(said, "/p/stores"));
		json_object_put(o);
	}
	cr_assert_eq(metrics_make(&host, NULL, REPORT_NOBODY, true, &text, &n), 0);
	cr_assert_null(strstr(text, "/p/stores"));
	cr_assert_null(strstr(text, "dask"));
	cr_assert_not_null(strstr(
		text,
		"shmstore_user_linked_bytes{partition=\"/p\",uid=\"1002\",user=\"bob\"} 120\n"));
	free(text);
}

Test(report, events_and_history_since)
{
	struct json_object *o = report_since(WIRE_QUERY_EVENTS, REPORT_ALL, 1);

	cr_assert_eq(length_at(o, "events"), 1);
	cr_assert_eq(number_at(o, "events/0/sequence"), 2);
	cr_assert_eq(number_at(o, "last"), 2);
	json_object_put(o);
	o = report(WIRE_QUERY_HISTORY, REPORT_ALL);
	cr_assert_eq(length_at(o, "partitions/0/fine/used"), 25);
	cr_assert_eq(length_at(o, "partitions/0/fine/time"), 25);
	cr_assert_eq(length_at(o, "partitions/0/coarse/used"), 3);
	cr_assert_eq(number_at(o, "partitions/0/fine/used/24"), 24);
	json_object_put(o);
	/* As the client was told: in milliseconds. */
	o = report_since(WIRE_QUERY_HISTORY, REPORT_ALL, 1700000020 * UINT64_C(1000000000));
	cr_assert_eq(length_at(o, "partitions/0/fine/used"), 4);
	cr_assert_eq(number_at(o, "partitions/0/fine/used/0"), 21);
	cr_assert_eq(length_at(o, "partitions/0/coarse/used"), 0);
	json_object_put(o);
}

Test(report, metrics_escape_what_is_odd)
{
	char *text;
	size_t n;

	cr_assert_eq(metrics_make(&host, NULL, REPORT_ALL, true, &text, &n), 0);
	cr_assert_eq(strlen(text), n);
	cr_assert_not_null(strstr(text, "shmstore_store_pss_bytes{partition=\"/"
					"p\",store=\"we\\\"ird\\\\\\\\x0a\\\\xff\","));
	cr_assert_not_null(
		strstr(text, "shmstore_store_pss_bytes{partition=\"/p\",store=\"a1\",path=\"/p/"
			     "stores/a1\",label=\"dask\"} 200\n"));
	cr_assert_null(strstr(text, "store=\"a2\""), "the dead have no series");
	cr_assert_not_null(strstr(
		text, "shmstore_survey_time_seconds{partition=\"/p\"} 1700000000.123456789\n"));
	cr_assert_str_eq(text + n - 6, "# EOF\n");
	free(text);
	cr_assert_eq(metrics_make(&host, NULL, ALICE, true, &text, &n), 0);
	cr_assert_null(strstr(text, "ird"));
	cr_assert_not_null(strstr(text, "store=\"a1\""));
	free(text);
	cr_assert_eq(metrics_make(&host, NULL, REPORT_ALL, false, &text, &n), 0);
	cr_assert_not_null(strstr(text, "# TYPE shmstored_requests_total counter\n"));
	cr_assert_null(strstr(text, "# UNIT"));
	cr_assert_null(strstr(text, "# EOF"));
	free(text);
}

/* More stores than have room: the list is cut and says so. */
Test(report, long_lists_are_cut)
{
	enum {
		MANY = REPORT_WORKERS_MAX + 5
	};
	struct survey_store *many = calloc(MANY, sizeof(*many));
	struct survey long_one = survey;
	struct json_object *o;
	char *text;
	size_t n;

	for (int i = 0; i < MANY; i++) {
		many[i] = stores[0];
		many[i].path = malloc(32);
		snprintf(many[i].path, 32, "/p/stores/%d", i);
		many[i].alive = i < (int)METRICS_STORES_MAX + 3 ? SHMSTORE_ALIVE : SHMSTORE_DEAD;
	}
	long_one.stores = many;
	long_one.n_stores = MANY;
	account.survey = &long_one;
	account.members = NULL;
	o = report(WIRE_QUERY_WORKERS, REPORT_ALL);
	cr_assert_eq(length_at(o, "partitions/0/workers"), MANY - METRICS_STORES_MAX - 3);
	json_object_put(o);
	for (int i = 0; i < MANY; i++)
		many[i].alive = SHMSTORE_DEAD;
	o = report(WIRE_QUERY_WORKERS, REPORT_ALL);
	cr_assert_eq(length_at(o, "partitions/0/workers"), REPORT_WORKERS_MAX);
	cr_assert_eq(number_at(o, "partitions/0/left_out"), 5);
	json_object_put(o);
	for (int i = 0; i < MANY; i++)
		many[i].alive = SHMSTORE_ALIVE;
	cr_assert_eq(metrics_make(&host, NULL, REPORT_ALL, true, &text, &n), 0);
	snprintf(many[0].path, 32, "} %u\n", MANY - METRICS_STORES_MAX);
	cr_assert_not_null(strstr(strstr(text, "shmstore_stores_left_out{"), many[0].path));
	free(text);
	for (int i = 0; i < MANY; i++)
		free(many[i].path);
	free(many);
	account.survey = &survey;
	account.members = members;
}
