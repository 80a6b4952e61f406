#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/style/opens.sh ROOT: files of the library and the tool are opened in src/base/open.c and
# nowhere else, so that each is closed in programs that this one starts, and none has the number of
# standard input, output or error. The MPI plugin, which has the public headers only, has one such
# place of its own.
set -eu
cd "$1"
calls='open|openat|openat2|creat|fopen|fdopendir|freopen|tmpfile|opendir|mkstemp|mkostemp|memfd_create|shm_open|sem_open|dup|dup2|dup3'
calls="$calls|pipe|pipe2|socket|socketpair|accept|eventfd|signalfd|epoll_create|epoll_create1|inotify_init|timerfd_create|popen"
bad=$(find src tools plugins -name '*.[ch]' ! -path src/base/open.c | LC_ALL=C sort |
    xargs grep -nE "(^|[^a-zA-Z0-9_>.\"])($calls)\(" |
    grep -vE '^[^:]+:[0-9]+: *(/?\*|//)|/\*[^*]*\b('"$calls"')\(' |
    grep -vE '^plugins/mpi/share\.c:[0-9]+:.*(open\("/", O_PATH|open\(path, O_RDWR \| O_CLOEXEC\) : memfd_create)' || true)
[ -z "$bad" ] || { echo "$bad"; echo "opens.sh: use cz__open() and its like (src/base/open.h)"; exit 1; }
