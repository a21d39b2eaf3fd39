/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.c: gathers what every check needs and keeps the findings. Files of /proc, /sys and /etc
 * are read through sysroot.h, so that a test can show another machine; the partition itself, limits
 * and system calls are always the real ones.
 */
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "jsonmake.h"
#include "message.h"
#include "opening.h"
#include "sysroot.h"

static const char *const levels[] = {"ok", "warn", "fail"};

static void set_text(struct json_object *o, const char *name, const char *prefix,
		     const char *format, va_list args) __attribute__((format(printf, 4, 0)));
static void set_text(struct json_object *o, const char *name, const char *prefix,
		     const char *format, va_list args)
{
	char *text, *whole;

	if (vasprintf(&text, format, args) < 0 || asprintf(&whole, "%s%s", prefix, text) < 0)
		message_no_memory();
	jsonmake_prose(o, name, whole);
	free(whole);
	free(text);
}

void doctor_run(struct doctor *d, const struct doctor_check *checks, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		d->check = checks[i].name;
		checks[i].run(d);
	}
}

void doctor_add(struct doctor *d, enum doctor_level level, const char *found, ...)
{
	va_list args;

	d->last = jsonmake_append(d->findings, jsonmake_new());
	d->counts[level]++;
	jsonmake_prose(d->last, "check", d->check);
	jsonmake_prose(d->last, "level", levels[level]);
	va_start(args, found);
	set_text(d->last, "found", "", found, args);
	va_end(args);
	jsonmake_prose(d->last, "fix", "");
}

void doctor_fix(struct doctor *d, const char *command, ...)
{
	va_list args;

	va_start(args, command);
	set_text(d->last, "fix", "", command, args);
	va_end(args);
}

void doctor_fix_root(struct doctor *d, const char *command, ...)
{
	va_list args;

	va_start(args, command);
	set_text(d->last, "fix", geteuid() == 0 ? "" : "sudo ", command, args);
	va_end(args);
}

int doctor_try_file(const char *dir, int flags)
{
	char name[PATH_MAX + 32];
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);

	/* A file system without O_TMPFILE, or without what flags ask for. */
	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
		snprintf(name, sizeof(name), "%s/.doctor-%d", dir, getpid());
		fd = open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
		if (fd >= 0)
			unlink(name);
	}
	return fd < 0 ? -errno : fd;
}

/* The nearest directory above path that exists, canonical. */
static void find_dir(struct doctor *d)
{
	char text[PATH_MAX];

	snprintf(text, sizeof(text), "%s", d->path);
	while (!realpath(text, d->dir)) {
		char *slash = strrchr(text, '/');
		if (slash == text)
			strcpy(text, "/");
		else if (slash)
			*slash = '\0';
		else
			strcpy(text, ".");
	}
}

static uint64_t term_of_host(const struct doctor *d, const char *name)
{
	const struct memsource_level *host = &d->memory.levels[0];

	for (size_t i = 0; i < host->n_terms; i++)
		if (strcmp(host->terms[i].name, name) == 0 &&
		    host->terms[i].state == MEMSOURCE_READ)
			return (uint64_t)host->terms[i].bytes;
	return 0;
}

void doctor_init(struct doctor *d, const struct admin *a, const char *path)
{
	struct statvfs fs;
	struct statfs type;
	struct stat st;

	*d = (struct doctor){.admin = a,
			     .owner = geteuid(),
			     .info = {.size = sizeof(d->info)},
			     .findings = jsonmake_new_list()};
	snprintf(d->path, sizeof(d->path), "%s", path);
	d->exists = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	if (d->exists)
		d->owner = st.st_uid;
	find_dir(d);
	d->writable = d->exists && access(d->dir, W_OK | X_OK) == 0;
	mountinfo_read(a, &d->mounts);
	d->mount = mountinfo_find(&d->mounts, d->dir);
	d->tmpfs = statfs(d->dir, &type) == 0 && type.f_type == TMPFS_MAGIC;
	if (statvfs(d->dir, &fs) == 0) {
		d->size = (uint64_t)fs.f_blocks * fs.f_frsize;
		d->inodes = fs.f_files;
		d->inodes_free = fs.f_ffree;
	}
	if (sysroot_memory(a, false, &d->memory) < 0)
		message_no_memory();
	d->ram = term_of_host(d, "MemTotal");
	d->swap = term_of_host(d, "SwapTotal");
	d->error = shmstore_partition_open(path, opening_flags(a), &d->p);
	snprintf(d->reason, sizeof(d->reason), "%s", shmstore_error_detail());
	if (d->error == 0)
		d->error = shmstore_partition_info(d->p, &d->info);
	else
		d->p = NULL;
}

void doctor_deinit(struct doctor *d)
{
	mountinfo_deinit(&d->mounts);
	memsource_deinit(&d->memory);
	d->p = shmstore_partition_unref(d->p);
}
