/* SPDX-License-Identifier: Apache-2.0 */
/*
 * old_views_mortal.c: donors and holders of packed objects that are stopped for a while and killed.
 * A child that such a process leaves goes on to look at the views that it inherited, while
 * everybody recovers the dead, opens the store anew, and uses the slots again.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "old_views.h"

#define ORPHANS 6u  /* at a time */
#define LOOKS   20u /* of each */

struct mortal {
	struct ov *o;
	struct shmstore *s;
	uint64_t random, next_seed;
	struct ov_view ring[OV_RING];
};

/* A child, once its parent is dead. */
static void be_orphan(struct mortal *m, pid_t parent)
{
	unsigned n = 0;

	while (n < LOOKS && !m->o->shared->stop && !m->o->shared->failed) {
		for (unsigned i = 0; i < OV_RING; i++) {
			struct content c = {0, 0};
			const char *why = m->ring[i].v ? content_check(m->ring[i].v, &c) : NULL;

			if (m->ring[i].v)
				ov_looked(m->o, OV_ORPHANED, n == 0, why, c.seed, m->ring[i].seed);
		}
		n += n == 0 || getppid() != parent;
		ov_breathe(&m->random);
	}
	m->o->shared->n_orphans--;
	_exit(0);
}

static void leave_a_child(struct mortal *m)
{
	pid_t parent = getpid(), pid;

	if (m->o->shared->n_orphans++ >= ORPHANS) {
		m->o->shared->n_orphans--;
		return;
	}
	pid = fork();
	if (pid == 0)
		be_orphan(m, parent);
	if (pid < 0)
		m->o->shared->n_orphans--;
}

/* An object that is gone from here as soon as it has a view. */
static void take(struct mortal *m)
{
	struct ov_view *slot = &m->ring[ov_random(&m->random, OV_RING)];
	struct shmstore_view *v = NULL;
	struct ov_mail mail;
	int rc;

	if (!ov_receive(m->o, &mail) || !ov_adopt(m->o, m->s, mail.key, &mail))
		return;
	rc = shmstore_get(m->s, mail.key, strlen(mail.key), 0, &v);
	if (rc < 0) {
		ov_fail(m->o, "get of an adopted object: %d (%s)", rc, shmstore_strerror(rc));
		return;
	}
	ov_hold(m->o, OV_STOPPED, slot, v);
	if (slot->seed != mail.seed)
		ov_fail(m->o, "an adopted object is another one than was handed off");
	shmstore_delete(m->s, mail.key, strlen(mail.key));
}

/* An object of its own for somebody else, who has it when this process is dead. */
static void give(struct mortal *m)
{
	struct content c = {++m->next_seed, 100 + ov_random(&m->random, 40000)};
	char key[16];
	int rc;

	ov_key(ov_random(&m->random, OV_KEYS), key);
	rc = content_put(m->s, key, strlen(key), c, SHMSTORE_REPLACE);
	if (rc == 0)
		ov_send_ticket(m->o, m->s, key, c.seed);
	else if (rc != -ENOSPC)
		ov_fail(m->o, "put: %d (%s)", rc, shmstore_strerror(rc));
}

static void live(struct ov *o, const char *name, uint64_t random)
{
	struct mortal m = {.o = o, .random = random, .next_seed = random << 20 | UINT64_C(1) << 60};

	m.s = ov_open(o, name, 0);
	while (m.s && !o->shared->stop && !o->shared->failed) {
		for (unsigned i = 0; i < OV_RING; i++) {
			take(&m);
			give(&m);
		}
		leave_a_child(&m);
		raise(SIGSTOP);
		for (unsigned i = 0; i < OV_RING; i++)
			if (m.ring[i].v)
				ov_look(o, OV_STOPPED, &m.ring[i]);
	}
	_exit(0); /* as if it were killed: nothing is closed */
}

/* Lets it go on some times, and kills it at any moment of the last. */
static void end(struct ov *o, pid_t pid, uint64_t *random)
{
	int status = 0;

	for (unsigned n = ov_random(random, 4); n > 0; n--) {
		if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
			return;
		ov_breathe(random);
		kill(pid, SIGCONT);
	}
	for (unsigned n = ov_random(random, 8); n > 0; n--)
		ov_breathe(random);
	kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
		ov_fail(o, "a process that was to be killed ended by signal %d", WTERMSIG(status));
}

void ov_hold_mortal(struct ov *o, uint64_t random)
{
	char name[32];

	snprintf(name, sizeof(name), "mortal-%u", ov_random(&random, 1u << 20));
	while (!o->shared->stop && !o->shared->failed) {
		uint64_t seed = random + ov_random(&random, 1u << 30);
		pid_t pid = fork();

		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			live(o, name, seed);
		}
		if (pid > 0)
			end(o, pid, &random);
	}
}
