/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lacks: what this kernel, or an emulator that answers for it, does not do as Linux does; a word
 * for each, one a line. Tests that need it are named in tests/arm64/run.
 *
 *   advice     madvise() succeeds whatever it is asked for
 *   dontfork   madvise(MADV_DONTFORK) succeeds, and a forked child has the mapping all the same
 *   leader     the first thread of a process ends, and its /proc/PID/stat says that it runs
 *   limits     setrlimit(RLIMIT_AS) succeeds, and memory is mapped all the same
 *   map_files  a link of /proc/self/map_files cannot be followed: as root of a user namespace may
 *              not, and where /proc/self/maps is made up
 *   order      a sequentially consistent load comes before the store that it follows
 *   seccomp    a process may not give itself a filter of system calls
 *   start      a process reads another start of itself in its /proc/PID/stat than others read there
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STARTS    50
#define ORDERS    100000u
#define SPINS     1024u /* of one who waits for the other: there may be one processor */
#define NO_ADVICE 9999

static int status_of(pid_t child)
{
	int status = -1;

	return child < 0 || waitpid(child, &status, 0) < 0 ? -1 : status;
}

static bool lacks_dontfork(void)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	volatile char *map =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child;

	if (map == MAP_FAILED || madvise((void *)map, size, MADV_DONTFORK) < 0)
		return true;
	child = fork();
	if (child == 0) {
		map[0] = 1; /* a child that has not got it ends here */
		_exit(0);
	}
	return status_of(child) == 0;
}

static void *see_the_leader_end(void *arg)
{
	char path[64], state = 0;
	FILE *f;

	(void)arg;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)getpid());
	for (int i = 0; i < 200 && state != 'Z'; i++) {
		usleep(10000);
		f = fopen(path, "r");
		if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
			state = 0;
		if (f)
			fclose(f);
	}
	_exit(state == 'Z' ? 0 : 1);
}

static bool lacks_leader(void)
{
	pid_t child = fork();
	pthread_t thread;

	if (child == 0) {
		if (pthread_create(&thread, NULL, see_the_leader_end, NULL) != 0)
			_exit(1);
		pthread_exit(NULL);
	}
	return status_of(child) != 0;
}

static bool lacks_seccomp(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog filter = {1, &allow};
	pid_t child = fork();

	if (child == 0)
		_exit(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
	return status_of(child) != 0;
}

static bool lacks_limits(void)
{
	struct rlimit limit = {0, RLIM_INFINITY};
	pid_t child = fork();

	if (child == 0) {
		setrlimit(RLIMIT_AS, &limit);
		_exit(mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
				      MAP_FAILED
			      ? 0
			      : 1);
	}
	return status_of(child) != 0;
}

/* Field 22 of its stat; 0: it cannot be read. */
static unsigned long long start_of(pid_t pid)
{
	char path[64], text[4096], *word;
	unsigned long long start = 0;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	if (!f)
		return 0;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	word = strrchr(text, ')');
	for (int field = 2; word && field < 22; field++)
		word = strchr(word + 1, ' ');
	if (word)
		start = strtoull(word, NULL, 10);
	return start;
}

/* Of several processes: an emulator counts from a clock of its own, and is right by chance. */
static bool lacks_start(void)
{
	unsigned long long own = 0;
	bool same = true;
	int ends[2] = {-1, -1};

	for (int i = 0; i < STARTS && same; i++) {
		pid_t child = pipe(ends) < 0 ? -1 : fork();

		if (child == 0) {
			own = start_of(getpid());
			_exit(write(ends[1], &own, sizeof(own)) != sizeof(own));
		}
		same = child > 0 && read(ends[0], &own, sizeof(own)) == sizeof(own) && own &&
		       start_of(child) == own && status_of(child) == 0;
		close(ends[0]);
		close(ends[1]);
	}
	return !same;
}

static atomic_uint turn, stored[2];
static unsigned seen[2][ORDERS];

static void *store_then_load(void *arg)
{
	unsigned mine = arg ? 1 : 0;

	for (unsigned i = 1; i < ORDERS; i++) {
		atomic_fetch_add(&turn, 1);
		for (unsigned n = 1; atomic_load(&turn) < 2 * i; n++) {
			if (n % SPINS == 0)
				sched_yield();
		}
		atomic_store(&stored[mine], i);
		seen[mine][i] = atomic_load(&stored[!mine]);
	}
	return NULL;
}

/* Of two threads that store and then load what the other stores, one sees it. */
static bool lacks_order(void)
{
	bool lacks = false;
	pthread_t other;

	if (pthread_create(&other, NULL, store_then_load, &turn) != 0)
		return true;
	store_then_load(NULL);
	pthread_join(other, NULL);
	for (unsigned i = 1; i < ORDERS && !lacks; i++)
		lacks = seen[0][i] < i && seen[1][i] < i;
	return lacks;
}

static bool lacks_advice(void)
{
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return page == MAP_FAILED || madvise(page, 4096, NO_ADVICE) == 0;
}

static bool lacks_map_files(void)
{
	char line[512], range[64], path[128];
	FILE *f = fopen("/proc/self/maps", "r");
	bool lacks = true;
	struct stat st;

	while (f && fgets(line, sizeof(line), f)) {
		if (!strchr(line, '/') || sscanf(line, "%63s", range) != 1)
			continue;
		snprintf(path, sizeof(path), "/proc/self/map_files/%s", range);
		lacks = stat(path, &st) < 0;
		break;
	}
	if (f)
		fclose(f);
	return lacks;
}

int main(void)
{
	static const struct {
		const char *word;
		bool (*lacks)(void);
	} asked[] = {
		{"advice", lacks_advice},       {"dontfork", lacks_dontfork},
		{"leader", lacks_leader},       {"limits", lacks_limits},
		{"map_files", lacks_map_files}, {"order", lacks_order},
		{"seccomp", lacks_seccomp},     {"start", lacks_start},
	};

	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		if (asked[i].lacks())
			puts(asked[i].word);
		fflush(stdout); /* a child has what is not written */
	}
	return 0;
}
