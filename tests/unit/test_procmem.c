/* SPDX-License-Identifier: Apache-2.0 */
/* test_procmem.c: a process's private memory by files that the test writes: with swap, without,
 * gone, and how often the longer file is read. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pressure.h"

#define PID 4710 /* due at once, as 0 of 10 */

static char root[] = "/tmp/shmstore-procmem-XXXXXX";
static long page;

static void write_file(const char *name, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%d/%s", root, PID, name);
	f = fopen(path, "r+");
	if (!f)
		f = fopen(path, "w");
	cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* Pages that are resident, and kB that are swapped out as status says it. The kernel
 * writes both at each read. */
static void set(long resident, long swapped_kb)
{
	char text[200];

	snprintf(text, sizeof(text), "%08ld %08ld %08d 1 0 1 0\n", resident + 900, resident + 7, 7);
	write_file("statm", text);
	snprintf(text, sizeof(text),
		 "Name:\tx\nState:\tS (sleeping)\nRssAnon:\t%8ld kB\nVmSwap:\t%8ld kB\n",
		 resident * (page / 1024), swapped_kb);
	write_file("status", text);
}

static struct procmem *begin(void)
{
	char path[128];
	struct procmem *m;

	page = sysconf(_SC_PAGESIZE);
	cr_assert(mkdtemp(root));
	snprintf(path, sizeof(path), "%s/%d", root, PID);
	cr_assert_eq(mkdir(path, 0755), 0);
	set(10, 0);
	m = procmem_new(root, PID);
	cr_assert(m);
	return m;
}

static void end(struct procmem *m)
{
	char command[128];

	procmem_free(m);
	snprintf(command, sizeof(command), "rm -r %s", root);
	cr_assert_eq(system(command), 0);
}

static void expect(struct procmem *m, bool swap, int64_t bytes)
{
	struct amount is = procmem_read(m, swap);

	cr_assert(is.known);
	cr_assert_eq(is.bytes, bytes, "%lld, not %lld", (long long)is.bytes, (long long)bytes);
}

Test(procmem, without_swap_what_is_resident_counts)
{
	struct procmem *m = begin();

	expect(m, false, 10 * page);
	set(25, 4000);
	expect(m, false, 25 * page);
	write_file("statm", "x                                   ");
	cr_assert_not(procmem_read(m, false).known);
	end(m);
}

Test(procmem, what_is_swapped_out_counts_at_once_where_pages_became_fewer_and_else_soon)
{
	struct procmem *m = begin();

	set(100, 40);
	expect(m, true, 100 * page + 40 * 1024);
	/* More of it is swapped out, and it grew: seen at the tenth look. */
	set(110, 80);
	for (int i = 0; i < 9; i++)
		expect(m, true, 110 * page + 40 * 1024);
	expect(m, true, 110 * page + 80 * 1024);
	/* Swapped out, and it did not grow: at this one. */
	set(60, 280);
	expect(m, true, 60 * page + 280 * 1024);
	/* None of the host's swap is in use any more, and then some is. */
	expect(m, false, 60 * page);
	set(61, 400);
	expect(m, true, 61 * page + 400 * 1024);
	end(m);
}

Test(procmem, one_that_has_ended_has_nothing)
{
	struct procmem *m = begin();

	expect(m, true, 10 * page);
	write_file("statm", "00000000 00000000 00000000 0 0 0 0\n");
	write_file(
		"status",
		"Name:\tx\nState:\tZ (zombie)\n                                                  ");
	expect(m, true, 0);
	end(m);
}
