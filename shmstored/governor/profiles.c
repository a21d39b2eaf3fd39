/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profiles.c: see profiles.h. The text of a changed profile is made here, one user at a time, and
 * written by a worker thread, as a disk may be slow. No timer runs while nothing has changed.
 */
#include "profiles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actord.h"
#include "config.h"
#include "host.h"
#include "log.h"

struct user {
	uint64_t uid;
	struct profile *profile;
	struct profile *view; /* with what other daemons know; NULL: they know nothing */
	bool changed;         /* since its text was made */
	bool due;             /* and it is its turn to be written */
	UT_hash_handle hh;
};

/* ---- users ---- */

static struct user *find(const struct profiles *p, uint32_t uid)
{
	struct user *u;
	uint64_t key = uid;

	HASH_FIND(hh, p->users, &key, sizeof(key), u);
	return u;
}

static struct user *get(struct profiles *p, uint32_t uid)
{
	struct user *u = find(p, uid);

	if (u || HASH_COUNT(p->users) == PROFILES_USERS_MAX)
		return u;
	u = calloc(1, sizeof(*u));
	if (u)
		u->profile = profile_new(p->host->config->profile.max_kinds);
	if (!u || !u->profile) {
		free(u);
		return NULL;
	}
	u->uid = uid;
	HASH_ADD(hh, p->users, uid, sizeof(u->uid), u);
	if (!u->hh.tbl) {
		profile_free(u->profile);
		free(u);
		return NULL;
	}
	return u;
}

struct profile *profiles_of(struct profiles *p, uint32_t uid)
{
	struct user *u = get(p, uid);

	return u ? u->profile : NULL;
}

const struct profile *profiles_find(const struct profiles *p, uint32_t uid)
{
	const struct user *u = find(p, uid);

	return u ? u->profile : NULL;
}

static const struct profile *known(const struct user *u)
{
	return u->view ? u->view : u->profile;
}

const struct profile *profiles_known(const struct profiles *p, uint32_t uid)
{
	const struct user *u = find(p, uid);

	return u ? known(u) : NULL;
}

int profiles_set_view(struct profiles *p, uint32_t uid, struct profile *view)
{
	struct user *u = get(p, uid);

	if (!u)
		return -ENOMEM;
	profile_free(u->view);
	u->view = view;
	return 0;
}

uint32_t profiles_next(const struct profiles *p, uint32_t at)
{
	uint64_t least = UINT32_MAX;

	for (const struct user *u = p->users; u; u = u->hh.next) {
		if (u->uid >= at && u->uid < least)
			least = u->uid;
	}
	return (uint32_t)least;
}

/* ---- writing ---- */

static void run_job(struct scanner_job *job)
{
	struct profiles *p = CONTAINER_OF(job, profiles, job);

	p->error = profilefile_write(p->dir_fd, (uint32_t)p->written->uid, p->text, p->n);
}

static void say_written(const struct profiles *p, const struct user *u, int r)
{
	if (r < 0)
		log_say(LOG_WARNING, LOG_FIELDS(.object = p->path, .error = r),
			"the profile of user %u could not be written; the old file is as it was, "
			"and it is tried again",
			(unsigned)u->uid);
}

static void change(struct profiles *p, struct user *u);
static void write_next(struct profiles *p);

static void job_done(struct scanner_job *job)
{
	struct profiles *p = CONTAINER_OF(job, profiles, job);
	struct user *u = p->written;

	p->writing = false;
	free(p->text);
	p->text = NULL;
	if (p->error != -ECANCELED)
		say_written(p, u, p->error);
	if (p->error < 0)
		change(p, u);
	else if (!scanner_stopping(p->host->scanner))
		write_next(p);
}

/* Writes the profiles that had changed when the timer ran out, one after the other. */
static void write_next(struct profiles *p)
{
	struct user *u = p->users;

	while (u && !u->due)
		u = u->hh.next;
	if (!u || p->writing)
		return;
	u->due = false;
	p->text = profile_text(u->profile, &p->n);
	if (!p->text) {
		change(p, u);
		return;
	}
	u->changed = false;
	p->written = u;
	p->job = (struct scanner_job){.worker = SCANNER_TIER, .run = run_job, .done = job_done};
	p->writing = true;
	p->error = -ECANCELED; /* if it never runs, because the daemon ends */
	scanner_submit(p->host->scanner, &p->job);
}

static void on_timer(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct profiles *p = CONTAINER_OF(op, profiles, timer);

	for (struct user *u = p->users; u && result >= 0; u = u->hh.next)
		u->due |= u->changed;
	write_next(p);
}

static void change(struct profiles *p, struct user *u)
{
	u->changed = true;
	if (p->dir_fd >= 0 && !p->timer.busy)
		loop_timer(p->host->loop, &p->timer,
			   loop_clock() + p->host->config->profile.save_ns, 0);
}

/* ---- reading ---- */

static void read_user(uint32_t uid, void *arg)
{
	struct profiles *p = arg;
	struct user *u = get(p, uid);
	const char *why = "it cannot be read, or is not ours alone to write";
	char *text = NULL;
	size_t n = 0;
	int r = u ? profilefile_read(p->dir_fd, uid, &text, &n) : -ENOMEM;

	if (r == 0)
		r = profile_load(u->profile, text, n, true, &why);
	free(text);
	if (r == -ENOMEM) {
		log_say(LOG_WARNING, LOG_FIELDS(.object = p->path, .error = r),
			"profile-%u is not read: out of memory, or there are more than %u of them",
			(unsigned)uid, PROFILES_USERS_MAX);
	} else if (r < 0) {
		bool aside = profilefile_put_aside(p->dir_fd, uid) == 0;

		log_say(LOG_WARNING, LOG_FIELDS(.object = p->path, .error = r),
			"profile-%u is refused: %s; nothing is known of what tasks of user %u used "
			"so far%s",
			(unsigned)uid, why, (unsigned)uid,
			aside ? "; the file is kept as .refused" : "");
	}
}

static void open_directory(struct profiles *p)
{
	const char *configured = p->host->config->profile.directory;

	if (configured && strcmp(configured, "none") == 0)
		return;
	p->dir_fd = profilefile_open(configured, &p->path);
	if (p->dir_fd < 0)
		log_say(LOG_WARNING, LOG_FIELDS(.object = p->path, .error = p->dir_fd),
			"profiles are not kept beyond this daemon's life: %s; set profile { "
			"directory = ... } in shmstored.conf",
			p->dir_fd == -EBUSY ? "another daemon uses the directory"
			: p->dir_fd == -EPERM
				? "the directory is another user's, or others may write to it"
			: !p->path ? "neither XDG_STATE_HOME nor HOME names a place for them"
				   : "the directory cannot be used");
	else if (profilefile_each(p->dir_fd, read_user, p) < 0)
		log_say(LOG_WARNING, LOG_FIELDS(.object = p->path),
			"the directory of profiles cannot be read");
}

int profiles_new(struct host *h, struct profiles **ret)
{
	struct profiles *p;

	*ret = NULL;
	if (h->config->profile.strategy.strategy == PROFILE_NONE)
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->host = h;
	p->dir_fd = -1;
	p->timer.fn = on_timer;
	p->looks.fn = profiletasks_look;
	p->adaptation.now = PROFILE_PEAK;
	open_directory(p);
	*ret = p;
	return 0;
}

static void write_now(struct profiles *p, struct user *u)
{
	size_t n;
	char *text = profile_text(u->profile, &n);

	say_written(p, u, text ? profilefile_write(p->dir_fd, (uint32_t)u->uid, text, n) : -ENOMEM);
	free(text);
}

struct profiles *profiles_free(struct profiles *p)
{
	struct user *u, *next;

	if (!p)
		return NULL;
	HASH_ITER(hh, p->users, u, next)
	{
		if (u->changed && p->dir_fd >= 0)
			write_now(p, u);
		HASH_DEL(p->users, u);
		profile_free(u->profile);
		profile_free(u->view);
		free(u);
	}
	if (p->dir_fd >= 0)
		close(p->dir_fd);
	free(p->path);
	loop_release_all(p->host->loop, (struct loop_op *const[]){&p->timer, &p->looks}, 2, free,
			 p);
	return NULL;
}

/* ---- feeding and asking ---- */

/* Takes the class out of "class#instance". False: the group has no such form, or is too long. */
static bool class_of(const struct profile_name *name, char room[PROFILE_NAME + 1],
		     struct profile_name *ret)
{
	const char *hash = strchr(name->group, '#');

	if (!hash || hash == name->group || (size_t)(hash - name->group) > PROFILE_NAME)
		return false;
	memcpy(room, name->group, (size_t)(hash - name->group));
	room[hash - name->group] = '\0';
	*ret = (struct profile_name){name->lang, name->func, room};
	return true;
}

static int feed(struct profile *profile, const struct profile_name *name,
		const struct profile_task *task, enum profiles_end how)
{
	if (how == PROFILES_KILLED)
		return profile_killed(profile, name, task->used[PROFILE_PRIVATE]);
	return how == PROFILES_PREEMPTED ? profile_preempted(profile, name)
					 : profile_feed(profile, name, task);
}

/* anew: as a whole. */
static void changed(struct profiles *p, struct user *u, bool anew)
{
	change(p, u);
	if (p->host->actord->profiled)
		p->host->actord->profiled(p->host, (uint32_t)u->uid, anew);
}

int profiles_ended(struct profiles *p, uint32_t uid, const struct profile_name *name,
		   const struct profile_task *task, enum profiles_end how)
{
	char room[PROFILE_NAME + 1];
	struct profile_name class;
	struct user *u;
	int r;

	if (how == PROFILES_DROPPED)
		return 0;
	u = get(p, uid);
	if (!u)
		return HASH_COUNT(p->users) == PROFILES_USERS_MAX ? -EMFILE : -ENOMEM;
	r = feed(u->profile, name, task, how);
	if (r == 0 && u->view)
		r = feed(u->view, name, task, how);
	if (r == 0 && class_of(name, room, &class)) {
		r = feed(u->profile, &class, task, how);
		if (r == 0 && u->view)
			r = feed(u->view, &class, task, how);
	}
	changed(p, u, false);
	return r;
}

const struct profile_key *profiles_key(const struct profiles *p, uint32_t uid,
				       const struct profile_name *name)
{
	const struct user *u = find(p, uid);
	char room[PROFILE_NAME + 1];
	struct profile_name class;
	const struct profile_key *k = NULL;

	if (u)
		k = profile_find(known(u), name);
	if (u && !k && class_of(name, room, &class))
		k = profile_find(known(u), &class);
	return k;
}

void profiles_admitted(struct profiles *p)
{
	if (p->host->config->profile.strategy.adaptive && adaptation_admitted(&p->adaptation))
		log_say(LOG_NOTICE, LOG_FIELDS(.error = 0),
			"profiles: %u tasks never used %u%% of what was reserved for them: "
			"estimates are by %s from now on",
			ADAPTATION_WINDOW, ADAPTATION_USED,
			profile_strategy_name(p->adaptation.now));
}

enum profile_strategy profiles_strategy(const struct profiles *p)
{
	const struct profile_choice *choice = &p->host->config->profile.strategy;

	return choice->adaptive ? p->adaptation.now : choice->strategy;
}

struct profiles_estimate profiles_estimate(const struct profiles *p, uint32_t uid,
					   const struct profile_name *name,
					   const uint64_t declared[PROFILE_RESOURCES])
{
	const struct config_profile *config = &p->host->config->profile;
	const struct profile_key *k = profiles_key(p, uid, name);
	struct profiles_estimate e = {.strategy = profiles_strategy(p), .key = k};

	if (k && profile_was_preempted(k))
		e.strategy = PROFILE_PEAK;
	for (int i = 0; i < PROFILE_RESOURCES; i++) {
		enum profile_resource r = (enum profile_resource)i;
		uint64_t fallback = r == PROFILE_PRIVATE ? config->fallback : 0;
		uint64_t least = !declared[i] && profile_is_new(k, r) ? fallback : declared[i];

		e.used[i] = profile_estimate(k, r, e.strategy, least, fallback);
	}
	e.n = profile_stat(k, PROFILE_PRIVATE).n;
	return e;
}

int profiles_load(struct profiles *p, uint32_t uid, const char *text, size_t n,
		  const char **ret_why)
{
	struct user *u = get(p, uid);
	int r;

	*ret_why = "out of memory, or too many users";
	if (!u)
		return -ENOMEM;
	r = profile_load(u->profile, text, n, true, ret_why);
	if (r == 0)
		changed(p, u, true);
	return r;
}

void profiles_reset(struct profiles *p, uint32_t uid)
{
	struct user *u = find(p, uid);

	if (!u)
		return;
	profile_reset(u->profile);
	changed(p, u, true);
}
