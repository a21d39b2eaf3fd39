/* SPDX-License-Identifier: Apache-2.0 */
/* The three users of brokerscene.h. Each is a child with that uid; broker_run() is called
 * by root, as shmstored does. */
#include "brokerscene.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "wire.h"

struct shmstore_partition *scene_partition;
int scene_partition_fd;
char scene_path[SCRATCH_PATH];
struct shmstore_ticket *scene_ticket;

void scene_begin(void)
{
	char *dir;

	if (geteuid() != 0)
		cr_skip("only root can be several users");
	cr_assert_neq(asprintf(&dir, "%s/shared", scratch_dir(NULL)), -1);
	cr_assert_eq(chmod(scratch_dir(NULL), 0755), 0);
	cr_assert_eq(
		shmstore_partition_open(dir, SHMSTORE_CREATE | SHMSTORE_SHARED, &scene_partition),
		0);
	snprintf(scene_path, sizeof(scene_path), "%s", shmstore_partition_path(scene_partition));
	scene_partition_fd = open(scene_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(scene_partition_fd, 0);
	scene_ticket = mmap(NULL, sizeof(*scene_ticket), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(scene_ticket, MAP_FAILED);
	free(dir);
}

void scene_end(void)
{
	if (!scene_partition)
		return;
	close(scene_partition_fd);
	shmstore_partition_unref(scene_partition);
}

int scene_play(void *arg)
{
	const struct scene_part *p = arg;

	ENSURE(setgroups(0, NULL) == 0 && setresgid(p->uid, p->uid, p->uid) == 0 &&
	       setresuid(p->uid, p->uid, p->uid) == 0);
	return p->fn(p->arg);
}

int scene_as(uid_t uid, int (*fn)(const char *arg), const char *arg)
{
	return in_child(scene_play, &(struct scene_part){uid, fn, arg});
}

struct shmstore *scene_store(const char *name)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p;
	struct shmstore *s;

	o.keep = true;
	o.daemon = SHMSTORE_DAEMON_OFF;
	ENSURE(shmstore_partition_open(scene_path, 0, &p) == 0);
	ENSURE(shmstore_open(p, name, &o, &s) == 0);
	shmstore_partition_unref(p);
	return s;
}

int scene_donate(const char *arg)
{
	struct shmstore *s = scene_store("donor");

	(void)arg;
	ENSURE(put_pattern(s, "k", SIZE, 7, SHMSTORE_REPLACE | SHMSTORE_CHECKSUM) == 0);
	ENSURE(shmstore_handoff(s, KEY("k"), 60000, scene_ticket) == 0);
	ENSURE(shmstore_close(s) == 0);
	return 0;
}

void scene_ask_for(struct broker_ask *ask, const char *named)
{
	*ask = (struct broker_ask){.partition = scene_partition,
				   .partition_fd = scene_partition_fd,
				   .store = "stores/donor",
				   .from = DONOR,
				   .to = RECEIVER};
	snprintf(ask->path, sizeof(ask->path), "%s", named);
}

int scene_broker(const char *named, struct broker_answer *ret)
{
	struct broker_ask ask;

	scene_ask_for(&ask, named);
	*ret = (struct broker_answer){0};
	return broker_run(&ask, ret);
}

void scene_hand_over(void)
{
	struct broker_answer a;

	cr_assert_eq(scene_as(DONOR, scene_donate, NULL), 0);
	cr_assert_eq(scene_broker(scene_ticket->path, &a), 0, "%s", a.why);
	cr_assert_lt(snprintf(scene_ticket->path, sizeof(scene_ticket->path), "%s/%s", scene_path,
			      a.path),
		     SHMSTORE_TICKET_PATH);
}

int scene_inbox_leases(uid_t uid)
{
	char dir[SCRATCH_PATH];

	snprintf(dir, sizeof(dir), "%s/" WIRE_INBOX "/%u/handoff", scene_path, uid);
	return count_dir(dir);
}

const char *scene_below(const char *rest)
{
	static char joined[4][2 * SCRATCH_PATH];
	static unsigned next;
	char *to = joined[next++ % 4];

	snprintf(to, sizeof(joined[0]), "%s/%s", scene_path, rest);
	return to;
}

int scene_adopt_only(const char *arg)
{
	struct shmstore *s = scene_store(arg);
	int r = shmstore_adopt(s, KEY("x"), scene_ticket, 0);

	if (r == 0)
		r = get_pattern(s, "x", SIZE, 7);
	ENSURE(shmstore_close(s) == 0);
	return -r;
}
