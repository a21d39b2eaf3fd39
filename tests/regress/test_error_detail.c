/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Only calls that may touch the disk tier said more about a failure than its code, and the next
 * call's unrelated failure carried that. Every public function that can fail is made to fail here
 * once; the list of them is that of the headers.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <shmstore/actor.h>
#include <shmstore/arbiter.h>
#include <shmstore/daemon.h>
#include <shmstore/inspect.h>
#include <shmstore/profile.h>
#include <shmstore/shmstore.h>
#include <shmstore/stage.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "tiered.h"

#define NAMES_MAX 200

static char called[NAMES_MAX][64];
static unsigned n_called;

/* One call that must fail, and must say why in a sentence of its own. */
static void case_of(const char *name, int error)
{
	const char *detail = shmstore_error_detail();

	snprintf(called[n_called++], sizeof(called[0]), "%s", name);
	cr_expect(error < 0, "%s succeeded", name);
	cr_expect(strlen(detail) > 10, "%s: %d says \"%s\"", name, error, detail);
	/* A list of all that the code may mean is not the cause. */
	cr_expect(!strstr(detail, shmstore_strerror(error)), "%s: \"%s\" names no cause", name,
		  detail);
	fprintf(stderr, "%-24s %4d %s\n", name, error, detail);
}
#define CASE(name, ...) case_of(#name, shmstore_##name(__VA_ARGS__))

/* After it no sentence is left: a call that succeeds, and cannot fail. */
static void ensure_forgotten(void)
{
	char path[4096];

	cr_assert_eq(shmstore_default_path(path, sizeof(path)), 0);
	cr_assert_str_empty(shmstore_error_detail());
	cr_assert_str_empty(shmstore_error_path());
}

static bool was_called(const char *name)
{
	for (unsigned i = 0; i < n_called; i++) {
		if (strcmp(called[i], name) == 0)
			return true;
	}
	return false;
}

/* Every "SHMSTORE_API int shmstore_<name>(" of a header has had its case. */
static unsigned check_header(const char *header)
{
	char path[4096], line[4096], name[64];
	unsigned n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", SHMSTORE_TEST_HEADERS, header);
	f = fopen(path, "re");
	cr_assert_not_null(f, "%s", path);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "SHMSTORE_API int shmstore_%63[a-z0-9_](", name) != 1)
			continue;
		/* The header's macro calls shmstore_<name>_sized(). */
		if (strstr(name, "_sized"))
			*strstr(name, "_sized") = '\0';
		n++;
		cr_expect(was_called(name),
			  "%s: shmstore_%s() has no case in this test: add one, and a line in "
			  "door.def",
			  header, name);
	}
	fclose(f);
	return n;
}

static void cases_of_partitions(struct shmstore_partition *p)
{
	struct shmstore_partition *other;
	struct shmstore_evict evict = SHMSTORE_EVICT_INIT;
	struct shmstore_tier_config config = SHMSTORE_TIER_CONFIG_INIT;
	struct shmstore_tier_info info;
	struct shmstore_tier_verify verify = {.size = sizeof(verify)};
	char small[2];

	CASE(partition_open, "/nonexistent/partition", 0, &other);
	CASE(default_path, small, sizeof(small));
	CASE(partition_usage, p, 0x100, NULL);
	CASE(partition_gc, p, 0x100, NULL);
	CASE(partition_info, p, NULL);
	CASE(partition_stores, p, NULL, NULL);
	CASE(partition_books, NULL, NULL, NULL, NULL);
	CASE(partition_reconcile, NULL, NULL, NULL, NULL);
	CASE(partition_gc_plan, p, 0x100, NULL, NULL, NULL);
	CASE(partition_reap, p, "/nonexistent/store", 0, NULL, NULL, NULL, NULL);
	CASE(partition_survey, p, NULL, NULL);
	CASE(partition_verify, p, NULL, NULL);
	CASE(partition_evict, p, NULL, NULL);
	CASE(partition_evict, p, &evict, NULL);
	CASE(peer_find, p, "tcp://nobody:1", NULL, 0);
	config.path = "relative";
	CASE(tier_set, p, &config);
	CASE(tier_info, p, &info);
	CASE(tier_verify, p, &verify);
}

static void cases_of_stores(struct shmstore_partition *p, struct shmstore *s)
{
	struct shmstore_ticket t = {.path = "/somewhere/else"};
	struct shmstore_writer *w;
	struct shmstore_view *v;
	struct shmstore *other;
	char text[4], large[SHMSTORE_ADDRESS_MAX + 2];

	memset(large, 'a', sizeof(large) - 1);
	large[sizeof(large) - 1] = '\0';
	CASE(open, p, "a/b", NULL, &other);
	CASE(set_address, s, large);
	CASE(usage, s, NULL);
	cr_assert_eq(put_pattern(s, "held", 100, 1, 0), 0);
	CASE(put, s, KEY("held"), NULL, 0, NULL, 0, 0);
	CASE(create, s, KEY("new"), 0, NULL, 1, 0, &w);
	cr_assert_eq(shmstore_create(s, KEY("held"), 10, NULL, 0, 0, &w), 0);
	CASE(seal, w);
	CASE(alloc, s, 0, 0, NULL);
	CASE(get, s, KEY("missing"), 0, &v);
	CASE(contains, s, NULL, 5);
	CASE(wait, s, KEY("missing"), 0, 1);
	CASE(owner, s, NULL, NULL);
	CASE(delete, s, KEY("missing"));
	CASE(foreach, s, NULL, NULL);
	CASE(handoff, s, KEY("held"), 0, &t);
	CASE(handoff_flags, s, KEY("missing"), 1000, 0, &t);
	CASE(handoff_to, s, KEY("held"), 12345, 1000, &t);
	CASE(adopt, s, KEY("new"), &t, 0);
	CASE(ticket_format, &t, text, sizeof(text));
	CASE(ticket_parse, "no ticket", &t);
	CASE(asked, s, NULL);
	CASE(daemon_fd, s);
	CASE(locate, s, NULL, 5);
	CASE(demote, s, KEY("held"), 0);
	CASE(promote, s, KEY("missing"), 0);
	CASE(prefetch, s, NULL, 5, 0, 0, NULL);
	CASE(pin, s, KEY("missing"), true);
}

static void cases_of_clients(void)
{
	struct shmstore_client *c;
	struct shmstore_client_arb order = {.order = SHMSTORE_ARB_ORDER_CANCEL};
	const char *event;
	char *json;

	CASE(client_new, NULL, 0, &c);
	cr_assert_eq(shmstore_client_new("/nonexistent/socket", 1000, &c), 0);
	CASE(client_set_timeout, c, 0);
	CASE(client_connect, c);
	CASE(client_query, c, SHMSTORE_QUERY_STATUS, NULL, &json, NULL);
	CASE(client_set, c, "a=b");
	CASE(client_reap, c, "/nonexistent", &json, NULL);
	CASE(client_arbiter, c, "/nonexistent", &order);
	CASE(client_watch, c, 0, NULL);
	CASE(client_event, c, 0, NULL, &event);
	CASE(client_fd, c);
	shmstore_client_free(c);
}

static void cases_of_arbitration(struct shmstore *s)
{
	struct shmstore_arb_reservation r = {.bytes = 1, .pool = 1}, many[17];
	struct shmstore_arb_work work = {0};
	struct shmstore_arb_pool_info pool;
	struct shmstore_arb_context *c;
	struct shmstore_arb_stats stats;
	struct shmstore_arb_done done;
	struct shmstore_arb_info info;
	struct shmstore_arb_upcalls up = {0};
	uint32_t id, task = 1;

	memset(many, 0, sizeof(many));
	CASE(arb_available, s);
	CASE(arb_pool_create, s, "p", 1, 0, &id);
	CASE(arb_pool_resize, s, 2, 1);
	CASE(arb_pool_remove, s, 2);
	CASE(arb_pool_info, s, 1, &pool);
	CASE(arb_task_begin, s, NULL, &id);
	CASE(arb_task_end, NULL, 1);
	CASE(arb_context_new, NULL, &c);
	CASE(arb_use, NULL, NULL);
	CASE(arb_bind, s, NULL, 1);
	CASE(arb_bind_helper, s, NULL, &task, 1, false);
	CASE(arb_unbind, s, NULL, NULL, 1);
	CASE(arb_reserve, s, 1, 1, NULL, &r);
	CASE(arb_reserve_many, s, many, 17, NULL);
	CASE(arb_resize, s, NULL, 1, NULL);
	CASE(arb_release, s, NULL);
	CASE(arb_commit, s, NULL, 1);
	CASE(arb_spend, NULL, NULL);
	CASE(arb_unpin, s, NULL);
	CASE(arb_pin, s, NULL, NULL);
	CASE(arb_retry_begin, NULL, NULL);
	CASE(arb_retry_end, NULL, NULL, true);
	CASE(arb_ready, s, NULL);
	CASE(arb_with_retry, s, NULL, 1, &work);
	CASE(arb_wait_begin, NULL, NULL, SHMSTORE_ARB_WAIT_POOL, 0);
	CASE(arb_wait_end, NULL, NULL);
	CASE(arb_spill_begin, NULL, NULL);
	CASE(arb_spill_end, NULL, NULL);
	CASE(arb_fd, NULL);
	CASE(arb_next, s, NULL);
	CASE(arb_next, NULL, &done);
	CASE(arb_cancel, NULL, NULL);
	CASE(arb_set_upcalls, s, &up);
	CASE(arb_serve, s, 0);
	CASE(arb_serve_fd, s);
	CASE(arb_spilled, s, NULL, 0);
	CASE(arb_state, NULL, NULL, &info);
	CASE(arb_stats, s, 1, 0, false, &stats);
	CASE(arb_inject, s, NULL, SHMSTORE_ARB_INJECT_RETRY, 1, 0, 0);
}

static void cases_of_profiles(struct shmstore *s)
{
	const struct shmstore_profile_kind kind = {"c", "f", NULL};
	struct shmstore_task_ask ask = SHMSTORE_TASK_ASK_INIT;
	struct shmstore_task_grant grant;
	struct shmstore_preempt told;
	struct shmstore_profile_use use;
	struct shmstore_client *c;
	uint32_t task;
	char *text;
	size_t n;

	ask.level = 9;
	CASE(profile_begin, s, &kind, &task);
	CASE(profile_sample, s, 1, 1);
	CASE(profile_end, s, 1, NULL);
	CASE(profile_estimate, s, &kind, NULL, &use);
	CASE(task_admit, s, &ask, &grant);
	CASE(preempt_next, s, NULL);
	CASE(preempt_next, NULL, &told);
	CASE(preempt_fd, NULL);
	CASE(task_done, s, 1);
	cr_assert_eq(shmstore_client_new("/nonexistent/shmstored", 1000, &c), 0);
	CASE(client_profile, c, SHMSTORE_PROFILE_MINE, &text, &n);
	CASE(client_profile_text, c, SHMSTORE_PROFILE_ALL, &text, &n);
	CASE(client_profile_load, c, SHMSTORE_PROFILE_MINE, "x", 0);
	CASE(client_profile_reset, c, SHMSTORE_PROFILE_MINE);
	shmstore_client_free(c);
}

static void cases_of_stages(struct shmstore *s)
{
	struct shmstore_stage_ask ask = SHMSTORE_STAGE_ASK_INIT;
	struct shmstore_stage_profile p;
	struct shmstore_client *c;

	ask.name = "s";
	CASE(stage_query, s, &ask, &p);
	CASE(stage_begin, s, "s", 0, 0, SHMSTORE_STAGE_WAIT, &p);
	CASE(stage_end, s, &p);
	cr_assert_eq(shmstore_client_new("/nonexistent/shmstored", 1000, &c), 0);
	CASE(client_stage_end, c, 0);
	shmstore_client_free(c);
}

static void cases_of_actors(struct shmstore *s)
{
	struct shmstore_actor_order order;
	struct shmstore_actor_answer answer;
	struct shmstore_actor_call *call;
	struct shmstore_place *place;

	CASE(place_open, s, "p", SHMSTORE_PLACE_ROOMY, &place);
	CASE(actor_begin, NULL, "a", NULL);
	CASE(actor_end, NULL, "a");
	CASE(actor_next, NULL, 0, &order);
	CASE(actor_fd, NULL);
	CASE(actor_done, NULL, &order, SHMSTORE_ACTOR_OK, NULL, 0);
	CASE(actor_call, s, "a", NULL, 0, &call);
	CASE(actor_answer, NULL, 0, &answer);
	CASE(actor_move, s, "a b\n", NULL, &call);
}

/* In the child a store is the parent's. */
static int cases_after_fork(void *arg)
{
	struct shmstore *s = arg;

	cr_assert_eq(shmstore_contains(s, KEY("held")), -EPERM);
	cr_assert(strstr(shmstore_error_detail(), "fork"), "%s", shmstore_error_detail());
	cr_assert_eq(shmstore_daemon_dispatch(s), -EPERM);
	cr_assert(strstr(shmstore_error_detail(), "fork"), "%s", shmstore_error_detail());
	cr_assert_eq(shmstore_close(s), -EPERM);
	cr_assert(strstr(shmstore_error_detail(), "fork"), "%s", shmstore_error_detail());
	return 0;
}

Test(error_detail, every_public_function_says_why_it_failed)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s = scratch_store("s");

	cases_of_partitions(p);
	cases_of_stores(p, s);
	cases_of_clients();
	cases_of_arbitration(s);
	cases_of_profiles(s);
	cases_of_stages(s);
	cases_of_actors(s);
	ensure_forgotten();
	/* Two more that fail only here. */
	cr_assert_eq(in_child(cases_after_fork, s), 0);
	snprintf(called[n_called++], sizeof(called[0]), "close");
	snprintf(called[n_called++], sizeof(called[0]), "daemon_dispatch");
	cr_assert_geq(check_header("shmstore.h") + check_header("tier.h") +
			      check_header("inspect.h") + check_header("daemon.h") +
			      check_header("arbiter.h") + check_header("profile.h") +
			      check_header("stage.h") + check_header("actor.h"),
		      90u);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
}

/* The detail of the failure that was just returned must contain the part. */
static void ensure_says(int error, int expected, const char *part)
{
	cr_assert_eq(error, expected, "%d: %s", error, shmstore_error_detail());
	cr_expect(strstr(shmstore_error_detail(), part), "\"%s\" does not say \"%s\"",
		  shmstore_error_detail(), part);
}

Test(error_detail, a_full_partition_says_how_much_was_asked_for_and_is_free)
{
	static char large[4 << 20];
	struct iovec iov = {large, sizeof(large)};
	struct shmstore_writer *w;

	scratch_dir("size=2m");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	struct shmstore *s = scratch_store("s");
	ensure_says(shmstore_put(s, KEY("k"), NULL, 0, &iov, 1, 0), -ENOSPC,
		    "4198400 were asked for");
	ensure_says(shmstore_put(s, KEY("k"), NULL, 0, &iov, 1, 0), -ENOSPC, "2097152");
	ensure_says(shmstore_create(s, KEY("k"), 0, &(uint64_t){1 << 30}, 1, 0, &w), -ENOSPC,
		    "10737");
	/* The next failure's detail is not about it. */
	ensure_says(shmstore_delete(s, KEY("k")), -ENOENT, "no object has the key k");
	ensure_forgotten();
	cr_assert_eq(shmstore_close(s), 0);
}

Test(error_detail, a_name_that_is_held_says_by_whom)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s = scratch_store("s"), *again;
	struct other o = other_start("o");
	char pid[32];

	ensure_says(shmstore_open(p, "s", NULL, &again), -EBUSY, "this very process");
	snprintf(pid, sizeof(pid), "process %d", (int)o.pid);
	ensure_says(shmstore_open(p, "o", NULL, &again), -EBUSY, pid);
	cr_assert_eq(other_close(&o), 0);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
}

Test(error_detail, refusals_name_the_one_cause)
{
	struct shmstore_options reading = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s = scratch_store("s"), *r;

	cr_assert_eq(put_pattern(s, "k", 100, 1, 0), 0);
	reading.flags = SHMSTORE_OPEN_READONLY;
	ensure_says(shmstore_open(p, "nobody", &reading, &r), -ENOENT, "there is no store");
	cr_assert_eq(shmstore_open(p, "s", &reading, &r), 0);
	ensure_says(shmstore_delete(r, KEY("k")), -EPERM, "read only");
	cr_assert_eq(shmstore_close(r), 0);
	ensure_says(shmstore_open(p, "s",
				  &(struct shmstore_options){.size = sizeof(reading),
							     .label = NULL,
							     .directory = "/tmp/x"},
				  &r),
		    -EPERM, "outside the partition");
	ensure_says(shmstore_put(s, "k", 1 << 20, NULL, 0, NULL, 0, 0), -EINVAL, "4096");
	ensure_says(shmstore_put(s, KEY("k2"), NULL, 0, NULL, 0, 1u << 31), -EINVAL, "0x80000000");
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
}

Test(error_detail, a_tier_that_is_not_mounted_is_not_damaged)
{
	struct shmstore_partition_info info = {.size = sizeof(info)};
	char there[TIERED_PATH + 64], away[TIERED_PATH + 64];
	struct shmstore_options keep = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;
	struct shmstore_view *v;

	scratch_dir("size=64m");
	TIERED_OR_SKIP();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", 300000, 1, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
	cr_assert_eq(shmstore_partition_info(scratch_partition(), &info), 0);
	snprintf(there, sizeof(there), "%s/%s", tiered_disk(), info.uuid);
	snprintf(away, sizeof(away), "%s/away", tiered_disk());
	cr_assert_eq(rename(there, away), 0);
	/* By who has it open, and by who opens it now. */
	keep.flags = SHMSTORE_OPEN_READONLY;
	struct shmstore_partition *p;
	struct shmstore *r;
	cr_assert_eq(shmstore_partition_open(scratch_partition_path(), 0, &p), 0);
	cr_assert_eq(shmstore_open(p, "s", &keep, &r), 0);
	ensure_says(shmstore_get(r, KEY("k"), 0, &v), -EIO, "system mounted?");
	cr_expect_str_eq(shmstore_error_path(), tiered_disk());
	cr_assert_eq(shmstore_close(r), 0);
	cr_assert_eq(rename(away, there), 0);
	cr_assert_eq(get_pattern(s, "k", 300000, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
}
