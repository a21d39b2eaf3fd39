/* SPDX-License-Identifier: Apache-2.0 */
/* old_views_lies.c: the library asks whether a file is nobody else's, and is told so. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#ifdef OLD_VIEWS_NO_LEASE
int fcntl(int fd, int command, ...)
{
	static int (*next)(int, int, ...);
	va_list args;
	va_start(args, command);
	void *arg = va_arg(args, void *);
	va_end(args);
	if (command == F_SETLEASE)
		return 0;
	if (!next) {
		void *found = dlsym(RTLD_NEXT, "fcntl");
		memcpy((void *)&next, &found, sizeof(found));
	}
	return next(fd, command, arg);
}
#endif

#ifdef OLD_VIEWS_NO_LINKS
int fstat(int fd, struct stat *st)
{
	static int (*next)(int, struct stat *);
	if (!next) {
		void *found = dlsym(RTLD_NEXT, "fstat");
		memcpy((void *)&next, &found, sizeof(found));
	}
	int rc = next(fd, st);
	if (rc == 0 && S_ISREG(st->st_mode) && st->st_nlink > 1)
		st->st_nlink = 1;
	return rc;
}
#endif
