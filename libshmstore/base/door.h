/* SPDX-License-Identifier: Apache-2.0 */
/*
 * door.h: the compiler puts this in front of every file of the library but door.c. A public
 * function that can fail has the symbol shms_in_<name> in them, whether they define it or call it.
 * The symbol shmstore_<name> is its door (door.c), which only callers from outside go through. A
 * function that door.def lacks has no door: tests/regress/test_error_detail.c finds it.
 */
#ifndef SHMS_DOOR_H
#define SHMS_DOOR_H

#define SHMS_PRAGMA(text)         _Pragma(#text)
#define SHMS_RENAME(name, inner)  SHMS_PRAGMA(redefine_extname name inner)
#define DOOR(subject, name, ...)  SHMS_RENAME(shmstore_##name, shms_in_##name)
#define FILLS(subject, name, ...) SHMS_RENAME(shmstore_##name##_sized, shms_in_##name)
#include "door.def"
#undef DOOR
#undef FILLS

/* The library's own structures have the library's sizes. */
#define SHMSTORE_RET_SIZE
#define SHMSTORE_FILLS(name, type, ...) shmstore_##name##_sized(__VA_ARGS__)

#endif
