/* SPDX-License-Identifier: Apache-2.0 */
/* Which pressure file is asked, what is asked of it, and what happens where there is none. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "pressure.h"
#include "scratch.h"

static struct config config;
static struct host host;

static void begin(void)
{
	config = (struct config){.psi = true, .psi_stall_us = 150000, .psi_window_us = 1000000};
	host = (struct host){.config = &config};
	cr_assert_eq(loop_new(&host.loop), 0);
	cr_assert_eq(events_new(&host.events), 0);
}

static void finish(struct psi *p)
{
	psi_free(p);
	loop_free(host.loop);
	events_free(host.events);
}

/* Makes the directories of path below the scratch directory, and the file; text NULL: a FIFO, which
 * can be polled, as the kernel's file can. */
static void make(const char *path, const char *text)
{
	char full[SCRATCH_PATH];
	FILE *f;

	snprintf(full, sizeof(full), "%.200s%s", scratch_dir(NULL), path);
	for (char *at = strchr(full + strlen(scratch_dir(NULL)) + 1, '/'); at;
	     at = strchr(at + 1, '/')) {
		*at = '\0';
		mkdir(full, 0700);
		*at = '/';
	}
	if (!text) {
		cr_assert_eq(mkfifo(full, 0600), 0);
		return;
	}
	f = fopen(full, "w");
	cr_assert_not_null(f, "%s", full);
	fputs(text, f);
	fclose(f);
}

static void ensure_holds(const char *path, const char *text)
{
	char full[SCRATCH_PATH], is[256] = "";
	int fd;

	snprintf(full, sizeof(full), "%.200s%s", scratch_dir(NULL), path);
	fd = open(full, O_RDWR | O_NONBLOCK);
	cr_assert(read(fd, is, sizeof(is) - 1) >= 0 || errno == EAGAIN);
	close(fd);
	cr_assert_str_eq(is, text);
}

Test(psi, the_slice_above_us_is_asked)
{
	struct psi *p;

	begin();
	make("/proc/self/cgroup",
	     "1:name=systemd:/old/style\n0::/system.slice/shmstored.service\n");
	make("/sys/fs/cgroup/system.slice/memory.pressure", NULL);
	make("/proc/pressure/memory", NULL);
	cr_assert_eq(psi_new(&host, scratch_dir(NULL), &p), 0);
	cr_assert_not_null(p);
	ensure_holds("/sys/fs/cgroup/system.slice/memory.pressure", "some 150000 1000000");
	ensure_holds("/proc/pressure/memory", "");
	finish(p);
}

Test(psi, without_a_slice_the_host_is_asked)
{
	struct psi *p;

	begin();
	make("/proc/self/cgroup", "0::/\n");
	make("/proc/pressure/memory", NULL);
	cr_assert_eq(psi_new(&host, scratch_dir(NULL), &p), 0);
	cr_assert_not_null(p);
	ensure_holds("/proc/pressure/memory", "some 150000 1000000");
	finish(p);
}

Test(psi, none_to_be_had_is_an_error_and_off_is_none)
{
	struct psi *p = (struct psi *)1;

	begin();
	cr_assert_eq(psi_new(&host, scratch_dir(NULL), &p), -ENOENT);
	cr_assert_null(p);
	config.psi = false;
	p = (struct psi *)1;
	cr_assert_eq(psi_new(&host, scratch_dir(NULL), &p), 0);
	cr_assert_null(p);
	finish(NULL);
}

Test(psi, the_kernel_takes_the_trigger)
{
	struct psi *p;
	int r;

	if (access("/proc/pressure/memory", W_OK) < 0)
		cr_skip_test("needs a kernel with pressure stall information");
	begin();
	r = psi_new(&host, "", &p);
	cr_assert(r == 0 || r == -EOPNOTSUPP || r == -EPERM || r == -EACCES || r == -EROFS, "%d",
		  r);
	finish(p);
}
