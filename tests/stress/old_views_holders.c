/* SPDX-License-Identifier: Apache-2.0 */
/* old_views_holders.c: the holders of old_views.h that live in processes of their own. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "old_views.h"

struct shmstore *ov_open(struct ov *o, const char *name, unsigned flags)
{
	struct shmstore_partition *p = NULL;
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s = NULL;
	options.flags = flags;
	options.pack_max = o->pack_max;
	int rc = shmstore_partition_open(o->partition, 0, &p);
	if (rc == 0)
		rc = shmstore_open(p, name, &options, &s);
	if (rc < 0)
		ov_fail(o, "a holder cannot open %s: %d (%s)", name, rc, shmstore_strerror(rc));
	shmstore_partition_unref(p);
	return s;
}

void ov_breathe(uint64_t *random)
{
	struct timespec t = {.tv_nsec = (long)ov_random(random, 300000)};
	nanosleep(&t, NULL);
}

/* ---- views ----------------------------------------------------------------------------------- */

void ov_look(struct ov *o, enum ov_kind kind, const struct ov_view *h)
{
	struct content c = {0, 0};
	const char *why = content_check(h->v, &c);
	ov_looked(o, kind, false, why, c.seed, h->seed);
}

void ov_hold(struct ov *o, enum ov_kind kind, struct ov_view *slot, struct shmstore_view *v)
{
	struct content c = {0, 0};
	const char *why = content_check(v, &c);
	ov_looked(o, kind, true, why, c.seed, c.seed);
	shmstore_view_unref(slot->v);
	*slot = (struct ov_view){v, c.seed};
}

static void look_around(struct ov *o, enum ov_kind kind, struct ov_view ring[OV_RING],
			uint64_t *random)
{
	for (unsigned i = 0; i < OV_RING; i++)
		if (ring[i].v) {
			ov_look(o, kind, &ring[i]);
			if (ov_random(random, 3) == 0)
				ring[i].v = shmstore_view_unref(ring[i].v);
		}
}

void ov_hold_readonly(struct ov *o, uint64_t random)
{
	struct shmstore *s = ov_open(o, "churn", SHMSTORE_OPEN_READONLY);
	struct ov_view ring[OV_RING] = {{NULL, 0}};
	while (s && !o->shared->stop && !o->shared->failed) {
		char key[16];
		ov_key(ov_random(&random, OV_KEYS), key);
		struct shmstore_view *v = NULL;
		int rc = shmstore_get(s, key, strlen(key), 0, &v);
		if (rc == 0)
			ov_hold(o, OV_READONLY, &ring[ov_random(&random, OV_RING)], v);
		else if (rc != -ENOENT)
			ov_fail(o, "read-only get: %d (%s)", rc, shmstore_strerror(rc));
		look_around(o, OV_READONLY, ring, &random);
		ov_breathe(&random);
	}
	for (unsigned i = 0; i < OV_RING; i++)
		shmstore_view_unref(ring[i].v);
	shmstore_close(s);
}

/* An object that is adopted and left alone for some rounds: no view, no descriptor. */
struct linked {
	char key[24];
	uint64_t seed;
	unsigned rounds;
};

static void look_at_linked(struct ov *o, struct shmstore *s, struct linked *l)
{
	struct content c = {0, 0};
	const char *why = NULL;
	int rc = content_get(s, l->key, strlen(l->key), &c, &why);
	if (rc < 0 && rc != -EILSEQ)
		ov_fail(o, "get of an adopted object: %d (%s)", rc, shmstore_strerror(rc));
	ov_looked(o, OV_LINKED, false, why, c.seed, l->seed);
	shmstore_delete(s, l->key, strlen(l->key));
	l->key[0] = '\0';
}

void ov_send_ticket(struct ov *o, struct shmstore *s, const char *key, uint64_t seed)
{
	struct pollfd room = {.fd = o->tickets[0], .events = POLLOUT};
	struct ov_mail mail = {.seed = seed};
	int rc;

	if (poll(&room, 1, 0) != 1)
		return;
	memcpy(mail.key, key, strlen(key) + 1);
	rc = shmstore_handoff(s, key, strlen(key), 5000, &mail.ticket);
	if (rc < 0)
		ov_fail(o, "handoff: %d (%s)", rc, shmstore_strerror(rc));
	else if (send(o->tickets[0], &mail, sizeof(mail), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		unlink(mail.ticket.path); /* somebody else took the room */
}

bool ov_receive(struct ov *o, struct ov_mail *ret)
{
	struct pollfd pfd = {.fd = o->tickets[1], .events = POLLIN};

	return poll(&pfd, 1, 1) == 1 &&
	       recv(o->tickets[1], ret, sizeof(*ret), MSG_DONTWAIT) == (ssize_t)sizeof(*ret);
}

bool ov_adopt(struct ov *o, struct shmstore *s, const char *key, const struct ov_mail *mail)
{
	int rc = shmstore_adopt(s, key, strlen(key), &mail->ticket, SHMSTORE_REPLACE);

	/* It took us longer than the lease; or where a packed object is
	 * copied the partition is full. */
	if (rc < 0 && rc != -ESTALE && !(rc == -ENOSPC && o->pack_max))
		ov_fail(o, "adopt: %d (%s)", rc, shmstore_strerror(rc));
	return rc == 0;
}

static void take_ticket(struct ov *o, struct shmstore *s, struct ov_view ring[OV_RING],
			struct linked links[OV_RING], uint64_t *random)
{
	static unsigned n;
	struct ov_mail mail;
	char key[24];

	if (!ov_receive(o, &mail))
		return;
	/* A packed object is sure to be taken as it is under its own key alone. */
	snprintf(key, sizeof(key), o->pack_max ? "%s" : "adopted-%s-%u", mail.key, n++ % 200);
	for (unsigned i = 0; i < OV_RING; i++)
		if (strcmp(links[i].key, key) == 0)
			look_at_linked(o, s, &links[i]);
	if (!ov_adopt(o, s, key, &mail))
		return;
	struct linked *l = &links[ov_random(random, OV_RING)];
	if (l->key[0] == '\0' && ov_random(random, 2)) {
		*l = (struct linked){.seed = mail.seed, .rounds = 1 + ov_random(random, 20)};
		memcpy(l->key, key, sizeof(key));
		o->shared->n_held[OV_LINKED]++;
		return;
	}
	struct shmstore_view *v = NULL;
	int rc = shmstore_get(s, key, strlen(key), 0, &v);
	if (rc < 0) {
		ov_fail(o, "get of an adopted object: %d (%s)", rc, shmstore_strerror(rc));
		return;
	}
	shmstore_delete(s, key, strlen(key));
	struct ov_view *slot = &ring[ov_random(random, OV_RING)];
	ov_hold(o, OV_ADOPTED, slot, v);
	if (slot->seed != mail.seed)
		ov_fail(o, "an adopted object is another one than was handed off");
}

void ov_hold_adopted(struct ov *o, uint64_t random)
{
	struct shmstore *s = ov_open(o, "adopter", 0);
	struct ov_view ring[OV_RING] = {{NULL, 0}};
	struct linked links[OV_RING] = {{.rounds = 0}};
	while (s && !o->shared->stop && !o->shared->failed) {
		take_ticket(o, s, ring, links, &random);
		for (unsigned i = 0; i < OV_RING; i++)
			if (links[i].key[0] && --links[i].rounds == 0)
				look_at_linked(o, s, &links[i]);
		look_around(o, OV_ADOPTED, ring, &random);
	}
	for (unsigned i = 0; i < OV_RING; i++)
		shmstore_view_unref(ring[i].v);
	shmstore_close(s);
}

/* ---- by hand --------------------------------------------------------------------------------- */

struct by_hand {
	enum ov_kind kind;
	int fd;    /* OV_OPEN */
	void *map; /* the others */
	size_t size;
	uint64_t seed;
};

static unsigned char bytes[4u << 20]; /* of a descriptor that is read again */

static const char *look(const struct by_hand *h, struct content *ret)
{
	if (h->kind != OV_OPEN)
		return content_check_file(h->map, h->size, ret);
	ssize_t n = pread(h->fd, bytes, sizeof(bytes), 0);
	return n < 0 ? "pread" : content_check_file(bytes, (size_t)n, ret);
}

static void let_go(struct by_hand *h)
{
	if (h->map)
		munmap(h->map, h->size);
	if (h->fd >= 0)
		close(h->fd);
	*h = (struct by_hand){.fd = -1};
}

static int open_by_hand(const char *path, enum ov_kind kind)
{
	if (kind != OV_PATH)
		return open(path, O_RDONLY | O_CLOEXEC);
	int at = open(path, O_PATH | O_CLOEXEC);
	if (at < 0)
		return -1;
	char again[64];
	snprintf(again, sizeof(again), "/proc/self/fd/%d", at);
	int fd = open(again, O_RDONLY | O_CLOEXEC);
	close(at);
	return fd;
}

/*
 * Takes hold of an object's file. A file counts as held if it still has the name after the open: an
 * open that began before the object's deletion and ended after its file was taken for another
 * object is a new user of the new object.
 */
static bool take_hold(const char *path, enum ov_kind kind, bool shared, struct by_hand *ret)
{
	struct stat st, named;
	int fd = open_by_hand(path, kind);
	if (fd < 0)
		return false;
	if (fstat(fd, &st) < 0 || stat(path, &named) < 0 || named.st_ino != st.st_ino ||
	    fstat(fd, &st) < 0) {
		close(fd);
		return false;
	}
	*ret = (struct by_hand){.kind = kind, .fd = fd, .size = (size_t)st.st_size};
	if (kind == OV_OPEN)
		return true;
	ret->map = mmap(NULL, ret->size, PROT_READ, shared ? MAP_SHARED : MAP_PRIVATE, fd, 0);
	close(fd);
	ret->fd = -1;
	if (ret->map == MAP_FAILED)
		ret->map = NULL;
	return ret->map != NULL;
}

void ov_hold_by_hand(struct ov *o, uint64_t random)
{
	struct by_hand ring[OV_RING];
	for (unsigned i = 0; i < OV_RING; i++)
		ring[i] = (struct by_hand){.fd = -1};
	while (!o->shared->stop && !o->shared->failed) {
		static const enum ov_kind kinds[] = {OV_OPEN, OV_PATH, OV_MAPPED};
		enum ov_kind kind = kinds[ov_random(&random, 3)];
		char key[16], path[512];
		ov_key(ov_random(&random, OV_KEYS), key);
		snprintf(path, sizeof(path), "%s/stores/churn/objects/%s", o->partition, key);
		struct by_hand *slot = &ring[ov_random(&random, OV_RING)];
		let_go(slot);
		if (take_hold(path, kind, ov_random(&random, 2), slot)) {
			struct content c = {0, 0};
			const char *why = look(slot, &c);
			ov_looked(o, kind, true, why, c.seed, c.seed);
			slot->seed = c.seed;
		}
		for (unsigned i = 0; i < OV_RING; i++)
			if (ring[i].fd >= 0 || ring[i].map) {
				struct content c = {0, 0};
				const char *why = look(&ring[i], &c);
				ov_looked(o, ring[i].kind, false, why, c.seed, ring[i].seed);
				if (ov_random(&random, 3) == 0)
					let_go(&ring[i]);
			}
		ov_breathe(&random);
	}
	for (unsigned i = 0; i < OV_RING; i++)
		let_go(&ring[i]);
}
