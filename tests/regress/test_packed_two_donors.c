/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kept store had objects in the segments of two stores whose owners were dead. When it was opened
 * again, it found the first segment, then the second one; and as it had not read its names yet, it
 * left the first as one in which it had nothing. The objects were lost.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/mman.h>

#include "api.h"

#define N    4
#define SIZE 5000

static struct shmstore_ticket *tickets; /* of donors, which are children */
static unsigned donor;

static struct shmstore *open_store(const char *name)
{
	return packing_store(name, 64u << 10, strcmp(name, "receiver") == 0);
}

static const char *key_of(unsigned i)
{
	static char key[16];

	snprintf(key, sizeof(key), "key-%u", i);
	return key;
}

static int donate_and_die(void *arg)
{
	char name[16];
	struct shmstore *s;

	(void)arg;
	snprintf(name, sizeof(name), "donor-%u", donor);
	s = open_store(name);
	ENSURE(put_pattern(s, key_of(donor), SIZE, donor, 0) == 0);
	ENSURE(shmstore_handoff(s, KEY(key_of(donor)), 60000, &tickets[donor]) == 0);
	kill(getpid(), SIGKILL);
	return 0;
}

static int adopt_all_and_die(void *arg)
{
	struct shmstore *s = open_store("receiver");

	(void)arg;
	for (unsigned i = 0; i < N; i++)
		ENSURE(shmstore_adopt(s, KEY(key_of(i)), &tickets[i], 0) == 0);
	kill(getpid(), SIGKILL);
	return 0;
}

Test(packed_two_donors, kept_receiver_has_what_all_of_them_gave)
{
	struct shmstore *s;

	scratch_partition_path(); /* made here, and not in a child */
	tickets = mmap(NULL, N * sizeof(*tickets), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(tickets, MAP_FAILED);
	for (donor = 0; donor < N; donor++)
		cr_assert_eq(in_child(donate_and_die, NULL), 1000 + SIGKILL);
	cr_assert_eq(in_child(adopt_all_and_die, NULL), 1000 + SIGKILL);
	s = open_store("receiver");
	for (unsigned i = 0; i < N; i++)
		cr_expect_eq(get_pattern(s, key_of(i), SIZE, i), 0, "object %u", i);
	cr_assert_eq(shmstore_close(s), 0);
}
