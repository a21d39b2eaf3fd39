/* SPDX-License-Identifier: Apache-2.0 */
/* A partition under watch, without clients: who is found, who is missed when it is gone,
 * and what surveys say of it. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <semaphore.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "account.h"
#include "api.h"
#include "config.h"
#include "daemon.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "member.h"
#include "scanner.h"

#define SECOND UINT64_C(1000000000)

static struct config config = {.credit = 64u << 20, .credit_idle_ns = 5 * SECOND};
static struct config_partition partition = {.survey_interval_ns = 3600 * SECOND,
					    .ghost_age_ns = 3600 * SECOND};
static struct host host;
static struct account *account;

static void begin(void)
{
	shmstore_partition_unref(scratch_partition());
	partition.path = strdup(scratch_partition_path());
	config.stage.rules = stage_defaults;
	host = (struct host){.epoch = 4711, .config = &config, .parts = start_parts};
	cr_assert_eq(events_new(&host.events), 0);
	cr_assert_eq(loop_new(&host.loop), 0);
	cr_assert_eq(scanner_new(host.loop, &host.scanner), 0);
	cr_assert_eq(account_open(&host, &partition, &account), 0);
	host.accounts = account;
}

static void finish(void)
{
	host.scanner = scanner_free(host.scanner);
	account_close(account);
	host.loop = loop_free(host.loop);
	host.events = events_free(host.events);
	free(partition.path);
}

/* ---- running the loop until something is so -------------------------------------------------- */

struct until {
	struct loop_op op;
	bool (*fn)(const void *arg);
	const void *arg;
	uint64_t end_ns;
	bool met;
};

static void on_until(struct loop_op *op, int result, unsigned flags)
{
	struct until *u = (struct until *)(void *)op;

	(void)flags;
	if (result < 0 || u->met)
		return;
	u->met = u->fn(u->arg);
	if (u->met || loop_clock() > u->end_ns)
		loop_stop(host.loop);
}

static bool run_until(bool (*fn)(const void *arg), const void *arg)
{
	/* its operation outlives this call; freed with the test */
	struct until *u = calloc(1, sizeof(*u));

	*u = (struct until){
		.op.fn = on_until, .fn = fn, .arg = arg, .end_ns = loop_clock() + 20 * SECOND};
	cr_assert_eq(loop_timer(host.loop, &u->op, loop_clock(), 1000000), 0);
	cr_assert_eq(loop_run(host.loop), 0);
	loop_cancel(host.loop, &u->op);
	return u->met;
}

static bool never(const void *arg)
{
	(void)arg;
	return false;
}

static struct member *member(const char *store)
{
	char path[SCRATCH_PATH];

	snprintf(path, sizeof(path), "%.200s/stores/%.100s", scratch_partition_path(), store);
	return member_find(account, path);
}

static bool is_member(const void *arg)
{
	return member(arg) != NULL;
}

static bool is_no_member(const void *arg)
{
	return member(arg) == NULL;
}

static bool is_gone(const void *arg)
{
	return access(scratch_store_path(arg, ""), F_OK) < 0;
}

static bool has_event(const void *arg)
{
	return events_count(host.events, *(const enum event *)arg) > 0;
}

/* The look that was called for has been made. */
static bool is_looked_at(const void *arg)
{
	(void)arg;
	return !reaper_busy(account);
}

struct asked {
	struct account_wait wait;
	const struct survey *survey;
	int error;
	int n;
};

static void on_survey(struct account_wait *w, const struct survey *survey, int error)
{
	struct asked *a = (struct asked *)(void *)w;

	a->survey = survey;
	a->error = error;
	a->n++;
}

static bool is_answered(const void *arg)
{
	return ((const struct asked *)arg)->n > 0;
}

/* Valid until the next one. */
static const struct survey *survey(void)
{
	struct asked a = {.wait.fn = on_survey};

	cr_assert_eq(account_survey(account, &a.wait), 0);
	cr_assert(run_until(is_answered, &a));
	cr_assert_eq(a.error, 0);
	cr_assert_not_null(a.survey);
	cr_assert_eq(a.survey, account->survey);
	return a.survey;
}

/* ---- members --------------------------------------------------------------------------------- */

Test(account, finds_who_lives_at_its_start, .timeout = 60)
{
	struct other a = other_start("a");
	struct shmstore *b = scratch_store("b");

	cr_assert_eq(put_pattern(b, "x", 100000, 1, 0), 0);
	begin();
	cr_assert_eq(account->n_members, 2);
	cr_assert_not_null(member("a"));
	cr_assert_eq(member("a")->pid, a.pid);
	cr_assert_geq(member("a")->pidfd, 0);
	cr_assert_not_null(member("b")->credit);
	cr_assert_eq(account->tick.n_members, 2);
	cr_assert_eq(account->tick.n_objects, 1);
	cr_assert_geq(account->tick.linked, 100000);
	cr_assert_eq(account->tick.put_n, 1);
	finish();
	other_kill(&a);
	shmstore_close(b);
}

Test(account, finds_who_comes_and_misses_who_closes, .timeout = 60)
{
	struct shmstore *s;

	begin();
	cr_assert_eq(account->n_members, 0);
	s = scratch_store("late");
	cr_assert(run_until(is_member, "late"));
	cr_assert_eq(events_count(host.events, EVENT_STORE_CAME), 1);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert(run_until(is_no_member, "late"));
	cr_assert_eq(events_count(host.events, EVENT_STORE_WENT), 1);
	cr_assert_eq(events_count(host.events, EVENT_STORE_REAPED), 0);
	finish();
}

Test(account, reaps_who_is_killed, .timeout = 60)
{
	struct other a = other_fork();
	enum event reaped = EVENT_STORE_REAPED;

	begin();
	other_open(&a, "victim");
	cr_assert_eq(other_put(&a, "x", 1000000, 1), 0);
	cr_assert(run_until(is_member, "victim"));
	other_kill(&a);
	cr_assert(run_until(is_gone, "victim"));
	cr_assert(run_until(has_event, &reaped));
	cr_assert_null(member("victim"));
	cr_assert_eq(host.counters.n_reaped, 1);
	cr_assert_eq(account->n_members, 0);
	finish();
	ensure_nothing_left();
}

Test(account, reaps_who_died_before_its_start, .timeout = 60)
{
	struct other a = other_start("dead");

	cr_assert_eq(other_put(&a, "x", 1000000, 1), 0);
	other_kill(&a);
	begin();
	cr_assert(run_until(is_gone, "dead"));
	finish();
	ensure_nothing_left();
}

Test(account, leases_of_the_dead_stay_until_they_end, .timeout = 60)
{
	struct other a = other_fork();
	struct shmstore_ticket t;
	enum event reaped = EVENT_STORE_REAPED, expired = EVENT_LEASE_EXPIRED;

	begin();
	other_open(&a, "donor");
	cr_assert_eq(other_put(&a, "x", 100000, 1), 0);
	cr_assert_eq(other_handoff(&a, "x", 700, &t), 0);
	cr_assert(run_until(is_member, "donor"));
	other_kill(&a);
	cr_assert(run_until(has_event, &reaped));
	cr_assert_eq(events_count(host.events, EVENT_LEASE_EXPIRED), 0);
	cr_assert_eq(count_in_store("donor", "handoff"), 1);
	cr_assert_eq(count_in_store("donor", "objects"), 0);
	cr_assert(run_until(has_event, &expired));
	cr_assert(run_until(is_gone, "donor"));
	cr_assert_null(account->reaps);
	finish();
	ensure_nothing_left();
}

/* Gc, ours or another process's, holds the lock of a dead store while it looks at it. Such a store
 * was taken for one that somebody had opened anew: its leases stayed until the next survey. */
Test(account, a_dead_store_whose_lock_gc_holds_is_no_member, .timeout = 60)
{
	struct other a = other_fork();
	struct shmstore_ticket t;
	enum event reaped = EVENT_STORE_REAPED, expired = EVENT_LEASE_EXPIRED;
	int fd;

	begin();
	other_open(&a, "donor");
	cr_assert_eq(other_put(&a, "x", 100000, 1), 0);
	cr_assert_eq(other_handoff(&a, "x", 2000, &t), 0);
	cr_assert(run_until(is_member, "donor"));
	other_kill(&a);
	cr_assert(run_until(has_event, &reaped));
	fd = open(scratch_store_path("donor", WIRE_PAGE_FILE), O_RDONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	cr_assert_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	reaper_look(account, scratch_store_path("donor", ""));
	cr_assert(run_until(is_looked_at, NULL));
	cr_assert_null(member("donor"));
	cr_assert_eq(events_count(host.events, EVENT_STORE_CAME), 1);
	close(fd);
	cr_assert(run_until(has_event, &expired));
	cr_assert(run_until(is_gone, "donor"));
	finish();
	ensure_nothing_left();
}

static sem_t held_up, go_on;

static void hold_up(UNUSED struct scanner_job *job)
{
	sem_post(&held_up);
	sem_wait(&go_on);
}

static void nothing_more(UNUSED struct scanner_job *job)
{
}

/* Nor while the reap is on its way, or finds the lock held: a survey that saw it alive may end
 * meanwhile, and a sweep of our own have its lock. */
Test(account, a_dead_store_that_waits_to_be_reaped_is_no_member, .timeout = 60)
{
	struct scanner_job sweep = {.worker = SCANNER_ASKED, .run = hold_up, .done = nothing_more};
	struct scanner_job reap = {.worker = SCANNER_REAP, .run = hold_up, .done = nothing_more};
	struct other a = other_fork();
	struct member *m;
	int fd;

	begin();
	other_open(&a, "donor");
	cr_assert_eq(other_put(&a, "x", 100000, 1), 0);
	cr_assert(run_until(is_member, "donor"));
	cr_assert_eq(sem_init(&held_up, 0, 0) + sem_init(&go_on, 0, 0), 0);
	scanner_submit(host.scanner, &sweep);
	scanner_submit(host.scanner, &reap);
	cr_assert_eq(sem_wait(&held_up) + sem_wait(&held_up), 0);
	other_kill(&a);
	cr_assert(run_until(is_no_member, "donor"));
	fd = open(scratch_store_path("donor", WIRE_PAGE_FILE), O_RDONLY | O_CLOEXEC);
	cr_assert_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	cr_assert_eq(member_get(account, scratch_store_path("donor", ""), (uid_t)-1, &m), -ENOENT);
	sem_post(&go_on);
	sem_post(&go_on);
	cr_assert(run_until(is_looked_at, NULL));
	cr_assert_null(member("donor"));
	cr_assert_eq(events_count(host.events, EVENT_STORE_CAME), 1);
	close(fd);
	cr_assert(run_until(is_gone, "donor"));
	finish();
	ensure_nothing_left();
}

Test(account, a_store_outside_stores_is_found_by_a_survey, .timeout = 60)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s;

	begin();
	o.directory = "elsewhere";
	cr_assert_eq(shmstore_open(p, "far", &o, &s), 0);
	cr_assert_eq(survey()->n_stores, 1);
	cr_assert_eq(account->n_members, 1);
	cr_assert_str_eq(account->members->name, "far");
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(survey()->n_stores, 0);
	/* Its directory is not watched: the survey misses it. */
	for (int i = 0; account->n_members && i < 1000; i++)
		cr_assert_eq(survey()->n_stores, 0);
	cr_assert_eq(account->n_members, 0);
	finish();
	shmstore_partition_unref(p);
}

Test(account, a_page_cut_short_is_a_liars, .timeout = 60)
{
	struct shmstore *s = scratch_store("liar");
	enum event liar = EVENT_LIAR;

	begin();
	cr_assert_not_null(member("liar"));
	cr_assert_eq(truncate(scratch_store_path("liar", ".store"), 0), 0);
	cr_assert(run_until(has_event, &liar));
	cr_assert_null(member("liar"));
	survey();
	cr_assert_null(member("liar"), "it is not taken again");
	finish();
	cr_assert_eq(truncate(scratch_store_path("liar", ".store"), 4096), 0);
	(void)s; /* its own mapping is as broken */
}

Test(account, only_its_owner_may_register_a_store, .timeout = 60)
{
	struct shmstore *s = scratch_store("mine");
	struct member *m;
	char path[SCRATCH_PATH];

	begin();
	for (int i = 0; i < 4; i++) {
		static const char *const spellings[] = {"stores/mine/", "stores//mine",
							"./stores/mine", "stores/mine/../mine"};

		snprintf(path, sizeof(path), "%.200s/%s", scratch_partition_path(), spellings[i]);
		cr_assert_eq(member_get(account, path, geteuid(), &m), -EPERM, "%s", path);
	}
	cr_assert_eq(account->n_members, 1);
	snprintf(path, sizeof(path), "%.200s/stores/mine", scratch_partition_path());
	cr_assert_eq(member_get(account, path, 4711, &m), -EPERM);
	cr_assert_eq(member_get(account, path, geteuid(), &m), 0);
	cr_assert_eq(member_get(account, "/etc", (uid_t)-1, &m), -EPERM);
	snprintf(path, sizeof(path), "%.200s/stores/../../x", scratch_partition_path());
	cr_assert_eq(member_get(account, path, (uid_t)-1, &m), -EPERM);
	snprintf(path, sizeof(path), "%.200s/stores/none", scratch_partition_path());
	cr_assert_eq(member_get(account, path, (uid_t)-1, &m), -ENOENT);
	finish();
	shmstore_close(s);
}

/* ---- the lock, surveys ----------------------------------------------------------------------- */

Test(account, a_second_daemon_is_refused, .timeout = 60)
{
	struct account *second;
	char marker[SCRATCH_PATH];
	int fd;

	begin();
	cr_assert_eq(account_open(&host, &partition, &second), -EBUSY);
	finish();
	snprintf(marker, sizeof(marker), "%.200s/.shmstore", scratch_partition_path());
	fd = open(marker, O_RDONLY);
	cr_assert_eq(flock(fd, LOCK_EX | LOCK_NB), 0, "a closed account lets go of the marker");
	close(fd);
}

Test(account, surveys_are_shared_and_begin_after_the_question, .timeout = 60)
{
	struct asked a = {.wait.fn = on_survey}, b = {.wait.fn = on_survey},
		     c = {.wait.fn = on_survey}, d = {.wait.fn = on_survey};
	uint64_t before;

	begin();
	before = survey()->sequence;
	cr_assert_eq(account_survey(account, &a.wait), 0);
	cr_assert_eq(account_survey(account, &b.wait), 0);
	cr_assert_eq(account_survey(account, &c.wait), 0);
	cr_assert_eq(account_survey(account, &d.wait), 0);
	account_survey_cancel(account, &d.wait);
	cr_assert(run_until(is_answered, &b));
	cr_assert(run_until(is_answered, &c));
	cr_assert_eq(a.n + b.n + c.n, 3);
	cr_assert_eq(d.n, 0);
	cr_assert_eq(account->survey->sequence, before + 2,
		     "the first one's, and one for the two others");
	finish();
}

Test(account, who_waits_at_the_end_is_told, .timeout = 60)
{
	struct asked a = {.wait.fn = on_survey}, b = {.wait.fn = on_survey};

	begin();
	cr_assert_eq(account_survey(account, &a.wait), 0);
	cr_assert_eq(account_survey(account, &b.wait), 0);
	finish();
	cr_assert_eq(a.n, 1);
	cr_assert_eq(b.n, 1);
	cr_assert(b.error == -ECANCELED && !b.survey);
}

Test(account, a_survey_says_what_usage_says_and_ghosts_get_old, .timeout = 60)
{
	struct other a = other_start("holder");
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_usage usage;
	const struct survey *s;
	enum event old = EVENT_GHOST_OLD;
	uint64_t since;

	partition.ghost_age_ns = 1;
	cr_assert_eq(other_put(&a, "g", 700000, 1), 0);
	cr_assert_eq(other_view(&a, "g", 0), 0);
	cr_assert_eq(unlink(scratch_store_path("holder", "objects/g")), 0);
	begin();
	s = survey();
	cr_assert_eq(shmstore_partition_usage(p, SHMSTORE_USAGE_FULL, &usage), 0);
	cr_assert_eq(memcmp(&usage, &s->usage, sizeof(usage)), 0);
	cr_assert_eq(s->n_stores, 1);
	cr_assert_eq(s->n_users, 1);
	cr_assert_eq(s->users[0].uid, geteuid());
	cr_assert_eq(s->n_holders, 1);
	cr_assert_eq(s->holders[0].pid, a.pid);
	cr_assert_eq(s->holders[0].kind, SHMSTORE_HOLD_GHOST);
	cr_assert_str_eq(s->holders[0].key, "g");
	since = s->holders[0].since_ns;
	cr_assert_leq(since, loop_clock());
	s = survey();
	cr_assert_eq(s->holders[0].since_ns, since);
	cr_assert(run_until(has_event, &old));
	cr_assert_eq(survey()->holders[0].since_ns, since);
	cr_assert_eq(events_count(host.events, EVENT_GHOST_OLD), 1, "told once");
	cr_assert_eq(other_unview(&a), 0);
	cr_assert_eq(other_put(&a, "h", 800000, 1), 0);
	cr_assert_eq(other_view(&a, "h", 0), 0);
	cr_assert_eq(unlink(scratch_store_path("holder", "objects/h")), 0);
	s = survey(); /* the largest first */
	cr_assert_str_eq(s->holders[0].key, "h");
	cr_assert_gt(s->holders[0].since_ns, since);
	survey();
	cr_assert_eq(events_count(host.events, EVENT_GHOST_OLD), 2, "another hold");
	cr_assert_eq(other_unview(&a), 0);
	finish();
	other_kill(&a);
	shmstore_partition_unref(p);
}

/* A file that only a socket's queue holds: nobody can be named for it. */
static void hide_a_file(int queue[2])
{
	char path[SCRATCH_PATH], control[CMSG_SPACE(sizeof(int))] = {0}, bytes[100000] = {0};
	struct iovec iov = {bytes, 1};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	int fd;

	snprintf(path, sizeof(path), "%.200s/hidden", scratch_partition_path());
	fd = open(path, O_CREAT | O_RDWR, 0600);
	cr_assert_eq(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
	cr_assert_eq(socketpair(AF_UNIX, SOCK_DGRAM, 0, queue), 0);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	cr_assert_eq(sendmsg(queue[0], &message, 0), 1);
	close(fd);
	unlink(path);
}

Test(account, a_residual_in_two_surveys_in_a_row_is_told_once, .timeout = 60)
{
	int queue[2];

	if (!scratch_is_mount())
		cr_skip_test("needs a file system of its own (root)");
	begin();
	cr_assert_eq(survey()->usage.residual, 0);
	hide_a_file(queue);
	cr_assert_eq(survey()->usage.residual, 102400);
	cr_assert_eq(events_count(host.events, EVENT_RESIDUAL), 0);
	survey();
	cr_assert_eq(events_count(host.events, EVENT_RESIDUAL), 1);
	survey();
	cr_assert_eq(events_count(host.events, EVENT_RESIDUAL), 1);
	close(queue[0]);
	close(queue[1]);
	cr_assert_eq(survey()->usage.residual, 0);
	finish();
}

Test(account, the_end_does_not_wait, .timeout = 60)
{
	struct other a = other_start("a");
	struct until u = {.op.fn = on_until, .fn = never, .end_ns = loop_clock()};

	/* With a survey, a reap and a look in flight. */
	cr_assert_eq(other_put(&a, "x", 100000, 1), 0);
	begin();
	other_kill(&a);
	cr_assert_eq(loop_timer(host.loop, &u.op, loop_clock(), 0), 0);
	cr_assert_eq(loop_run(host.loop), 0);
	reaper_look(account, scratch_store_path("a", ""));
	finish();
}
